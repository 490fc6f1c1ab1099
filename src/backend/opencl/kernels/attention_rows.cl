/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of sequences of one row each, with a running softmax, for NVIDIA's warps. Other devices
 * emulate the same steps, slowly.
 *
 * A team of TEAM lanes has EACH adjacent slots at a time, and each lane 8 values of their keys and
 * values, for QUERIES query heads of a KV head. A team has a softmax of its own, so work-items only
 * exchange the sums of scores until all slots are read. Then the teams of a warp, the warps of a
 * work-group and the spans of a sequence are joined. */
#include "attention_params.cl"
#include "shared.h"
#include "types.cl"
#include "warp.cl"

#ifndef DIM
#define DIM 64    /* values of a head: a multiple of 16, at most 128 */
#define QUERIES 4 /* query heads of a work-group */
#define WARPS 4
#define K_TYPE TYPE_F16 /* F16, Q8_0 or Q4_0 */
#define V_TYPE TYPE_F16
#endif
#ifndef SCORES
#define SCORES 0 /* 1: writes scores of rows that want them, for sum_weights.cl */
#endif
#ifndef EACH
#define EACH (QUERIES <= 4 ? 8 : SCORES ? 2 : 4) /* slots of a team at a time */
#endif
#ifdef __NV_CL_C_VERSION
#define UNROLL _Pragma("unroll")
#define SKIP(condition) \
    if (condition) continue
#else
#define UNROLL _Pragma("nounroll") /* copies of barriers take long to compile */
#define SKIP(condition)            /* all work-items must reach each barrier */
#endif
enum { GROUP = WARP * WARPS, PIECES = DIM / 8 };
enum { TEAM = PIECES > 8 ? 16 : PIECES > 4 ? 8 : PIECES > 2 ? 4 : 2, TILE = WARP / TEAM * EACH };
/* Floats of a span: values [QUERIES][DIM], then pairs [QUERIES] of largest score and sum. */
enum { PART = QUERIES * (DIM + 2) };

/* ---- pieces of 8 values ---- */

/* Returns the index of the first four values of a piece. Its other four follow `next_four` values
 * later: a byte of Q4_0 has two values of a block, 16 apart. */
static inline uint first_four(const uint type, uint piece) {
    return type == TYPE_Q4_0 ? piece / 4 * QK + piece % 4 * 4 : piece * 8;
}
static inline uint next_four(const uint type) { return type == TYPE_Q4_0 ? 16 : 4; }

/* Loads a piece of a row as it is stored, for Q8_0 and Q4_0 with the scale in .z. */
static inline uint4 load_piece(const uint type, __global const uchar *row, uint piece) {
    if (type == TYPE_F16) return *(__global const uint4 *)(row + piece * 16);
    __global const ushort *block =
        (__global const ushort *)(row + piece / 4 * (type == TYPE_Q8_0 ? 34 : 18));
    if (type == TYPE_Q8_0) { return (uint4)(as_uint2(vload4(piece % 4, block + 1)), block[0], 0); }
    return (uint4)(as_uint(vload2(piece % 4, block + 1)), 0, block[0], 0);
}

static inline void convert_piece(float out[8], const uint type, uint4 piece) {
    if (type == TYPE_F16) {
        vstore4((float4)(float_of_half(piece.x), float_of_half(piece.x >> 16),
                         float_of_half(piece.y), float_of_half(piece.y >> 16)),
                0, out);
        vstore4((float4)(float_of_half(piece.z), float_of_half(piece.z >> 16),
                         float_of_half(piece.w), float_of_half(piece.w >> 16)),
                1, out);
        return;
    }
    const float scale = float_of_half(piece.z);
    float4 low, high;
    if (type == TYPE_Q8_0) {
        low = convert_float4(as_char4(piece.x));
        high = convert_float4(as_char4(piece.y));
    } else {
        low = convert_float4(as_uchar4(piece.x & 0x0f0f0f0f)) - 8.0f;
        high = convert_float4(as_uchar4(piece.x >> 4 & 0x0f0f0f0f)) - 8.0f;
    }
    vstore4(low * scale, 0, out);
    vstore4(high * scale, 1, out);
}

/* ---- softmax ---- */

/* Sums of a team: over its slots, of the values that a lane has. Scores are in units of log2(e). */
typedef struct running {
    float largest[QUERIES], total[QUERIES], values[QUERIES][8];
} running;

