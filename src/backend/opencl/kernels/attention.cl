/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over a cache in its own types, one KV head at a time, with a running softmax.
 *
 * A query is one head of one row, with index row * group + g among the queries of a KV head. Slots
 * are in order of position, so a query attends to a contiguous range: up to its own position, and
 * with WINDOW from its row's `from` on. The slots of a sequence are divided into spans. `attend`
 * writes for each query and span the largest score, the sum of exp(score - largest) and the
 * weighted values; `merge` joins the spans. */
#include "attention_params.cl"
#include "kv_load.cl"
#include "reduce.cl"

#ifndef QUERIES
#define QUERIES 4 /* queries of a work-group, which share reads of the cache; a multiple of 4 */
#endif
#ifndef MANY
#define MANY 0 /* 1: each row is of a sequence of its own, with its own blocks and slots */
#endif
#ifndef SINKS
#define SINKS 0 /* 1: a logit for each query head joins the softmax */
#endif
#if SINKS
#define SINK_PARAMS , CONST_ARRAY(sinks), uint query_heads
#define SINK_OF(query) CONST_FLOATS(sinks)[(query) % query_heads]
#else
#define SINK_PARAMS
#define SINK_OF(query) (-INFINITY)
#endif
#define FOURS (QUERIES / 4)
enum { MOST_DIM = 256 };

/* Types of the cache and size of a head: arguments, or known at compile time. Several loads of a
 * loop are then in flight. */
#ifdef DIM
#define IN_FLIGHT _Pragma("unroll 8")
#else
#define K_TYPE k_type
#define V_TYPE v_type
#define DIM dim
#define IN_FLIGHT
#endif

/* Local memory of a work-group. */
typedef struct queries {
    __local float4 *q;       /* [dim][QUERIES] */
    __local float4 *weights; /* [slot][QUERIES] of a tile: scores, then their exponentials */
    __local float4 *joined;  /* [WG] */
    __local float *largest, *total, *faded; /* [QUERIES] */
    __local uint *until, *from; /* [QUERIES] last visible position + 1 (0: no such query); first
                                 * visible position */
} queries;

static inline void begin_queries(queries d, __global const uint *until, __global const uint *from,
                                 uint query0, uint n_queries, uint group) {
    for (uint i = get_local_id(0); i < QUERIES; i += WG) {
        const uint query = query0 + i;
        d.largest[i] = -INFINITY;
        d.total[i] = 0;
        d.until[i] = query < n_queries ? until[query / group] + 1 : 0;
        d.from[i] = WINDOW && query < n_queries ? from[query / group] : 0;
    }
}

/* Loads queries times `scale`, by component. Missing queries are copies of the last one. */
static inline void load_queries(queries d, __global const float *q, uint head, uint heads,
                                uint query0, uint n_queries, uint group, uint dim, float scale) {
    const uint padded = (dim + 3) / 4 * 4;
    for (uint i = get_local_id(0); i < QUERIES * padded; i += WG) {
        const uint query = min(query0 + i / padded, n_queries - 1), at = i % padded;
        const ulong row = ((ulong)(query / group) * heads + head) * group + query % group;
        ((__local float *)d.q)[at * QUERIES + i / padded] =
            at < dim ? q[row * dim + at] * scale : 0.0f;
    }
}

/* Computes the scores of a tile's slots; -INFINITY for slots that a query does not attend to. */
static inline void score_slots(queries d, tile t, uint k_type, uint dim, float cap) {
    const ulong row = row_bytes(k_type, dim);
    __local float *weights = (__local float *)d.weights;
    for (uint s = get_local_id(0); s < t.n; s += WG) {
        float4 scores[FOURS];
#pragma unroll
        for (uint i = 0; i < FOURS; i++) scores[i] = 0;
        IN_FLIGHT for (uint c = 0; c < (dim + 3) / 4; c++) {
            const float4 key = load4(k_type, t.keys + s * row, 4 * c, dim);
            __local const float4 *with = d.q + 4 * c * FOURS;
#pragma unroll
            for (uint i = 0; i < FOURS; i++) {
                scores[i] = fma((float4)key.x, with[i], scores[i]);
                scores[i] = fma((float4)key.y, with[FOURS + i], scores[i]);
                scores[i] = fma((float4)key.z, with[2 * FOURS + i], scores[i]);
                scores[i] = fma((float4)key.w, with[3 * FOURS + i], scores[i]);
            }
        }
#pragma unroll
        for (uint i = 0; i < FOURS; i++) {
            d.weights[s * FOURS + i] = SOFTCAP ? cap * tanh(scores[i] / cap) : scores[i];
        }
        const uint position = t.positions[s];
        for (uint i = 0; i < QUERIES; i++) {
            bool hidden = position >= d.until[i];
            if (WINDOW) hidden |= position < d.from[i];
            if (hidden) weights[s * QUERIES + i] = -INFINITY;
        }
    }
}

