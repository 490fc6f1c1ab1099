/* SPDX-License-Identifier: Apache-2.0 */
/* Products of token.cl: y = W x for weights in planes (token_weights.cl) and x in blocks of 8 bits,
 * or in floats if W is in F16 or BF16.
 * A warp computes one or several rows at a time, in segments of SEG blocks. Weights do not depend
 * on x, so a warp loads its first batch before it waits for x, and the next batch before it
 * multiplies. */
#ifndef TOKEN_PRODUCT
#define TOKEN_PRODUCT

#include "token_weights.cl"

#ifndef MAX_K
#define MAX_K 256 /* columns of the widest weight */
#endif
#ifndef GELU
#define GELU 0 /* 1: GELU instead of SiLU */
#endif
#define LONG_BLOCKS (4 * SEG)
/* Blocks of x in local memory, rounded up to the widest batch. */
#define X_BLOCKS ((MAX_K / 32 + LONG_BLOCKS - 1) / LONG_BLOCKS * LONG_BLOCKS)
#define X_FOURS (X_BLOCKS * 4) /* even fours of x in floats */

typedef ag_cl_token_stage stage;

/* ---- x ---- */

#define BLOCK_LANES (WARP == 1 ? 1 : 8)
#define LANE_WORDS (8 / BLOCK_LANES)

/* Return whether a stage receives, or sends, floats in place of blocks. The first is a constant
 * before functions are expanded: else NVIDIA's compiler leaves loops rolled, 8 to 15 % slower. */
#define TAKES_FLOATS(types, st) (ALL_TYPES & FLOATS16 && is_of(FLOATS16, types, (st)->types[0]))
static inline bool sends_floats(__local const stage *st) {
    return (ROW_TYPES | LONG_TYPES) & FLOATS16 && st->sends_floats;
}

/* Receives values, multiplies them by the norm's weights if there is a norm, rounds them to blocks
 * if the weights are quantised, and sums their squares. */
static inline void take_values(input x, const uint types, __local const stage *st, uint tag,
                               uint item, volatile __global uint *aborted) {
    float square = 0;
    const uint sub = item % BLOCK_LANES * LANE_WORDS, n = st->k / 32, stride = LOCAL / BLOCK_LANES;
    const uint beside = item % WARP / BLOCK_LANES; /* index of the block in the warp */
    __local uint *words = (__local uint *)x.quants;
    const ulong in = st->in, norm = st->norm;
    /* All lanes of a warp must do the same number of rounds, since they shuffle. */
    for (uint b0 = item / BLOCK_LANES; b0 - beside < n; b0 += 2 * stride) {
        ulong2 p[2 * LANE_WORDS * 2]; /* packets of four values: two pairs */
        uint p_at[2 * LANE_WORDS * 2];
        float4 w[2][LANE_WORDS];
        UNROLL
        for (int u = 0; u < 2; u++) UNROLL
        for (int i = 0; i < LANE_WORDS; i++) {
            const uint at = min(b0 + u * stride, n - 1) * 32 + (sub + i) * 4;
            w[u][i] =
                norm || !(types & FLOATS16) ? as_float4(load_stream(norm + at * 4)) : (float4)(1);
            UNROLL
            for (uint j = 0; j < 2; j++) {
                const uint pair = (u * LANE_WORDS + i) * 2 + j;
                p_at[pair] = at + 2 * j;
                p[pair] = peek2(in, at + 2 * j);
            }
        }
        await_pairs(p, 2 * LANE_WORDS * 2, in, p_at, tag, aborted);
        UNROLL
        for (int u = 0; u < 2; u++) {
            const uint b = b0 + u * stride;
            float4 v[LANE_WORDS];
            float largest = 0;
            UNROLL
            for (int i = 0; i < LANE_WORDS; i++) {
                const uint pair = (u * LANE_WORDS + i) * 2;
                const ulong2 low = p[pair], high = p[pair + 1];
                const float4 t = (float4)(packet_float(low.x), packet_float(low.y),
                                          packet_float(high.x), packet_float(high.y));
                if (b < n) square += dot(t, t);
                v[i] = t * w[u][i];
                largest = fmax(largest, most4(v[i]));
                const uint four = b * 8 + sub + i;
                if (TAKES_FLOATS(types, st) && b < n)
                    floats_of(x)[four % 2 * X_FOURS + four / 2] = v[i];
            }
            if (TAKES_FLOATS(types, st)) continue;
            for (int m = BLOCK_LANES / 2; m > 0; m /= 2)
                largest = fmax(largest, shuffle_xor(largest, m));
            const float inverse = largest > 0 ? 127.0f / largest : 0.0f;
            int total = 0;
            UNROLL
            for (int i = 0; i < LANE_WORDS; i++) {
                const uint word = pack4(v[i], inverse);
                if (b < n) words[b * 8 + sub + i] = word;
                total = dot_bytes(word, 0x01010101u, total);
            }
            float sum = (float)total;
            for (int m = BLOCK_LANES / 2; m > 0; m /= 2) sum += shuffle_xor(sum, m);
            if (sub == 0 && b < n) x.scales[b] = block_scale(largest, sum);
        }
    }
    square = warp_sum(square);
    if (item % WARP == 0) x.squares[item / WARP] = square;
}

