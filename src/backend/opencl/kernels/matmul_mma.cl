/* SPDX-License-Identifier: Apache-2.0 */
/* y[m,n] = x[m,k] * w[n,k]^T with prepared weights and several rows of x, for NVIDIA's tensor cores
 * (compute capability 8 and above). Both operands are F16, or BF16 with weights of that type; sums
 * are floats. With weights of floats, x is the sum of two numbers of that type, so that its
 * rounding adds no error. k is a multiple of 64. Other devices emulate the same steps, slowly.
 *
 * pack.cl has converted x. A work-group of matmul_mma computes a tile of TILE_M x TILE_N, a step of
 * STEP elements along k at a time. A stage has STEPS steps, and STAGES stages are in local memory:
 * asynchronous copies fill later ones while one is multiplied. The bits of factors are copied for
 * RUN steps at once and converted to F16 a stage ahead. A work-group has TEAMS teams of four warps;
 * each multiplies a share of the steps of a stage, and their sums are added in the end.
 *
 * Weights stay in their planes (weights.cl) until a warp has them in registers: a warp has 32
 * columns, and lane 4 g + t has word t of the levels of row g of each group of eight. That word has
 * the levels of elements 4 t to 4 t + 3 of each half of a block, where the instruction wants
 * elements 2 t, 2 t + 1, 2 t + 8 and 2 t + 9. Therefore pack.cl orders each 16 elements of x: the
 * even ones first. Weights of F16 and BF16 need no other order.
 *
 * With n_splits > 1, work-groups compute parts of k of the same tile. Each stores its sums, and the
 * last one to finish adds them in the order of k. */
#include "mma.cl"
#include "types.cl"
#include "warp.cl"
#include "weights.cl"

#ifndef TILE_M
#define TILE_M 64 /* rows of x: 16, 32, 64 or 128 */
#define STAGES 2
#define STEPS 1 /* steps of a stage: longer copies of a row */
#define RUN 1   /* steps whose factors are copied together: a multiple of STEPS, at most 4 */
#define TEAMS 1 /* each multiplies every TEAMS-th step of a stage */
#endif
enum { TILE_N = 128, GROUP = TILE_N * TEAMS, STEP = 64 };
enum { TILES_M = TILE_M / 16, TILES_N = 4 };
/* Sums of a work-item for a step: tiles of 16 rows and 8 columns, four of each; and those that it
 * stores. */
enum { SUMS = TILES_M * TILES_N, OWN_SUMS = SUMS / TEAMS };

/* ---- sizes of a stage in local memory ---- */

/* Bytes of a row of w for a step: levels, then further bits. */
#define ROW_BYTES (W_BLOCKS ? (W_Q8_0 ? 64 : W_TWO ? 16 : 32) : 128)
#define HIGH_BYTES (W_Q6_K ? 16 : W_QH || W_THIRDS ? 8 : 0)
/* Pieces of 16 bytes are ordered by piece, then row. The padding spreads the pieces of a row over
 * the banks. */
#define PIECES (ROW_BYTES / 16)
#define PIECE_PITCH (TILE_N * 16 + 128 / PIECES % 128)
/* Bits of the factors of a row for a run: those of its blocks; and F16 m of its blocks, or a word
 * of others. */
#define OWN_BYTES (!W_BLOCKS ? 0 : WTYPE != WEIGHT_mxfp4 ? 4 * RUN : RUN > 2 ? 8 : 4)
#define OTHER_BYTES (W_PARTS ? 4 : W_BASE ? 4 * RUN : 0)
#define RUN_BYTES (TILE_N * (OWN_BYTES + OTHER_BYTES))
#define RUNS (RUN > STEPS ? 2 : STAGES) /* in local memory */
/* Factors of a block: of each half, and bases after them. */
#define FACTORS ((W_HALVES ? 2 : 1) * (W_BASE ? 2 : 1))