/* Does a step of the running softmax, with WG / QUERIES work-items for each query. */
static inline void softmax_step(queries d, uint n) {
    const uint lid = get_local_id(0), mine = lid % QUERIES, step = WG / QUERIES;
    __local float *weights = (__local float *)d.weights, *joined = (__local float *)d.joined;
    float max_score = -INFINITY;
    for (uint s = lid / QUERIES; s < n; s += step)
        max_score = fmax(max_score, weights[s * QUERIES + mine]);
    joined[lid] = max_score;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = 0; i < step; i++) max_score = fmax(max_score, joined[i * QUERIES + mine]);
    const float before = d.largest[mine], now = fmax(before, max_score);
    const float base = now == -INFINITY ? 0.0f : now;
    barrier(CLK_LOCAL_MEM_FENCE);
    float sum = 0;
    for (uint s = lid / QUERIES; s < n; s += step) {
        const float e = exp(weights[s * QUERIES + mine] - base);
        weights[s * QUERIES + mine] = e;
        sum += e;
    }
    joined[lid] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lid < QUERIES) {
        sum = 0;
        for (uint i = 0; i < step; i++) sum += joined[i * QUERIES + mine];
        d.faded[mine] = exp(before - base);
        d.total[mine] = fma(d.total[mine], d.faded[mine], sum);
        d.largest[mine] = now;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* Returns whether any query attends to the slot. Others may hold anything: 0 * Inf would be NaN. */
static inline bool is_seen(queries d, uint s) {
    if (!WINDOW) return true;
    float4 all = 0;
#pragma unroll
    for (uint i = 0; i < FOURS; i++) all = fmax(all, d.weights[s * FOURS + i]);
    return any(all != 0.0f);
}

/* Adds the values of a tile. A work-item sums four components over every `parts`-th slot. */
static inline void add_values(float4 sums[QUERIES], queries d, tile t, uint v_type, uint dim) {
    const uint quads = (dim + 3) / 4, parts = WG / quads, quad = get_local_id(0) % quads;
    const ulong row = row_bytes(v_type, dim);
#pragma unroll
    for (uint i = 0; i < QUERIES; i++) sums[i] *= d.faded[i];
    if (get_local_id(0) / quads >= parts) return;
    IN_FLIGHT for (uint s = get_local_id(0) / quads; s < t.n; s += parts) {
        if (!is_seen(d, s)) continue;
        const float4 v = load4(v_type, t.values + s * row, quad * 4, dim);
#pragma unroll
        for (uint i = 0; i < FOURS; i++) {
            const float4 w = d.weights[s * FOURS + i];
            sums[4 * i] = fma((float4)w.x, v, sums[4 * i]);
            sums[4 * i + 1] = fma((float4)w.y, v, sums[4 * i + 1]);
            sums[4 * i + 2] = fma((float4)w.z, v, sums[4 * i + 2]);
            sums[4 * i + 3] = fma((float4)w.w, v, sums[4 * i + 3]);
        }
    }
}

/* Adds the logit of a sink to a largest score and a sum, *largest and *total. Returns the factor of
 * the values. */
static inline float add_sink(float sink, float *largest, float *total) {
    const float max_score = fmax(*largest, sink), factor = exp(*largest - max_score);
    *total = fma(*total, factor, exp(sink - max_score));
    *largest = max_score;
    return factor;
}

/* Joins the parts of a query's values and writes them and the statistics to row `to`. */
static inline void leave_query(__global float *out, __global float *stats, queries d, uint i,
                               float4 sum, ulong to, uint dim, bool alone, bool exists,
                               float sink) {
    const uint lid = get_local_id(0), quads = (dim + 3) / 4, parts = WG / quads;
    __local float *joined = (__local float *)d.joined;
    d.joined[lid] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    float max_score = d.largest[i], total = d.total[i];
    const float shrunk = SINKS && alone ? add_sink(sink, &max_score, &total) : 1.0f;
    const float factor = !alone ? 1.0f : total > 0 ? shrunk / total : total;
    for (uint c = lid; c < dim && exists; c += WG) {
        float all = 0;
        for (uint p = 0; p < parts; p++) all += joined[(p * quads + c / 4) * 4 + c % 4];
        out[to * dim + c] = all * factor;
    }
    if (lid == 0 && exists) {
        stats[2 * to] = max_score;
        stats[2 * to + 1] = total;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* Attends to n_spans spans of `span` slots.
 *   stats  [rows * heads * group][n_spans] pairs: largest score, sum
 *   out    [rows * heads * group][n_spans][dim]
 * With n_spans 1 the values are divided by the sum. Work-groups of WG: dimension 0 is spans, 1 KV
 * heads, 2 groups of QUERIES queries, with MANY those of each row. The table of blocks and slots_of
 * then have rows for the heads of each sequence. WG * 4 is at least dim rounded up to 4. */
WG_KERNEL attend(ARRAY(out), ARRAY(stats), CONST_ARRAY(q), CACHE_PARAMS, uint k_type, uint v_type,
                 ulong v_at, float scale, uint span, uint n_spans SINK_PARAMS) {
    __local float4 of_queries[MOST_DIM * FOURS], weights[KV_BLOCK * FOURS], joined[WG];
    __local float largest[QUERIES], total[QUERIES], faded[QUERIES];
    __local uint last[QUERIES], first[QUERIES];
    const queries d = {of_queries, weights, joined, largest, total, faded, last, first};
    const uint head = get_group_id(1), chunks = MANY ? (group + QUERIES - 1) / QUERIES : 1;
    const uint row0 = MANY ? get_group_id(2) / chunks : 0, table_head = row0 * heads + head;
    const uint query0 = (MANY ? get_group_id(2) % chunks : get_group_id(2)) * QUERIES;
    const uint n_queries = MANY ? group : n_rows * group;
    const uint slots = UINTS(slots_of, slots_at)[table_head];
    const uint begin = get_group_id(0) * span, end = min(slots, begin + span);
    const ulong before = (ulong)row0 * heads * group; /* queries of earlier rows */

    begin_queries(d, CONST_UINTS(until) + row0, CONST_UINTS(from) + row0, query0, n_queries, group);
    load_queries(d, CONST_FLOATS(q) + before * dim, head, heads, query0, n_queries, group, DIM,
                 scale);
    barrier(CLK_LOCAL_MEM_FENCE);
    uint visible_until = 0; /* position + 1 of the latest query */
    for (uint i = 0; i < QUERIES; i++) visible_until = max(visible_until, last[i]);
    const uint visible_from = first[0]; /* first visible position of the earliest row */

    float4 sums[QUERIES];
#pragma unroll
    for (uint i = 0; i < QUERIES; i++) sums[i] = 0;
    for (uint slot0 = begin; slot0 < end; slot0 += KV_BLOCK) {
        __global const uchar *block = BLOCK_AT(table_head, slot0 / KV_BLOCK);
        const tile t = {block, block + v_at, UINTS(block, p_at), min(end - slot0, (uint)KV_BLOCK)};
        if (t.positions[0] >= visible_until) break;
        if (WINDOW && t.positions[t.n - 1] < visible_from) continue;
        score_slots(d, t, K_TYPE, DIM, cap);
        barrier(CLK_LOCAL_MEM_FENCE);
        softmax_step(d, t.n);
        add_values(sums, d, t, V_TYPE, DIM);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
/* Drivers for processors take seconds to compile each copy of the barriers. */
#ifdef PROCESSOR
#pragma nounroll
#else
#pragma unroll
#endif
    for (uint i = 0; i < QUERIES; i++) {
        const uint query = query0 + i;
        const ulong row = before + ((ulong)(query / group) * heads + head) * group + query % group;
        leave_query(FLOATS(out), FLOATS(stats), d, i, sums[i], row * n_spans + get_group_id(0), DIM,
                    n_spans == 1, query < n_queries, SINK_OF(row));
    }
}

/* Joins the spans of each query to out[query], and writes its statistics to `joined_stats`. A
 * work-group of WG for each query. */
WG_KERNEL merge(ARRAY(out), ARRAY(joined_stats), CONST_ARRAY(stats), CONST_ARRAY(values),
                uint n_spans, uint dim SINK_PARAMS) {
    __local float scratch[WG];
    const size_t query = get_group_id(0);
    __global const float *pairs = CONST_FLOATS(stats) + query * n_spans * 2;
    __global const float *from = CONST_FLOATS(values) + query * n_spans * dim;
    float max_score = -INFINITY, sum = 0;
    for (uint i = get_local_id(0); i < n_spans; i += WG) max_score = fmax(max_score, pairs[2 * i]);
    max_score = group_max(max_score, scratch);
    const float base = max_score == -INFINITY ? 0.0f : max_score;
    for (uint i = get_local_id(0); i < n_spans; i += WG) {
        sum += pairs[2 * i + 1] * exp(pairs[2 * i] - base);
    }
    sum = group_sum(sum, scratch);
    const float shrunk = SINKS ? add_sink(SINK_OF(query), &max_score, &sum) : 1.0f;
    const float factor = sum > 0 ? shrunk / sum : sum;
    for (uint c = get_local_id(0); c < dim; c += WG) {
        float v = 0;
        for (uint i = 0; i < n_spans; i++) v = fma(from[i * dim + c], exp(pairs[2 * i] - base), v);
        FLOATS(out)[query * dim + c] = v * factor;
    }
    if (get_local_id(0) == 0) {
        __global float *pair = FLOATS(joined_stats) + 2 * query;
        pair[0] = max_score;
        pair[1] = sum;
    }
}

/* sums[slot * slot_step + head * head_step] = the slot's weights from queries of rows
 * [first_row, n_rows), averaged over the group and summed over the rows; with `use_max` their
 * maximum. `add`: includes the present value of the first scored[head] slots. stats: joined
 * statistics of queries. A work-item for each slot: dimension 0 is slots, 1 KV heads. */
WG_KERNEL attention_scores(ARRAY(sums), ulong slot_step, ulong head_step, uint add, uint use_max,
                           CONST_ARRAY(scored), CONST_ARRAY(stats), CONST_ARRAY(q), CACHE_PARAMS,
                           uint k_type, float scale, uint first_row) {
    const uint slot = get_global_id(0), head = get_group_id(1), place = slot % KV_BLOCK;
    if (slot >= UINTS(slots_of, slots_at)[head]) return;
    __global const uchar *block = BLOCK_AT(head, slot / KV_BLOCK);
    __global const uchar *key = block + place * row_bytes(k_type, dim);
    const uint position = UINTS(block, p_at)[place];
    float sum = 0, largest = 0;
    for (uint row = first_row; row < n_rows; row++) {
        if (position > CONST_UINTS(until)[row]) continue;
        if (WINDOW && position < CONST_UINTS(from)[row]) continue;
        float mean = 0;
        for (uint g = 0; g < group; g++) {
            const ulong query = ((ulong)row * heads + head) * group + g;
            __global const float *with = CONST_FLOATS(q) + query * dim;
            float score = 0;
            for (uint c = 0; c < dim; c += 4) {
                const float4 v = load4(k_type, key, c, dim);
                score = fma(v.x, with[c] * scale, score);
                if (c + 1 < dim) score = fma(v.y, with[c + 1] * scale, score);
                if (c + 2 < dim) score = fma(v.z, with[c + 2] * scale, score);
                if (c + 3 < dim) score = fma(v.w, with[c + 3] * scale, score);
            }
            __global const float *pair = CONST_FLOATS(stats) + 2 * query;
            const float capped = SOFTCAP ? cap * tanh(score / cap) : score;
            const float weight = exp(capped - pair[0]) / pair[1];
            mean += weight;
            largest = fmax(largest, weight);
        }
        sum += mean / (float)group;
    }
    __global float *to = FLOATS(sums) + slot * slot_step + head * head_step;
    const bool has_sum = add && slot < CONST_UINTS(scored)[head];
    if (use_max) *to = has_sum ? fmax(*to, largest) : largest;
    else *to = has_sum ? *to + sum : sum;
}