enum { PAIRS_AHEAD = 5 };

/* Receives x as blocks. */
static inline void take_blocks(input x, __local const stage *st, uint tag, uint item,
                               volatile __global uint *aborted) {
    const uint n = st->k / 32 * (BLOCK_PACKETS / 2);
    __local uint *words = (__local uint *)x.quants;
    const ulong in = st->in;
    for (uint first = item; first < n; first += PAIRS_AHEAD * LOCAL) {
        ulong2 p[PAIRS_AHEAD];
        uint at[PAIRS_AHEAD];
        UNROLL
        for (int j = 0; j < PAIRS_AHEAD; j++) {
            at[j] = min(first + j * LOCAL, n - 1) * 2;
            p[j] = peek2(in, at[j]);
        }
        await_pairs(p, PAIRS_AHEAD, in, at, tag, aborted);
        UNROLL
        for (int j = 0; j < PAIRS_AHEAD; j++) {
            const uint i = first + j * LOCAL;
            if (i >= n) break;
            const ulong2 v = p[j];
            const uint b = i / (BLOCK_PACKETS / 2), part = i % (BLOCK_PACKETS / 2);
            if (part == 4) {
                x.scales[b] = (float2)(packet_float(v.x), packet_float(v.y));
            } else {
                words[b * 8 + part * 2] = (uint)v.x;
                words[b * 8 + part * 2 + 1] = (uint)v.y;
            }
        }
    }
}

/* Returns the norm's factor from the sum of squares. */
static inline float norm_factor(input x, uint k, float eps) {
    float total = 0;
    for (uint w = 0; w < WARPS; w++) total += x.squares[w];
    return rsqrt(total / (float)k + eps);
}

/* ---- batches of weights ---- */

/* Kinds of products. ROWS: several rows of one weight at a time. SPLIT: rows of q, k and v. FLOATS:
 * logits. PAIRS: gate and up together, in chunks of 32 rows of a group. LONG: one row, four
 * segments at a time. */
enum { ROWS, SPLIT, FLOATS, PAIRS, LONG };
typedef struct cursor {
    uint row, seg;
    uint chunk, sub; /* PAIRS: the chunk and the part of its rows */
} cursor;

/* The order of rows; equal in all warps of a group except for first_row. */
typedef struct schedule {
    uint rows, k, n_blocks, n_seg, seg_step;
    uint step;  /* stride of the rows that a warp computes at a time */
    uint round; /* rows between batches */
    uint subs;  /* rounds of a chunk */
    uint first_row, n_groups, lane;
} schedule;

/* Returns whether loading two batches ahead is faster: measured on an H200. */
static inline bool two_ahead(const int kind, const uint types) {
    const uint wide = SET_OF(TYPE_Q6_K) | SET_OF(TYPE_Q8_0) | FLOATS16;
    if (kind == PAIRS) return !(types & (WITH_QH | wide));
    return kind == FLOATS && !(types & wide);
}

/* Returns the index of the weight of unit j of a batch, and its row. */
static inline uint unit_weight(const int kind, int j, __local const stage *st, const schedule *p,
                               const cursor *c, uint *row) {
    *row = min(kind == PAIRS  ? c->row + j / 2
               : kind == LONG ? c->row
                              : c->row + j * p->step,
               p->rows - 1);
    if (kind == PAIRS) return j % 2;
    return kind == SPLIT ? (*row >= st->end1) + (*row >= st->end2) : 0;
}

static inline void load_batch(batch *b, const int kind, const int units, const uint types,
                              __local const stage *st, const schedule *p, const cursor *c) {
    UNROLL
    for (int j = 0; j < units; j++) {
        uint row;
        const uint which = unit_weight(kind, j, st, p, c, &row);
        load_unit(b, j, types, st->types[which], &st->w[which], row, p->n_blocks,
                  kind == LONG ? c->seg + j : c->seg, kind != LONG, p->lane);
    }
}

