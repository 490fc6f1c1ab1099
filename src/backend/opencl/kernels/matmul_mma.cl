/* SPDX-License-Identifier: Apache-2.0 */
/* y[m,n] = x[m,k] * w[n,k]^T with prepared weights and several rows of x, for NVIDIA's tensor cores
 * (compute capability 8 and above). Both operands are F16, or BF16 with weights of that type; sums
 * are floats. With weights of floats, x is the sum of two numbers of that type, so that its
 * rounding adds no error. k is a multiple of 64. Other devices emulate the same steps, slowly.
 *
 * pack.cl has converted x. A work-group of matmul_mma computes a tile of TILE_M x TILE_N,
 * STEP elements along k at a time. STAGES steps are in local memory: asynchronous copies fill later
 * ones while one is multiplied. Weights stay in their planes (weights.cl) until a warp has them in
 * registers: a warp has 32 columns, and lane 4 g + t has word t of the levels of row g of each
 * group of eight. That word has the levels of elements 4 t to 4 t + 3 of each half of a block,
 * where the instruction wants elements 2 t, 2 t + 1, 2 t + 8 and 2 t + 9. Therefore pack.cl
 * orders each 16 elements of x: the even ones first. Weights of F16 and BF16 need no other order.
 *
 * With n_splits > 1, work-groups compute parts of k of the same tile. Each stores its sums, and the
 * last one to finish adds them in the order of k. */
#include "types.cl"
#include "warp.cl"
#include "weights.cl"

#ifndef TILE_M
#define TILE_M 64 /* rows of x: 16, 32, 64 or 128 */
#endif
#ifndef STAGES
#define STAGES 2
#endif
enum { TILE_N = 128, GROUP = 128, STEP = 64, TILES_M = TILE_M / 16, TILES_N = 4 };
#define UNROLL _Pragma("unroll")

/* ---- sizes of a stage in local memory ---- */

/* Bytes of a row of w for a step: levels, then further bits. */
#define ROW_BYTES (W_BLOCKS ? (W_Q8_0 ? 64 : W_TWO ? 16 : 32) : 128)
#define HIGH_BYTES (W_Q6_K ? 16 : W_QH || W_THIRDS ? 8 : 0)
/* Pieces of 16 bytes are ordered by piece, then row. The padding spreads the pieces of a row over
 * the banks. */
#define PIECES (ROW_BYTES / 16)
#define PIECE_PITCH (TILE_N * 16 + 128 / PIECES % 128)
/* Factors of a block: of each half, and bases after them. */
#define FACTORS ((W_HALVES ? 2 : 1) * (W_BASE ? 2 : 1))
#define FACTOR_BYTES (W_BLOCKS ? 2 * FACTORS * TILE_N * 2 : 0)

#define X_PARTS (W_BLOCKS ? 1 : 2) /* a value of x is the sum of its parts */
#define X_PART (TILE_M * STEP * 2)
#define X_BYTES (X_PARTS * X_PART)
#define HIGH_AT (X_BYTES + PIECES * PIECE_PITCH)
#define FACTORS_AT (HIGH_AT + TILE_N * HIGH_BYTES)
#define STAGE_BYTES (FACTORS_AT + FACTOR_BYTES)

/* ---- copies from global to local memory ---- */

#ifdef __NV_CL_C_VERSION
static inline void copy16(__local uchar *to, __global const uchar *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "r"((uint)(size_t)to), "l"(from)
                 : "memory");
}
static inline void copy8(__local uchar *to, __global const uchar *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;"
                 :
                 : "r"((uint)(size_t)to), "l"(from)
                 : "memory");
}
#define END_COPIES asm volatile("cp.async.commit_group;" ::: "memory")
/* Waits until at most n stages are being filled. */
#define WAIT_COPIES(n) asm volatile("cp.async.wait_group %0;" : : "n"(n) : "memory")
#else
static inline void copy16(__local uchar *to, __global const uchar *from) {
    *(__local uint4 *)to = *(__global const uint4 *)from;
}
static inline void copy8(__local uchar *to, __global const uchar *from) {
    *(__local uint2 *)to = *(__global const uint2 *)from;
}
#define END_COPIES
#define WAIT_COPIES(n)
#endif