/* Returns the number from which exponents are counted: the largest score, if there is any. */
static inline float base_of(float largest) { return largest == -INFINITY ? 0.0f : largest; }

static inline float score_of(const float *query, const float *key, float cap,
                             __local float *scratch) {
    float sum = 0;
    UNROLL for (uint c = 0; c < 8; c++) sum = fma(query[c], key[c], sum);
    UNROLL for (uint mask = 1; mask < TEAM; mask *= 2) sum += from_lane(sum, mask, scratch);
    if (!SOFTCAP) return sum;
    return cap * LOG2_E * (1 - 2 / (1 + exp2(sum * (2 * LOG2_E / cap)))); /* tanh(sum / cap) */
}

/* Adds slots with these scores and values. */
static inline void add_slots(running *r, float scores[EACH][QUERIES], const uint4 *values) {
    UNROLL for (uint i = 0; i < QUERIES; i++) {
        float now = r->largest[i], sum = 0;
        UNROLL for (uint j = 0; j < EACH; j++) now = fmax(now, scores[j][i]);
        const float base = base_of(now), faded = exp2(r->largest[i] - base);
        UNROLL for (uint j = 0; j < EACH; j++) {
            scores[j][i] = exp2(scores[j][i] - base);
            sum += scores[j][i];
        }
        r->total[i] = fma(r->total[i], faded, sum);
        r->largest[i] = now;
        UNROLL for (uint c = 0; c < 8; c++) r->values[i][c] *= faded;
    }
    UNROLL for (uint j = 0; j < EACH; j++) {
        float v[8];
        convert_piece(v, V_TYPE, values[j]);
        UNROLL for (uint i = 0; i < QUERIES; i++) UNROLL for (uint c = 0; c < 8; c++) {
            r->values[i][c] = fma(scores[j][i], v[c], r->values[i][c]);
        }
    }
}

/* Joins the teams of a warp: each lane then has the sums of its values over all of them. */
static inline void join_teams(running *r, __local float *scratch) {
    UNROLL for (uint mask = TEAM; mask < WARP; mask *= 2)
        UNROLL for (uint i = 0; i < QUERIES; i++) {
        const float now = fmax(r->largest[i], from_lane(r->largest[i], mask, scratch));
        const float faded = exp2(r->largest[i] - base_of(now));
        r->largest[i] = now;
        r->total[i] *= faded;
        r->total[i] += from_lane(r->total[i], mask, scratch);
        UNROLL for (uint c = 0; c < 8; c++) {
            r->values[i][c] *= faded;
            r->values[i][c] += from_lane(r->values[i][c], mask, scratch);
        }
    }
}

/* Sets float2 `pair` and float `value` to those of n parts. pair_of, value_of: of part p. */
#define JOIN_PARTS(n, pair_of, value_of)                               \
    float2 pair = (float2)(-INFINITY, 0);                              \
    float value = 0;                                                   \
    for (uint p = 0; p < (n); p++) pair.x = fmax(pair.x, (pair_of).x); \
    const float base = base_of(pair.x);                                \
    _Pragma("unroll 8") for (uint p = 0; p < (n); p++) {               \
        const float faded = exp2((pair_of).x - base);                  \
        pair.y = fma((pair_of).y, faded, pair.y);                      \
        value = fma(value_of, faded, value);                           \
    }

/* ---- the kernel ---- */

/* Loads the lane's piece of query heads, times `factor`. Missing heads are copies of the last. */
static inline void load_queries(float out[QUERIES][8], __global const float *q, uint n, uint piece,
                                float factor) {
    UNROLL for (uint i = 0; i < QUERIES; i++) {
        __global const float *from = q + min(i, n - 1) * DIM + first_four(K_TYPE, piece);
        const bool exists = piece < PIECES;
        const float4 low = exists ? *(__global const float4 *)from : (float4)0;
        const float4 high =
            exists ? *(__global const float4 *)(from + next_four(K_TYPE)) : (float4)0;
        vstore4(low * factor, 0, out[i]);
        vstore4(high * factor, 1, out[i]);
    }
}