/* Multiplies a batch. Each weight type, or segment, has its own access to x. */
static inline void multiply(float acc[MAX_UNITS], const batch *b, const int kind, const int units,
                            const uint types, __local const stage *st, const schedule *p,
                            const cursor *c, input x) {
    const bool shares_x = is_one(types) && kind != LONG;
    if (TAKES_FLOATS(types, st)) {
        const bool is_half = is_of(SET_OF(TYPE_F16), types, st->types[0]);
        UNROLL
        for (int i = 0; i < 8; i++) UNROLL
        for (int j = 0; j < units; j++) {
            const uint seg = kind == LONG ? c->seg + j : c->seg;
            const uint eight = seg * 4 * SEG + i * WARP + p->lane;
            acc[j] += dot_floats(b->levels[j * 8 + i], is_half, floats_of(x)[eight],
                                 floats_of(x)[X_FOURS + eight]);
        }
        return;
    }
    UNROLL
    for (int i = 0; i < 2; i++) {
        x_block v;
        if (shares_x) v = take_x(types, 0, x, c->seg * SEG, i, p->lane);
        UNROLL
        for (int j = 0; j < units; j++) {
            uint row, type = 0;
            if (!is_one(types)) type = st->types[unit_weight(kind, j, st, p, c, &row)];
            const uint seg = kind == LONG ? c->seg + j : c->seg;
            if (!shares_x) v = take_x(types, type, x, seg * SEG, i, p->lane);
            acc[j] += dot_unit(b, j, i, types, type, v, p->lane);
        }
    }
}

/* Advances to the next batch. Returns true when all rows are done. */
static inline bool advance(cursor *c, const int kind, const schedule *p) {
    c->seg += p->seg_step;
    if (c->seg < p->n_seg) return false;
    c->seg = 0;
    if (kind != PAIRS) {
        c->row += p->round;
        return true;
    }
    if (++c->sub == p->subs) {
        c->sub = 0;
        c->chunk += p->n_groups;
    }
    c->row = c->chunk * 32 + c->sub * p->round + p->first_row;
    return true;
}

/* ---- results ---- */

/* The largest logit of a warp, and the first id whose logit is NaN or +Inf. */
typedef struct found {
    float largest;
    uint bad;
} found;

static inline void find_maximum(found *f, float y, uint row) {
    if (isnan(y) || y == INFINITY) f->bad = min(f->bad, row);
    else f->largest = fmax(f->largest, y);
}

/* Finishes rows of gate and up. gated [2][32]: the current chunk, and the last one, maybe still
 * read. */
static inline void finish_pairs(const int units, const float acc[MAX_UNITS], float factor,
                                __local const stage *st, const schedule *p, const cursor *c,
                                __local float *gated, uint tag, uint item) {
    __local float *chunk = gated + (c->chunk / p->n_groups & 1) * 32;
    if (p->lane == 0) UNROLL
    for (int j = 0; j < units / 2; j++) {
        const float y = acc[j * 2] * factor;
        /* GELU in its tanh form is also a sigmoid. */
        const float u = GELU ? 1.59576912f * (y + 0.044715f * y * y * y) : y;
        const float sigmoid = 1.0f / (1.0f + native_exp2(-1.44269504f * u));
        chunk[c->sub * p->round + p->first_row + j] = y * sigmoid * (acc[j * 2 + 1] * factor);
    }
    if (c->sub + 1 < p->subs) return;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (c->chunk * 32 < p->rows)
        send_blocks(chunk, 1, st->out, c->chunk, tag, item, sends_floats(st));
}

static inline void finish_rows(const int kind, const int units, const float acc[MAX_UNITS],
                               float factor, __local const stage *st, const schedule *p,
                               const cursor *c, found *f, uint tag) {
    if (p->lane) return;
    UNROLL
    for (int j = 0; j < (kind == LONG ? 1 : units); j++) {
        const uint row = c->row + j * p->step;
        if (row >= p->rows) break;
        float y = acc[j] * factor;
        if (kind == FLOATS) {
            ((__global float *)st->out)[row] = y;
            find_maximum(f, y, row);
            continue;
        }
        /* Only this warp writes this row of the stream. */
        if (st->type == AG_CL_ADDED) {
            y += packet_float(((volatile __global ulong *)st->out)[row]);
            if (st->extra[0]) y += ((__global const float *)st->extra[0])[row];
        }
        put(st->out, row, as_uint(y), tag);
    }
}