/* Two blocks of Q2_K at once would not fit in the registers of a work-item of a team. */
#if W_TWO && W_BASE
#define UNROLL_BLOCKS _Pragma("nounroll")
#else
#define UNROLL_BLOCKS UNROLL
#endif
#if TEAMS > 1 /* the same for addresses of all copies of x */
#define UNROLL_X _Pragma("nounroll")
#else
#define UNROLL_X UNROLL
#endif
#define X_PARTS (W_BLOCKS ? 1 : 2) /* a value of x is the sum of its parts */
#define X_PART (TILE_M * STEP * 2)
#define X_BYTES (X_PARTS * X_PART)
#define HIGH_AT (X_BYTES + PIECES * PIECE_PITCH)
/* With several steps, the padding spreads the pieces of a row of w over the banks. */
#define STEP_BYTES ((HIGH_AT + TILE_N * HIGH_BYTES + 127) / 128 * 128 + (STEPS > 1 ? 16 : 0))
#define STAGE_BYTES (STEPS * STEP_BYTES)
/* The stages; afterwards, with several teams, the sums of all work-items. */
#define SUMS_BYTES (TEAMS > 1 ? SUMS * GROUP * 16 : 0)
#define LOCAL_BYTES (STAGES * STAGE_BYTES > SUMS_BYTES ? STAGES * STAGE_BYTES : SUMS_BYTES)

/* ---- copies from global to local memory ---- */

/* The weight of a work-group's tile. */
typedef struct operand {
    __global const uchar *w;
    ulong scales_at, blocks; /* blocks: of all rows */
    uint n, column0;
} operand;

/* Starts the copies of a stage of x. x: the tile's first row in the stage's first step; pitch: rows
 * of a step. Rows past the last are others, whose products nothing stores. */
static inline void copy_x(__local uchar *stage, __global const uchar *x, uint pitch) {
    enum { EACH = TILE_M * 8, N = EACH * X_PARTS * STEPS / GROUP };
    UNROLL_X for (uint i = 0; i < N; i++) {
        const uint piece = i * GROUP + get_local_id(0), part = piece / EACH, at = piece % EACH * 16;
        __local uchar *to = stage + part / X_PARTS * STEP_BYTES + part % X_PARTS * X_PART;
        copy16(to + at, x + (part * pitch * 128 + at));
    }
}

/* Starts the copies of a stage of w. */
static inline void copy_w(__local uchar *stage, operand o, uint k, uint step) {
    enum { EACH = PIECES * STEPS, ROWS = GROUP / EACH };
    const uint piece = get_local_id(0) % EACH, row = get_local_id(0) / EACH;
    __local uchar *to = stage + piece / PIECES * STEP_BYTES + X_BYTES + row * 16;
    __global const uchar *from = o.w + (step * EACH + piece) * 16;
    const uint row_bytes = k / STEP * ROW_BYTES;
    UNROLL for (uint i = 0; i < TILE_N; i += ROWS) {
        copy16(to + piece % PIECES * PIECE_PITCH + i * 16,
               from + (ulong)min(o.column0 + row + i, o.n - 1) * row_bytes);
    }
#if HIGH_BYTES
    const uint high_row = get_local_id(0) / STEPS, at_step = get_local_id(0) % STEPS;
    const ulong at = (ulong)min(o.column0 + high_row, o.n - 1) * (k / STEP) + step * STEPS;
    copy_bytes(stage + at_step * STEP_BYTES + HIGH_AT + high_row * HIGH_BYTES,
               o.w + o.blocks * (W_TWO ? 8 : 16) + (at + at_step) * HIGH_BYTES, HIGH_BYTES);
#endif
}

#if W_BLOCKS
/* Returns the first block of a row of the tile in a run. */
static inline ulong first_block(operand o, uint row, uint k, uint run) {
    return (ulong)min(o.column0 + row, o.n - 1) * (k / BLOCK) + 2 * RUN * run;
}