/* Stores the sums of a warp: values [QUERIES][DIM] and pairs [QUERIES]. */
static inline void store_warp(__local float *values, __local float2 *pairs, const running *r,
                              uint lane) {
    if (lane >= PIECES) return;
    for (uint i = 0; i < QUERIES; i++) {
        __local float *to = values + i * DIM + first_four(V_TYPE, lane);
        *(__local float4 *)to = vload4(0, r->values[i]);
        *(__local float4 *)(to + next_four(V_TYPE)) = vload4(1, r->values[i]);
        if (lane == 0) pairs[i] = (float2)(r->largest[i], r->total[i]);
    }
}

/* Rows of scores of a work-group's query heads; n 0: not wanted. */
typedef struct score_rows {
    __global float *first;
    uint n, stride;
} score_rows;

static inline __global float *score_row(score_rows r, uint i) {
    return r.first + (ulong)i * AG_CL_SCORES(r.stride);
}

/* Adds the slots of a tile at positions from seen.x to seen.y. A lane loads all that it needs
 * before it uses any of it. */
static inline void add_tile(running *r, float query[QUERIES][8], tile t, uint2 seen, float cap,
                            uint lane, __local float *scratch, score_rows to, uint slot0) {
    const uint piece = lane % TEAM, first = lane / TEAM * EACH;
    uint4 keys[EACH], values[EACH];
    float scores[EACH][QUERIES];
    bool hidden[EACH];
    UNROLL for (uint j = 0; j < EACH; j++) {
        const uint slot = first + j, position = t.positions[slot];
        hidden[j] = (slot >= t.n) | (position > seen.y) | (WINDOW & (position < seen.x));
        keys[j] = values[j] = (uint4)0;
        if (piece < PIECES) {
            keys[j] = load_piece(K_TYPE, t.keys + slot * row_bytes(K_TYPE, DIM), piece);
            values[j] = load_piece(V_TYPE, t.values + slot * row_bytes(V_TYPE, DIM), piece);
        }
    }
    UNROLL for (uint j = 0; j < EACH; j++) {
        float key[8];
        convert_piece(key, K_TYPE, keys[j]);
        if (hidden[j]) values[j] = (uint4)0; /* may be anything: 0 * Inf would be NaN */
        UNROLL for (uint i = 0; i < QUERIES; i++) {
            const float score = score_of(query[i], key, cap, scratch);
            scores[j][i] = hidden[j] ? -INFINITY : score;
            if (SCORES && i < to.n && piece == 0 && first + j < t.n)
                score_row(to, i)[slot0 + first + j] = scores[j][i];
        }
    }
    add_slots(r, scores, values);
}

/* The entry of the block of slot0, or the head's last one if there is none. */
#define ENTRY_OF_SLOT \
    (s.n_blocks ? ENTRY_AT(0, first_entry + min(slot0 / KV_BLOCK, s.n_blocks - 1)) : 0)

/* Attends to a span of a sequence. rows: ag_cl_span for each span, then slots [n_rows][heads], then
 * [n_rows] last visible positions, then with WINDOW the first ones, with SCORES where
 * a row's scores are: after scores_at floats of parts, in units of four, ~0: nowhere. The table of
 * blocks has those of each head of each sequence. out [n_rows][heads][group][DIM]. Work-groups of
 * GROUP: dimension 0 is spans of all sequences, 1 KV heads, 2 groups of QUERIES query heads of each
 * row. With several spans, the last work-group of a head to finish joins them; parts [spans of all
 * rows][heads][groups of queries][PART], and counts has 0 for each head of each row and group,
 * before and after.
 */
