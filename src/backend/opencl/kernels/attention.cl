/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over a cache in its own types, one KV head at a time, with a running softmax.
 *
 * A query is a head of a row: number row * group + g among those that share the KV head. Slots are
 * in order of position, so a query sees a prefix of them. The slots of a sequence are cut into
 * spans; attend leaves for each query and span the largest score, the sum of exp(score - largest)
 * and the values weighted with it, and merge joins them. */
#include "kv_load.cl"
#include "reduce.cl"

#ifndef QUERIES
#define QUERIES 4 /* that a work-group computes together, reading the cache once; a multiple of 4 */
#endif
#define FOURS (QUERIES / 4)
enum { KV_BLOCK = 128, MOST_DIM = 256 };

/* Blocks [block0, block0 + n_blocks) of the cache follow one another, `stride` bytes apart, from
 * cache_at on. */
#define CACHE_PARAMS                                                                                \
    __global const uchar *cache, ulong cache_at, ulong stride, ulong p_at, uint block0,             \
        uint n_blocks, __global const uchar *held, ulong held_at, uint heads, uint group, uint dim, \
        uint n_rows, __global const uchar *positions, ulong positions_at

/* Spans of `span` slots, the first of which begins with block0: span number span0 and on of n_spans.
 *   stats   [rows * heads * group][n_spans] pairs: largest score, sum
 *   out     [rows * heads * group][n_spans][dim]
 * With n_spans 1 the values are divided by the sum already.
 * Work-groups of WG: dimension 0 the spans, 1 the KV heads, 2 QUERIES queries each. WG * 4 is at
 * least dim rounded up to 4. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
attend(__global uchar *out, ulong out_at, __global uchar *stats, ulong stats_at,
       __global const uchar *q, ulong q_at, CACHE_PARAMS, uint k_type, uint v_type, ulong v_at,
       float scale, uint span, uint span0, uint n_spans) {
    __local float4 qs[MOST_DIM * FOURS];       /* [dim][QUERIES] */
    __local float4 weights4[KV_BLOCK * FOURS]; /* [slot][QUERIES] */
    __local float4 joined4[WG];
    __local float largest[QUERIES], total[QUERIES], faded[QUERIES];
    __local uint last[QUERIES]; /* position + 1 of a query; 0: there is none */
    __local float *weights = (__local float *)weights4, *joined = (__local float *)joined4;
    const uint lid = get_local_id(0), head = get_group_id(1);
    const uint query0 = get_group_id(2) * QUERIES, n_queries = n_rows * group;
    const uint slots = ((__global const uint *)(held + held_at))[head];
    const uint begin = block0 * KV_BLOCK + get_group_id(0) * span;
    const uint end = min(min(slots, begin + span), (block0 + n_blocks) * KV_BLOCK);
    const ulong k_row = row_bytes(k_type, dim), v_row = row_bytes(v_type, dim);
    const uint quads = (dim + 3) / 4;

    for (uint i = lid; i < QUERIES; i += WG) {
        const uint query = query0 + i;
        largest[i] = -INFINITY;
        total[i] = 0;
        last[i] = query < n_queries
                      ? ((__global const uint *)(positions + positions_at))[query / group] + 1
                      : 0;
    }
    for (uint i = lid; i < QUERIES * quads * 4; i += WG) {
        const uint query = min(query0 + i / (quads * 4), n_queries - 1), at = i % (quads * 4);
        const ulong from = ((ulong)(query / group) * heads + head) * group + query % group;
        __global const float *values = (__global const float *)(q + q_at) + from * dim;
        ((__local float *)qs)[at * QUERIES + i / (quads * 4)] = at < dim ? values[at] * scale : 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    uint seen_until = 0; /* the latest query's position + 1: nothing later matters */
    for (uint i = 0; i < QUERIES; i++) seen_until = max(seen_until, last[i]);

    /* A work-item sums four components of the values over every `parts`-th slot of a tile. */
    const uint parts = WG / quads, part = lid / quads, quad = lid % quads;
    float4 sums[QUERIES];
#pragma unroll
    for (uint i = 0; i < QUERIES; i++) sums[i] = 0;

    for (uint slot0 = begin; slot0 < end; slot0 += KV_BLOCK) {
        __global const uchar *block = cache + cache_at + (slot0 / KV_BLOCK - block0) * stride;
        __global const uchar *keys = block + (ulong)head * KV_BLOCK * k_row;
        __global const uchar *values = block + v_at + (ulong)head * KV_BLOCK * v_row;
        __global const uint *at = (__global const uint *)(block + p_at) + (ulong)head * KV_BLOCK;
        const uint n = min(end - slot0, (uint)KV_BLOCK);
        if (at[0] >= seen_until) break;

        for (uint s = lid; s < n; s += WG) {
            float4 scores[FOURS];
#pragma unroll
            for (uint i = 0; i < FOURS; i++) scores[i] = 0;
            for (uint c = 0; c < quads; c++) {
                const float4 key = load4(k_type, keys + s * k_row, 4 * c, dim);
                __local const float4 *with = qs + 4 * c * FOURS;
#pragma unroll
                for (uint i = 0; i < FOURS; i++) {
                    scores[i] = fma((float4)key.x, with[i], scores[i]);
                    scores[i] = fma((float4)key.y, with[FOURS + i], scores[i]);
                    scores[i] = fma((float4)key.z, with[2 * FOURS + i], scores[i]);
                    scores[i] = fma((float4)key.w, with[3 * FOURS + i], scores[i]);
                }
            }
#pragma unroll
            for (uint i = 0; i < FOURS; i++) weights4[s * FOURS + i] = scores[i];
            for (uint i = 0; i < QUERIES; i++) {
                if (at[s] >= last[i]) weights[s * QUERIES + i] = -INFINITY;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);

        /* The tile's largest score of each query, by WG / QUERIES work-items each. */
        const uint mine = lid % QUERIES, step = WG / QUERIES;
        float most = -INFINITY;
        for (uint s = lid / QUERIES; s < n; s += step) most = fmax(most, weights[s * QUERIES + mine]);
        joined[lid] = most;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint i = 0; i < step; i++) most = fmax(most, joined[i * QUERIES + mine]);
        const float before = largest[mine], now = fmax(before, most);
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
            faded[mine] = exp(before - base);
            total[mine] = fma(total[mine], faded[mine], sum);
            largest[mine] = now;
        }
        barrier(CLK_LOCAL_MEM_FENCE);

#pragma unroll
        for (uint i = 0; i < QUERIES; i++) sums[i] *= faded[i];
        if (part < parts) {
            for (uint s = part; s < n; s += parts) {
                const float4 v = load4(v_type, values + s * v_row, quad * 4, dim);
#pragma unroll
                for (uint i = 0; i < FOURS; i++) {
                    const float4 w = weights4[s * FOURS + i];
                    sums[4 * i] = fma((float4)w.x, v, sums[4 * i]);
                    sums[4 * i + 1] = fma((float4)w.y, v, sums[4 * i + 1]);
                    sums[4 * i + 2] = fma((float4)w.z, v, sums[4 * i + 2]);
                    sums[4 * i + 3] = fma((float4)w.w, v, sums[4 * i + 3]);
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }

    /* Parts of the tiles are joined, one query after the other. */
#pragma unroll
    for (uint i = 0; i < QUERIES; i++) {
        const uint query = query0 + i;
        joined4[lid] = sums[i];
        barrier(CLK_LOCAL_MEM_FENCE);
        const ulong head_query = ((ulong)(query / group) * heads + head) * group + query % group;
        const ulong to = head_query * n_spans + span0 + get_group_id(0);
        const float factor = n_spans > 1 ? 1.0f : total[i] > 0 ? 1.0f / total[i] : total[i];
        for (uint c = lid; c < dim && query < n_queries; c += WG) {
            float sum = 0;
            for (uint p = 0; p < parts; p++) sum += joined[(p * quads + c / 4) * 4 + c % 4];
            ((__global float *)(out + out_at))[to * dim + c] = sum * factor;
        }
        if (lid == 0 && query < n_queries) {
            __global float *pair = (__global float *)(stats + stats_at) + 2 * to;
            pair[0] = largest[i];
            pair[1] = total[i];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

/* out[query] from the spans of each query; its stats, as of one span, go to `joined_stats`.
 * A work-group of WG for each query. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
merge(__global uchar *out, ulong out_at, __global uchar *joined_stats, ulong joined_at,
      __global const uchar *stats, ulong stats_at, __global const uchar *values, ulong values_at,
      uint n_spans, uint dim) {
    __local float scratch[WG];
    const size_t query = get_group_id(0);
    __global const float *pairs = (__global const float *)(stats + stats_at) + query * n_spans * 2;
    __global const float *from = (__global const float *)(values + values_at) + query * n_spans * dim;
    float most = -INFINITY, sum = 0;
    for (uint i = get_local_id(0); i < n_spans; i += WG) most = fmax(most, pairs[2 * i]);
    most = group_max(most, scratch);
    const float base = most == -INFINITY ? 0.0f : most;
    for (uint i = get_local_id(0); i < n_spans; i += WG) {
        sum += pairs[2 * i + 1] * exp(pairs[2 * i] - base);
    }
    sum = group_sum(sum, scratch);
    const float factor = sum > 0 ? 1.0f / sum : sum;
    for (uint c = get_local_id(0); c < dim; c += WG) {
        float v = 0;
        for (uint i = 0; i < n_spans; i++) v = fma(from[i * dim + c], exp(pairs[2 * i] - base), v);
        ((__global float *)(out + out_at))[query * dim + c] = v * factor;
    }
    if (get_local_id(0) == 0) {
        __global float *pair = (__global float *)(joined_stats + joined_at) + 2 * query;
        pair[0] = most;
        pair[1] = sum;
    }
}

/* sums[slot * slot_stride + head * head_stride] = the weight that the slot received from queries of
 * rows [first_row, n_rows), averaged over the group and added up over the rows; `add`: and to what is
 * there for the first scored[head] slots. stats: of whole queries.
 * A work-item for each slot: dimension 0 slots of this part of the cache, 1 KV heads. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
attention_scores(__global uchar *sums, ulong sums_at, ulong slot_stride, ulong head_stride, uint add,
                 __global const uchar *scored, ulong scored_at,
                 __global const uchar *stats, ulong stats_at, __global const uchar *q, ulong q_at,
                 CACHE_PARAMS, uint k_type, float scale, uint first_row) {
    const uint index = get_global_id(0), head = get_group_id(1), slot = block0 * KV_BLOCK + index;
    if (slot >= ((__global const uint *)(held + held_at))[head]) return;
    if (index >= n_blocks * KV_BLOCK) return;
    __global const uchar *block = cache + cache_at + index / KV_BLOCK * stride;
    const ulong place = (ulong)head * KV_BLOCK + index % KV_BLOCK;
    __global const uchar *key = block + place * row_bytes(k_type, dim);
    const uint position = ((__global const uint *)(block + p_at))[place];
    float sum = 0;
    for (uint row = first_row; row < n_rows; row++) {
        if (position > ((__global const uint *)(positions + positions_at))[row]) continue;
        float mean = 0;
        for (uint g = 0; g < group; g++) {
            const ulong query = ((ulong)row * heads + head) * group + g;
            __global const float *from = (__global const float *)(q + q_at) + query * dim;
            float score = 0;
            for (uint c = 0; c < dim; c += 4) {
                const float4 v = load4(k_type, key, c, dim);
                score = fma(v.x, from[c] * scale, score);
                if (c + 1 < dim) score = fma(v.y, from[c + 1] * scale, score);
                if (c + 2 < dim) score = fma(v.z, from[c + 2] * scale, score);
                if (c + 3 < dim) score = fma(v.w, from[c + 3] * scale, score);
            }
            __global const float *pair = (__global const float *)(stats + stats_at) + 2 * query;
            mean += exp(score - pair[0]) / pair[1];
        }
        sum += mean / (float)group;
    }
    __global float *to = (__global float *)(sums + sums_at) + slot * slot_stride + head * head_stride;
    const bool has_sum = add && slot < ((__global const uint *)(scored + scored_at))[head];
    *to = has_sum ? *to + sum : sum;
}