/* Starts the copies of the bits of a run's factors. Each starts at a multiple of its size. */
static inline void copy_run(__local uchar *runs, operand o, uint k, uint run) {
    const uint row = get_local_id(0);
    if (row >= TILE_N) return;
    const ulong first = first_block(o, row, k, run);
    __global const uchar *from = o.w + o.scales_at;
    __local uchar *to = runs + run % RUNS * RUN_BYTES;
    copy_bytes(to + row * OWN_BYTES, from + (WTYPE == WEIGHT_mxfp4 ? first & ~3UL : 2 * first),
               OWN_BYTES);
    if (OTHER_BYTES == 0) return;
    const bool is_half = W_Q6_K || W_THIRDS; /* F16 d of eight blocks */
    const ulong at = is_half ? first / 8 * 2 & ~3UL : W_PARTS ? first / 8 * 4 : first * 2;
    copy_bytes(to + TILE_N * OWN_BYTES + row * OTHER_BYTES, from + o.blocks * 2 + at, OTHER_BYTES);
}

/* Returns the factors of block b of a row in a run. first: the row's first block. */
static inline factors run_factors(__local const uchar *run, uint row, uint b, ulong first) {
    __local const uchar *own = run + row * OWN_BYTES;
    __local const uchar *other = run + TILE_N * OWN_BYTES + row * OTHER_BYTES;
    uint bits = 0;
    if (W_Q6_K || W_THIRDS) bits = ((__local const ushort *)other)[first / 8 % 2];
    else if (W_PARTS) bits = *(__local const uint *)other;
    else if (W_BASE) bits = ((__local const ushort *)other)[b];
    if (WTYPE == WEIGHT_mxfp4) return factors_of(own[b + first % 4], bits);
    return factors_of(((__local const ushort *)own)[b], bits);
}

/* Converts the factors of a stage to halves. A lane has its four columns side by side. */
static inline void convert_factors(__local ushort *out, __local const uchar *runs, operand o,
                                   uint k, uint stage) {
    UNROLL for (uint i = get_local_id(0) / TILE_N; i < STEPS; i += TEAMS) {
        const uint row = get_local_id(0) % TILE_N, step = stage * STEPS + i, run = step / RUN;
        const ulong first = first_block(o, row, k, run);
        __local half *to = (__local half *)out + i * (2 * FACTORS * TILE_N) +
                           (row / 32 * 8 + row % 8) * TILES_N + row % 32 / 8;
        UNROLL for (uint b = 0; b < 2; b++) {
            const factors f =
                run_factors(runs + run % RUNS * RUN_BYTES, row, step % RUN * 2 + b, first);
            vstore_half_rte(f.d.x, 0, to + b * FACTORS * TILE_N);
            if (W_HALVES) vstore_half_rte(f.d.y, 0, to + (b * FACTORS + 1) * TILE_N);
            if (!W_BASE) continue;
            const uint base = b * FACTORS + FACTORS / 2;
            vstore_half_rte(f.base.x, 0, to + base * TILE_N);
            if (W_HALVES) vstore_half_rte(f.base.y, 0, to + (base + 1) * TILE_N);
        }
    }
}

/* Starts the copies of the factors of a stage unless its run has been copied. */
static inline void copy_factors(__local uchar *runs, operand o, uint k, uint stage) {
    if (stage * STEPS % RUN == 0) copy_run(runs, o, k, stage * STEPS / RUN);
}
#define FACTORS_PARAM , __local const ushort *of_step
#define FACTORS_ARG , of_step
#else
#define FACTORS_PARAM
#define FACTORS_ARG
#endif

/* ---- fragments ---- */