/* The weight of a work-group's tile. */
typedef struct operand {
    __global const uchar *w;
    ulong scales_at, blocks; /* blocks: of all rows */
    uint n, column0;
} operand;

/* Starts the copies of a step of x. x: the packed rows. */
static inline void copy_x(__local uchar *stage, __global const uchar *x, uint row0, uint m, uint k,
                          uint step) {
    enum { PIECES_X = 8 * X_PARTS, STEP_BYTES = STEP * 2 * X_PARTS };
    UNROLL for (uint i = get_local_id(0); i < TILE_M * PIECES_X; i += GROUP) {
        const uint row = i / PIECES_X, piece = i % 8, part = i % PIECES_X / 8;
        const ulong from = (ulong)min(row0 + row, m - 1) * (k / STEP * STEP_BYTES);
        copy16(stage + part * X_PART + row * 128 + ((piece ^ row % 8) << 4),
               x + from + step * STEP_BYTES + i % PIECES_X * 16);
    }
}

/* Starts the copies of a step of w. */
static inline void copy_w(__local uchar *stage, operand o, uint k, uint step) {
    const ulong row_bytes = (ulong)(k / STEP) * ROW_BYTES;
    UNROLL for (uint i = get_local_id(0); i < TILE_N * PIECES; i += GROUP) {
        const uint row = i / PIECES, piece = i % PIECES;
        const ulong from = min(o.column0 + row, o.n - 1) * row_bytes + step * ROW_BYTES;
        copy16(stage + X_BYTES + piece * PIECE_PITCH + row * 16, o.w + from + piece * 16);
    }
#if HIGH_BYTES
    const ulong high_at = o.blocks * (W_TWO ? 8 : 16), high_bytes = (ulong)(k / STEP) * HIGH_BYTES;
    const uint row = get_local_id(0);
    __global const uchar *from =
        o.w + high_at + min(o.column0 + row, o.n - 1) * high_bytes + step * HIGH_BYTES;
    if (HIGH_BYTES == 16) copy16(stage + HIGH_AT + row * 16, from);
    else copy8(stage + HIGH_AT + row * 8, from);
#endif
}

#if W_BLOCKS
/* The factors of a row for a step: a work-item loads those of one row. */
typedef struct row_factors {
    factors block[2];
} row_factors;

static inline row_factors load_row_factors(operand o, uint k, uint step) {
    const ulong first =
        (ulong)min(o.column0 + (uint)get_local_id(0), o.n - 1) * (k / BLOCK) + 2 * step;
    row_factors out;
    UNROLL for (uint b = 0; b < 2; b++) {
        out.block[b] = load_factors(o.w, o.scales_at, o.blocks, first + b);
    }
    return out;
}

/* Stores factors so that a lane finds those of its four columns side by side. */
static inline void store_row_factors(__local uchar *stage, row_factors f) {
    const uint row = get_local_id(0), at = (row / 32 * 8 + row % 8) * TILES_N + row % 32 / 8;
    __local half *to = (__local half *)(stage + FACTORS_AT) + at;
    UNROLL for (uint b = 0; b < 2; b++) {
        vstore_half_rte(f.block[b].d.x, 0, to + b * FACTORS * TILE_N);
        if (W_HALVES) vstore_half_rte(f.block[b].d.y, 0, to + (b * FACTORS + 1) * TILE_N);
        if (!W_BASE) continue;
        const uint base = b * FACTORS + FACTORS / 2;
        vstore_half_rte(f.block[b].base.x, 0, to + base * TILE_N);
        if (W_HALVES) vstore_half_rte(f.block[b].base.y, 0, to + (base + 1) * TILE_N);
    }
}
#endif

/* ---- fragments ---- */