__kernel __attribute__((reqd_work_group_size(WARP * WARPS, 1, 1))) void
attend_rows(ARRAY(out), CONST_ARRAY(q), __global float *parts, volatile __global uint *counts,
            KV_TABLE_PARAMS, ulong v_at, ulong p_at, CONST_ARRAY(rows), uint n_rows, uint heads,
            uint group, float scale, float cap, ulong scores_at) {
    __local float joined[WARPS][QUERIES * DIM] __attribute__((aligned(16)));
    __local float2 pairs[WARPS][QUERIES];
    __local uint finished;
#ifdef __NV_CL_C_VERSION
    __local float *scratch = 0;
#else
    __local float scratch[GROUP];
#endif
    const uint lid = get_local_id(0), lane = lid % WARP, warp = lid / WARP;
    const ag_cl_span s = ((__global const ag_cl_span *)(rows + rows_at))[get_group_id(0)];
    const uint chunks = get_num_groups(2), chunk = get_group_id(2), row = s.row;
    const uint n_queries = min(group - chunk * QUERIES, (uint)QUERIES);
    const uint table_head = row * heads + get_group_id(1), unit = table_head * chunks + chunk;
    const uint first_entry = s.first_entry + get_group_id(1) * s.n_blocks;
    __global const uint *slots_of = UINTS(rows, rows_at + get_num_groups(0) * sizeof(ag_cl_span));
    __global const uint *until = slots_of + n_rows * heads, *from = until + n_rows;
    const uint slots = slots_of[table_head], n_spans = max((slots + s.slots - 1) / s.slots, 1u);
    const uint begin = s.index * s.slots, end = min(slots, begin + s.slots);
    const uint2 seen = (uint2)(WINDOW ? from[row] : 0, until[row]);
    const ulong values_at = ((ulong)table_head * group + chunk * QUERIES) * DIM;
    uint slot0 = begin + warp * TILE;
    ulong entry = ENTRY_OF_SLOT; /* does not wait for the number of slots */

    score_rows score_to = {0, 0, s.n_blocks * KV_BLOCK};
    if (SCORES && from[row] != ~0u) {
        const ulong before = (ulong)get_group_id(1) * group + chunk * QUERIES;
        score_to.first =
            parts + scores_at + from[row] * 4ul + before * AG_CL_SCORES(score_to.stride);
        score_to.n = n_queries;
    }

    float query[QUERIES][8];
    load_queries(query, CONST_FLOATS(q) + values_at, n_queries, lane % TEAM,
                 SOFTCAP ? scale : scale * LOG2_E);
    if (s.index >= n_spans) return;
    running r;
    UNROLL for (uint i = 0; i < QUERIES; i++) {
        r.largest[i] = -INFINITY;
        r.total[i] = 0;
        UNROLL for (uint c = 0; c < 8; c++) r.values[i][c] = 0;
    }
    for (uint step = begin; step < end;
         step += WARPS * TILE, slot0 += WARPS * TILE, entry = ENTRY_OF_SLOT) {
        SKIP(slot0 >= end);
        const uint at = slot0 % KV_BLOCK;
        __global const uchar *block = BLOCK_OF(entry);
        const tile t = {block + at * row_bytes(K_TYPE, DIM),
                        block + v_at + at * row_bytes(V_TYPE, DIM), UINTS(block, p_at) + at,
                        slot0 < end ? min(end - slot0, (uint)TILE) : 0};
        SKIP(WINDOW && t.positions[t.n - 1] < seen.x);
        add_tile(&r, query, t, seen, cap, lane, scratch, score_to, slot0);
    }
    join_teams(&r, scratch);
    store_warp(joined[warp], pairs[warp], &r, lane);
    barrier(CLK_LOCAL_MEM_FENCE);

    __global float *to = FLOATS(out) + values_at;
    const uint stride = heads * chunks * PART; /* between the spans of a head */
    const uint own = (get_group_id(1) * chunks + chunk) * PART;
    __global float *spans = parts + (ulong)s.first_part * stride + own;
    for (uint c = lid; c < n_queries * DIM; c += GROUP) {
        JOIN_PARTS(WARPS, pairs[p][c / DIM], joined[p][c])
        if (n_spans == 1) {
            if (SCORES && score_to.n && c % DIM == 0)
                vstore2(pair, 0, score_row(score_to, c / DIM) + score_to.stride);
            to[c] = value * (pair.y > 0 ? 1 / pair.y : pair.y);
        } else {
            __global float *part = spans + s.index * stride;
            part[c] = value;
            if (c % DIM == 0) vstore2(pair, c / DIM, part + QUERIES * DIM);
        }
    }
    if (n_spans == 1 || !is_last_group(counts + unit, n_spans, &finished)) return;
    for (uint c = lid; c < n_queries * DIM; c += GROUP) {
        volatile __global const float *of = spans + c;
        volatile __global const float *pair_of = spans + QUERIES * DIM + c / DIM * 2;
        JOIN_PARTS(n_spans, (float2)(pair_of[p * stride], pair_of[p * stride + 1]), of[p * stride])
        if (SCORES && score_to.n && c % DIM == 0)
            vstore2(pair, 0, score_row(score_to, c / DIM) + score_to.stride);
        to[c] = value * (pair.y > 0 ? 1 / pair.y : pair.y);
    }
}