/* Loads word t of a piece of rows g, g + 8, g + 16 and g + 24 of the warp's columns. */
static inline uint4 load_words(__local const uchar *pieces, uint lane) {
#ifdef __NV_CL_C_VERSION
    return load_matrices(pieces + lane * 16);
#else
    __local const uint *word = (__local const uint *)(pieces + lane / 4 * 16) + lane % 4;
    return (uint4)(word[0], word[32], word[64], word[96]);
#endif
}

#define PART(v, i) ((i) == 0 ? (v).x : (i) == 1 ? (v).y : (i) == 2 ? (v).z : (v).w)

#if W_BLOCKS
/* Returns two values as halves: of levels `first` and `first` + 2 of a word, times a factor, plus a
 * base. Factors have two equal halves. */
static inline uint pair_of_levels(uint levels, uint first, uint d, uint base) {
    const bool is_signed = W_Q8_0 || W_TABLE;
#ifdef __NV_CL_C_VERSION
    /* A byte b after the byte 0x64 is the F16 number 1024 + b. */
    const uint zero = (0x6400u + (is_signed ? 128 : W_MIDDLE)) * 0x10001u;
    uint v = permute(levels, 0x64646464u, first ? 0x4341u : 0x4240u), out;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(v) : "r"(v), "r"(zero));
    if (W_BASE) asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(v), "r"(d), "r"(base));
    else asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(v), "r"(d));
    return out;
#else
    const float scale = half_value((ushort)d), add = W_BASE ? half_value((ushort)base) : 0;
    uint out = 0;
    for (uint i = 0; i < 2; i++) {
        const int level = levels >> 8 * (first + 2 * i) & 255;
        const float v = (float)(level - (is_signed ? 128 : W_MIDDLE));
        out |= (uint)half_bits(fma(v, scale, add)) << 16 * i;
    }
    return out;
#endif
}

/* Returns both halves of a word equal to its half `i`. */
static inline uint twice(uint pair, uint i) {
#ifdef __NV_CL_C_VERSION
    return permute(pair, pair, i ? 0x3232u : 0x1010u);
#else
    return (pair >> 16 * i & 0xffff) * 0x10001u;
#endif
}

/* Holds a lane's values of a block of its four columns. */
typedef struct block_words {
    uint4 low, high;        /* words of levels of elements 0 to 15 and 16 to 31 */
    uint2 factors[FACTORS]; /* halves of the four columns */
} block_words;

/* Returns the levels, one in each byte, from the lower bits and the further bits of a block. */
static inline uint join_levels(uint low, uint above, uint lane) {
    const uint v = with_high(low, above, lane % 4);
    return W_Q8_0 || W_TABLE ? v ^ 0x80808080u : v;
}

/* Loads block b of a step. of_step: the factors of the work-group's columns. */
static inline block_words load_block(__local const uchar *stage, uint warp, uint lane,
                                     uint b FACTORS_PARAM) {
    __local const uchar *pieces = stage + X_BYTES + warp * (WARP * 16);
    block_words out;
    UNROLL for (uint i = 0; i < FACTORS; i++) {
        __local const ushort *at = of_step + (b * FACTORS + i) * TILE_N;
        out.factors[i] = *(__local const uint2 *)(at + (warp * 8 + lane / 4) * TILES_N);
    }
    uint low[4], high[4];
#if W_Q8_0
    const uint4 first = load_words(pieces + 2 * b * PIECE_PITCH, lane);
    const uint4 second = load_words(pieces + (2 * b + 1) * PIECE_PITCH, lane);
#elif !W_TWO
    const uint4 both = load_words(pieces + b * PIECE_PITCH, lane);
#endif
    UNROLL for (uint j = 0; j < 4; j++) {
        uint2 above = 0;
#if W_Q6_K
        above = *(__local const uint2 *)(stage + HIGH_AT + (warp * WARP + lane / 4 + 8 * j) * 16 +
                                         b * 8);
#elif HIGH_BYTES
        const uint bits =
            *(__local const uint *)(stage + HIGH_AT + (warp * WARP + lane / 4 + 8 * j) * 8 + b * 4);
        above = (uint2)(bits, bits >> 4);
#endif
#if W_Q8_0
        low[j] = PART(first, j);
        high[j] = PART(second, j);
#elif W_TWO
        const uint2 two = *(__local const uint2 *)(pieces + (lane / 4 + 8 * j) * 16 + b * 8);
        low[j] = two.x >> lane % 4 * 2 & 0x03030303u;
        high[j] = two.y >> lane % 4 * 2 & 0x03030303u;
#else
        low[j] = PART(both, j) & 0x0f0f0f0fu;
        high[j] = PART(both, j) >> 4 & 0x0f0f0f0fu;
#endif
        low[j] = join_levels(low[j], above.x, lane);
        high[j] = join_levels(high[j], above.y, lane);
    }
    out.low = (uint4)(low[0], low[1], low[2], low[3]);
    out.high = (uint4)(high[0], high[1], high[2], high[3]);
    return out;
}