#ifdef __NV_CL_C_VERSION
/* Loads four matrices of 8 x 8 halves. A lane gives the address of a row of 16 bytes. */
static inline uint4 load_matrices(__local const uchar *row) {
    uint4 v;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"((uint)(size_t)row)
                 : "memory");
    return v;
}
#endif

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
    uint v, out;
    asm("prmt.b32 %0, %1, %2, %3;"
        : "=r"(v)
        : "r"(levels), "r"(0x64646464u), "r"(first ? 0x4341u : 0x4240u));
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
    uint out;
    asm("prmt.b32 %0, %1, %1, %2;" : "=r"(out) : "r"(pair), "r"(i ? 0x3232u : 0x1010u));
    return out;
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

/* Loads block b of a step. stage: of the warp's columns. */
static inline block_words load_block(__local const uchar *stage, uint warp, uint lane, uint b) {
    __local const uchar *pieces = stage + X_BYTES + warp * (WARP * 16);
    block_words out;
    UNROLL for (uint i = 0; i < FACTORS; i++) {
        __local const uchar *at = stage + FACTORS_AT + (b * FACTORS + i) * (TILE_N * 2);
        out.factors[i] = *(__local const uint2 *)(at + (warp * 8 + lane / 4) * 8);
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
                                  uint warp, uint lane, uint b) {
    const block_words w = load_block(stage, warp, lane, b);
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
                                  uint warp, uint lane, uint b,
                                  __local uint2 exchange[2][TILES_N][GROUP]) {
    const block_words w = load_block(stage, warp, lane, b);
    for (uint s = 0; s < 2; s++) {
        for (uint j = 0; j < TILES_N; j++) {
            exchange[s][j][warp * WARP + lane] = fragment_of(w, s, j);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint p = 0; p < 32; p++) { /* position in the order of pack.cl */
        const uint s = p / 16, t = p % 8 / 2, piece = 4 * b + p / 8;
        float column[TILES_N][2];
        for (uint j = 0; j < TILES_N; j++) {
            for (uint e = 0; e < 2; e++) {
                const uint from = warp * WARP + (lane % 4 * 2 + e) * 4 + t;
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
 * count: 0 before and after. */
static inline bool join_splits(float c[TILES_M][TILES_N][4], __global float4 *parts,
                               volatile __global uint *count, uint split, uint n_splits,
                               __local uint *finished) {
    enum { EACH = TILES_M * TILES_N * GROUP };
    const uint lid = get_local_id(0);
    __global float4 *mine = parts + (ulong)split * EACH + lid;
    UNROLL for (uint i = 0; i < TILES_M; i++) UNROLL for (uint j = 0; j < TILES_N; j++) {
        mine[(i * TILES_N + j) * GROUP] = (float4)(c[i][j][0], c[i][j][1], c[i][j][2], c[i][j][3]);
    }
    if (!is_last_group(count, n_splits, finished)) return false;
    /* Loads of a row of tiles and of several parts are in flight together. */
    UNROLL for (uint i = 0; i < TILES_M; i++) {
        float4 sums[TILES_N] = {0, 0, 0, 0};
        __global const float4 *part = parts + i * TILES_N * GROUP + lid;
        _Pragma("unroll 4") for (uint s = 0; s < n_splits; s++) {
            UNROLL for (uint j = 0; j < TILES_N; j++) {
                sums[j] += load_sums(part + (ulong)s * EACH + j * GROUP);
            }
        }
        UNROLL for (uint j = 0; j < TILES_N; j++) {
            c[i][j][0] = sums[j].x;
            c[i][j][1] = sums[j].y;
            c[i][j][2] = sums[j].z;
            c[i][j][3] = sums[j].w;
        }
    }
    return true;
}

/* ---- kernels ---- */

/* Writes the sums, times the factor of each row of x. */
static inline void store_tile(float c[TILES_M][TILES_N][4], __global float *y,
                              __global const float *factors, uint row0, uint column0, uint m,
                              uint n, uint lane) {
    const bool is_paired = n % 2 == 0 && (size_t)y % 8 == 0;
    UNROLL for (uint i = 0; i < 2 * TILES_M; i++) {
        const uint row = row0 + 8 * i + lane / 4;
        if (row >= m) continue;
        const float factor = factors[row];
        UNROLL for (uint j = 0; j < TILES_N; j++) {
            const uint column = column0 + 8 * j + lane % 4 * 2;
            const float a = c[i / 2][j][i % 2 * 2] * factor;
            const float b = c[i / 2][j][i % 2 * 2 + 1] * factor;
            __global float *to = y + (ulong)row * n + column;
            if (is_paired && column < n) {
                *(__global float2 *)to = (float2)(a, b);
            } else {
                if (column < n) to[0] = a;
                if (column + 1 < n) to[1] = b;
            }
        }
    }
}

#define WEIGHT_PARAMS(i) \
    __global uchar *y##i, ulong y_at##i, __global const uchar *w##i, ulong scales_at##i, uint n##i

/* Computes the products of up to three weights with one x. Work-groups: dimension 0 is tiles by
 * rows of x, 1 by columns of all weights, 2 parts of k. packed: what pack.cl wrote.
 * parts: sums of groups that share a tile; counts: a zero for each tile. */
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
matmul_mma(__global const uchar *packed, ulong factors_at, WEIGHT_PARAMS(0), WEIGHT_PARAMS(1),
           WEIGHT_PARAMS(2), uint m, uint k, uint n_splits, __global float4 *parts,
           __global uint *counts) {
    __local uchar stages[STAGES * STAGE_BYTES] __attribute__((aligned(128)));
    __local uint finished;
    EXCHANGE
    const uint lid = get_local_id(0), lane = lid % WARP, warp = lid / WARP;
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
    const uint all_steps = k / STEP;
    const uint first = all_steps * split / n_splits, end = all_steps * (split + 1) / n_splits;

    float c[TILES_M][TILES_N][4];
    UNROLL for (uint i = 0; i < TILES_M; i++) UNROLL for (uint j = 0; j < TILES_N; j++) {
        c[i][j][0] = c[i][j][1] = c[i][j][2] = c[i][j][3] = 0;
    }
    for (uint i = 0; i < STAGES - 1; i++) {
        if (first + i < end) {
            __local uchar *stage = stages + i * STAGE_BYTES;
            copy_x(stage, packed, row0, m, k, first + i);
            copy_w(stage, o, k, first + i);
#if W_BLOCKS
            store_row_factors(stage, load_row_factors(o, k, first + i));
#endif
        }
        END_COPIES;
    }
    uint now = 0, later = STAGES - 1;
    for (uint step = first; step < end; step++) {
        WAIT_COPIES(STAGES - 2);
        barrier(CLK_LOCAL_MEM_FENCE);
        __local uchar *next = stages + later * STAGE_BYTES;
        const bool is_next = step + STAGES - 1 < end;
#if W_BLOCKS
        row_factors f;
#endif
        if (is_next) {
            copy_x(next, packed, row0, m, k, step + STAGES - 1);
            copy_w(next, o, k, step + STAGES - 1);
#if W_BLOCKS
            f = load_row_factors(o, k, step + STAGES - 1);
#endif
        }
        END_COPIES;
        UNROLL for (uint b = 0; b < 2; b++) {
            multiply_block(c, stages + now * STAGE_BYTES, warp, lane, b EXCHANGED);
        }
#if W_BLOCKS
        if (is_next) store_row_factors(next, f);
#endif
        now = now + 1 == STAGES ? 0 : now + 1;
        later = later + 1 == STAGES ? 0 : later + 1;
    }
    if (n_splits > 1) {
        const uint tile = column_tile * get_num_groups(0) + get_group_id(0);
        __global float4 *sums = parts + (ulong)tile * n_splits * (TILES_M * TILES_N * GROUP);
        if (!join_splits(c, sums, counts + tile, split, n_splits, &finished)) return;
    }
    store_tile(c, y, (__global const float *)(packed + factors_at), row0, o.column0 + warp * WARP,
               m, o.n, lane);
}