static inline void finish(const int kind, const int units, float acc[MAX_UNITS], float factor,
                          __local const stage *st, const schedule *p, const cursor *c,
                          __local float *gated, found *f, uint tag, uint item) {
    if (kind == LONG) acc[0] += acc[1] + acc[2] + acc[3];
    UNROLL
    for (int m = WARP / 2; m > 0; m /= 2) UNROLL
    for (int j = 0; j < (kind == LONG ? 1 : units); j++) acc[j] += shuffle_xor(acc[j], m);
    if (kind == PAIRS) finish_pairs(units, acc, factor, st, p, c, gated, tag, item);
    else finish_rows(kind, units, acc, factor, st, p, c, f, tag);
    acc[0] = acc[1] = acc[2] = acc[3] = 0;
}

/* ---- a stage ---- */

/* Computes a stage's product. kind, max_units and types are constants, so that each call is
 * specialised. All warps of a group do the same number of rounds, since there are barriers inside.
 */
static inline void product(const int kind, const int max_units, const uint types,
                           __local const stage *st, input x, __local float *gated, found *f,
                           uint in_tag, uint out_tag, float eps, uint group, uint n_groups,
                           uint item, volatile __global uint *aborted) {
    const int units = types & FLOATS16 ? min(max_units, MAX_UNITS / 2) : max_units;
    const uint warp = item / WARP, a_warp = kind == PAIRS ? units / 2 : kind == LONG ? 1 : units;
    schedule p;
    p.rows = st->rows;
    p.k = st->k;
    p.n_blocks = p.k / 32;
    p.n_seg = (p.n_blocks + SEG - 1) / SEG;
    p.seg_step = kind == LONG ? units : 1;
    p.step = n_groups * WARPS;
    p.round = kind == PAIRS ? WARPS * a_warp : p.step * a_warp;
    p.subs = kind == PAIRS ? 32 / p.round : 1;
    p.first_row = kind == PAIRS ? warp * a_warp : warp * n_groups + group;
    p.n_groups = n_groups;
    p.lane = item % WARP;
    const uint per_row = (p.n_seg + p.seg_step - 1) / p.seg_step;
    const uint rounds = kind == PAIRS ? (p.rows / 32 + n_groups - 1) / n_groups * p.subs
                                      : (p.rows + p.round - 1) / p.round;
    cursor next = {kind == PAIRS ? group * 32 + p.first_row : p.first_row, 0, group, 0}, now = next;
    const uint ahead = WARP > 1 && two_ahead(kind, types) ? 2 : 1; /* batches on their way */
    batch first, second;
    load_batch(&first, kind, units, types, st, &p, &next);
    uint left = rounds * per_row;
    if (ahead > 1 && left > 1) {
        advance(&next, kind, &p);
        load_batch(&second, kind, units, types, st, &p, &next);
    }
    if (st->norm || TAKES_FLOATS(types, st)) take_values(x, types, st, in_tag, item, aborted);
    else take_blocks(x, st, in_tag, item, aborted);
    const uint end = per_row * p.seg_step * SEG; /* blocks with zeros behind the row */
    if (TAKES_FLOATS(types, st)) {
        for (uint i = p.n_blocks * 8 + item; i < end * 8; i += LOCAL)
            floats_of(x)[i % 2 * X_FOURS + i / 2] = (float4)(0);
    } else {
        for (uint b = p.n_blocks + item; b < end; b += LOCAL) x.scales[b] = (float2)(0, 0);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const float factor = st->norm ? norm_factor(x, p.k, eps) : 1.0f;
    float acc[MAX_UNITS] = {0, 0, 0, 0};
#define TURN(b)                                                                     \
    multiply(acc, &b, kind, units, types, st, &p, &now, x);                         \
    if (left > ahead) {                                                             \
        advance(&next, kind, &p);                                                   \
        load_batch(&b, kind, units, types, st, &p, &next);                          \
    }                                                                               \
    {                                                                               \
        const cursor at = now;                                                      \
        if (advance(&now, kind, &p))                                                \
            finish(kind, units, acc, factor, st, &p, &at, gated, f, out_tag, item); \
    }
    for (; left > 0; left--) {
        TURN(first)
        if (ahead > 1) {
            if (--left == 0) break;
            TURN(second)
        }
    }
#undef TURN
}

#endif