/* Returns the operand of column group j for elements 16 s to 16 s + 15 of the block. */
static inline uint2 fragment_of(block_words w, uint s, uint j) {
    const uint levels = s ? PART(w.high, j) : PART(w.low, j);
    const bool second = W_HALVES && s;
    const uint2 d = second ? w.factors[FACTORS > 1] : w.factors[0];
    const uint2 base = second ? w.factors[FACTORS - 1] : w.factors[FACTORS / 2];
    const uint scale = twice(j < 2 ? d.x : d.y, j % 2);
    const uint add = W_BASE ? twice(j < 2 ? base.x : base.y, j % 2) : 0;
    return (uint2)(pair_of_levels(levels, 0, scale, add), pair_of_levels(levels, 1, scale, add));
}
#else
/* Holds a lane's values of 32 elements of its four columns: words of the pieces of 8 elements. */
typedef struct block_words {
    uint4 piece[4];
} block_words;

static inline block_words load_block(__local const uchar *stage, uint warp, uint lane, uint b) {
    block_words out;
    UNROLL for (uint i = 0; i < 4; i++) {
        out.piece[i] =
            load_words(stage + X_BYTES + warp * (WARP * 16) + (4 * b + i) * PIECE_PITCH, lane);
    }
    return out;
}

static inline uint2 fragment_of(block_words w, uint s, uint j) {
    return s ? (uint2)(PART(w.piece[2], j), PART(w.piece[3], j))
             : (uint2)(PART(w.piece[0], j), PART(w.piece[1], j));
}
#endif

/* ---- products ---- */

#ifdef __NV_CL_C_VERSION
#if W_BF16
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
#else
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
#endif
/* Adds a product of 16 x 16 and 16 x 8. With lane = 4 g + t, c[0..1] are columns 2 t and 2 t + 1 of
 * row g, and c[2..3] of row g + 8. */
static inline void multiply_add(float *c, uint4 a, uint2 b) {
    asm volatile(MMA "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
}

static inline void multiply_block(float c[TILES_M][TILES_N][4], __local const uchar *stage,
                                  uint warp, uint lane, uint b FACTORS_PARAM) {
    const block_words w = load_block(stage, warp, lane, b FACTORS_ARG);
    const uint row = lane % 16;
    UNROLL for (uint s = 0; s < 2; s++) {
        const uint piece = 2 * (2 * b + s) + lane / 16;
        uint2 f[TILES_N];
        UNROLL for (uint j = 0; j < TILES_N; j++) f[j] = fragment_of(w, s, j);
        UNROLL for (uint part = 0; part < X_PARTS; part++) {
            __local const uchar *x = stage + part * X_PART + row * 128;
            UNROLL for (uint i = 0; i < TILES_M; i++) {
                const uint4 a = load_matrices(x + i * (16 * 128) + ((piece ^ row % 8) << 4));
                UNROLL for (uint j = 0; j < TILES_N; j++) multiply_add(c[i][j], a, f[j]);
            }
        }
    }
}
#define EXCHANGE
#define EXCHANGED
#else
static inline float value_of_bits(uint bits) {
    return W_BF16 ? bfloat_value((ushort)bits) : half_value((ushort)bits);
}

/* The same steps: lanes exchange their fragments of w through local memory. */
static inline void multiply_block(float c[TILES_M][TILES_N][4], __local const uchar *stage,
                                  uint warp, uint lane, uint b FACTORS_PARAM,
                                  __local uint2 exchange[2][TILES_N][GROUP]) {
    const block_words w = load_block(stage, warp, lane, b FACTORS_ARG);
    for (uint s = 0; s < 2; s++) {
        for (uint j = 0; j < TILES_N; j++) {
            exchange[s][j][get_local_id(0)] = fragment_of(w, s, j);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint p = 0; p < 32; p++) { /* position in the order of pack.cl */
        const uint s = p / 16, t = p % 8 / 2, piece = 4 * b + p / 8;
        float column[TILES_N][2];
        for (uint j = 0; j < TILES_N; j++) {
            for (uint e = 0; e < 2; e++) {
                const uint from = get_local_id(0) - lane + (lane % 4 * 2 + e) * 4 + t;
                const uint2 pairs = exchange[s][j][from];
                const uint pair = p % 16 < 8 ? pairs.x : pairs.y;
                column[j][e] = value_of_bits(pair >> 16 * (p % 2) & 0xffff);
            }
        }
        for (uint i = 0; i < 2 * TILES_M; i++) {
            const uint row = 8 * i + lane / 4;
            __local const uchar *at = stage + row * 128 + ((piece ^ row % 8) << 4);
            float a = value_of_bits(((__local const ushort *)at)[p % 8]);
            if (X_PARTS > 1) a += value_of_bits(((__local const ushort *)(at + X_PART))[p % 8]);
            for (uint j = 0; j < TILES_N; j++) {
                for (uint e = 0; e < 2; e++) {
                    const uint to = i % 2 * 2 + e;
                    c[i / 2][j][to] = fma(a, column[j][e], c[i / 2][j][to]);
                }
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
#define EXCHANGE __local uint2 exchange[2][TILES_N][GROUP];
#define EXCHANGED , exchange
#endif

/* ---- partial sums of work-groups that share a tile ---- */

static inline float4 load_sums(volatile __global const float4 *p) {
#ifdef __NV_CL_C_VERSION
    float4 v;
    asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
#else
    return *p;
#endif
}

/* Stores this group's sums. Returns true in the last group of the tile, with all sums added.
 * parts: of the tile; count: 0 before and after. */
static inline bool join_splits(float4 own[OWN_SUMS], __global float4 *parts,
                               volatile __global uint *count, uint split, uint n_splits,
                               __local uint *finished) {
    enum { EACH = OWN_SUMS * GROUP };
    const uint lid = get_local_id(0);
    __global float4 *mine = parts + (ulong)split * EACH + lid;
    UNROLL for (uint i = 0; i < OWN_SUMS; i++) mine[i * GROUP] = own[i];
    if (!is_last_group(count, n_splits, finished)) return false;
    /* Several loads are in flight together. */
    enum { TOGETHER = OWN_SUMS < 4 ? OWN_SUMS : 4 };
    UNROLL for (uint i = 0; i < OWN_SUMS; i += TOGETHER) {
        float4 sums[TOGETHER] = {0};
        __global const float4 *part = parts + i * GROUP + lid;
        _Pragma("unroll 4") for (uint s = 0; s < n_splits; s++) {
            UNROLL for (uint j = 0; j < TOGETHER; j++) {
                sums[j] += load_sums(part + (ulong)s * EACH + j * GROUP);
            }
        }
        UNROLL for (uint j = 0; j < TOGETHER; j++) own[i + j] = sums[j];
    }
    return true;
}

/* Adds the sums of the teams, in their order, and keeps those that this work-item stores.
 * between: local memory for the sums of all work-items. */
static inline void join_teams(float4 own[OWN_SUMS], float c[TILES_M][TILES_N][4],
                              __local float4 *between) {
    const uint member = get_local_id(0) % TILE_N, team = get_local_id(0) / TILE_N;
    if (TEAMS > 1) barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (uint i = 0; i < SUMS; i++) {
        const uint a = i / TILES_N, b = i % TILES_N;
        const float4 v = (float4)(c[a][b][0], c[a][b][1], c[a][b][2], c[a][b][3]);
        if (TEAMS > 1) between[(team * SUMS + i) * TILE_N + member] = v;
        else own[i % OWN_SUMS] = v;
    }
    if (TEAMS == 1) return;
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (uint i = 0; i < OWN_SUMS; i++) {
        own[i] = 0;
        UNROLL for (uint t = 0; t < TEAMS; t++) {
            own[i] += between[(t * SUMS + team * OWN_SUMS + i) * TILE_N + member];
        }
    }
}

/* ---- kernels ---- */

/* Writes the sums, times the factor of each row of x. */
static inline void store_tile(float4 own[OWN_SUMS], __global float *y,
                              __global const float *factors, uint row0, uint column0, uint m,
                              uint n) {
    const bool is_paired = n % 2 == 0 && (size_t)y % 8 == 0;
    const uint lane = get_local_id(0) % WARP, team = get_local_id(0) / TILE_N;
    UNROLL for (uint i = 0; i < 2 * OWN_SUMS; i++) {
        const uint tile = team * OWN_SUMS + i / 2;
        const uint row = row0 + tile / TILES_N * 16 + i % 2 * 8 + lane / 4;
        const uint column = column0 + tile % TILES_N * 8 + lane % 4 * 2;
        if (row >= m) continue;
        const float2 v = (i % 2 ? own[i / 2].hi : own[i / 2].lo) * factors[row];
        __global float *to = y + (ulong)row * n + column;
        if (is_paired && column < n) {
            *(__global float2 *)to = v;
        } else {
            if (column < n) to[0] = v.x;
            if (column + 1 < n) to[1] = v.y;
        }
    }
}

#define WEIGHT_PARAMS(i) \
    __global uchar *y##i, ulong y_at##i, __global const uchar *w##i, ulong scales_at##i, uint n##i

/* Computes the products of up to three weights with one x. Work-groups: dimension 0 is tiles by
 * rows of x, 1 by columns of all weights, 2 parts of k. packed: what pack.cl wrote.
 * parts: sums of groups that share a tile; counts: a zero for each tile. */
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
matmul_mma(__global const uchar *packed, ulong factors_at, uint pitch, WEIGHT_PARAMS(0),
           WEIGHT_PARAMS(1), WEIGHT_PARAMS(2), uint m, uint k, uint n_splits,
           __global float4 *parts, __global uint *counts) {
    __local uchar stages[LOCAL_BYTES] __attribute__((aligned(128)));
    __local uint finished;
#if W_BLOCKS
    /* Bits of factors, and the factors of the present stage and of the next one. */
    __local uchar runs[RUNS * RUN_BYTES] __attribute__((aligned(16)));
    __local ushort stage_factors[2][STEPS * 2 * FACTORS * TILE_N] __attribute__((aligned(8)));
#endif
    EXCHANGE
    const uint lid = get_local_id(0), lane = lid % WARP, warp = lid / WARP % 4;
    const uint row0 = get_group_id(0) * TILE_M, column_tile = get_group_id(1);
    const uint split = get_group_id(2);
    const uint tiles0 = (n0 + TILE_N - 1) / TILE_N, tiles1 = (n1 + TILE_N - 1) / TILE_N;
    operand o = {w0, scales_at0, 0, n0, column_tile * TILE_N};
    __global float *y = (__global float *)(y0 + y_at0);
    if (column_tile >= tiles0 + tiles1) {
        o = (operand){w2, scales_at2, 0, n2, (column_tile - tiles0 - tiles1) * TILE_N};
        y = (__global float *)(y2 + y_at2);
    } else if (column_tile >= tiles0) {
        o = (operand){w1, scales_at1, 0, n1, (column_tile - tiles0) * TILE_N};
        y = (__global float *)(y1 + y_at1);
    }
    o.blocks = (ulong)o.n * (k / BLOCK);
    const uint all_steps = k / (STEP * STEPS);
    const uint first = all_steps * split / n_splits, end = all_steps * (split + 1) / n_splits;

    const ulong stage_x = (ulong)pitch * (128 * X_PARTS * STEPS);
    __global const uchar *x = packed + row0 * 128;

    float c[TILES_M][TILES_N][4];
    UNROLL for (uint i = 0; i < TILES_M; i++) UNROLL for (uint j = 0; j < TILES_N; j++) {
        c[i][j][0] = c[i][j][1] = c[i][j][2] = c[i][j][3] = 0;
    }
    /* The bits of factors arrive a stage before the levels, so that they can be converted. */
#if W_BLOCKS
    copy_run(runs, o, k, first * STEPS / RUN);
#endif
    for (uint i = 0; i < STAGES - 1; i++) {
        __local uchar *stage = stages + i * STAGE_BYTES;
        if (first + i < end) {
            copy_x(stage, x + (first + i) * stage_x, pitch);
            copy_w(stage, o, k, first + i);
        }
#if W_BLOCKS
        if (first + i + 1 < end) copy_factors(runs, o, k, first + i + 1);
#endif
        END_COPIES;
    }
#if W_BLOCKS
    WAIT_COPIES(STAGES - 2);
    barrier(CLK_LOCAL_MEM_FENCE);
    convert_factors(stage_factors[first % 2], runs, o, k, first);
#endif
    uint now = 0, later = STAGES - 1;
    for (uint step = first; step < end; step++) {
        WAIT_COPIES(STAGES - 2);
        barrier(CLK_LOCAL_MEM_FENCE);
        __local uchar *stage = stages + now * STAGE_BYTES;
        const uint last = step + STAGES - 1;
        if (last < end) {
            copy_x(stages + later * STAGE_BYTES, x + last * stage_x, pitch);
            copy_w(stages + later * STAGE_BYTES, o, k, last);
        }
#if W_BLOCKS
        if (last + 1 < end) copy_factors(runs, o, k, last + 1);
#endif
        END_COPIES;
        later = now;
        now = now + 1 == STAGES ? 0 : now + 1;
#if W_BLOCKS
        if (step + 1 < end) {
            convert_factors(stage_factors[(step + 1) % 2], runs, o, k, step + 1);
        }
#endif
        for (uint i = lid / TILE_N; i < STEPS; i += TEAMS) {
#if W_BLOCKS
            __local const ushort *of_step = stage_factors[step % 2] + i * (2 * FACTORS * TILE_N);
#endif
            UNROLL_BLOCKS for (uint b = 0; b < 2; b++) {
                multiply_block(c, stage + i * STEP_BYTES, warp, lane, b FACTORS_ARG EXCHANGED);
            }
        }
    }
    float4 own[OWN_SUMS];
    join_teams(own, c, (__local float4 *)stages);
    if (n_splits > 1) {
        const uint tile = column_tile * get_num_groups(0) + get_group_id(0);
        __global float4 *sums = parts + (ulong)tile * n_splits * (OWN_SUMS * GROUP);
        if (!join_splits(own, sums, counts + tile, split, n_splits, &finished)) return;
    }
    store_tile(own, y, (__global const float *)(packed + factors_at), row0, o.column0 + warp * WARP,
               m, o.n);
}
