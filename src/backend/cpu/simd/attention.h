/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over one span of slots, block by block with a running maximum. Include a vec.h and a
 * words.h first. The arithmetic of a query does not depend on other queries. */
#ifndef AG_BACKEND_CPU_SIMD_ATTENTION_H
#define AG_BACKEND_CPU_SIMD_ATTENTION_H

#include "backend/cpu/simd/attention_scores.h"
#include "backend/cpu/simd/attention_values.h"
#include "backend/cpu/simd/tanh.h"

#include <math.h>

/* The chunks of 4 slots of a block that a vector of queries attends to: any query attends to chunks
 * [begin, end), all queries attend to chunks [all_begin, all_end). */
typedef struct visible {
    vec first_slot, end_slot; /* range of a query, in all lanes of its quad */
    uint32_t begin, all_begin, all_end, end;
} visible;

static visible visible_to(const tile *t, size_t v) {
    const kv_range *ranges = t->ranges + v * QUADS;
    const joint_range slots = joint_range_of(ranges, QUADS);
    float first[QUADS], end[QUADS];
    for (int i = 0; i < QUADS; i++) {
        first[i] = (float)ranges[i].first;
        end[i] = (float)ranges[i].end;
    }
    visible r = {v_quads_of(first), v_quads_of(end), .begin = slots.any.first / 4};
    r.all_begin = (slots.all.first + 3) / 4;
    r.all_end = slots.all.end / 4;
    if (r.all_end < r.all_begin) r.all_begin = r.all_end = r.begin;
    r.end = (slots.any.end + 3) / 4;
    return r;
}

/* Replaces the scores of invisible slots of chunk c by -inf. */
INLINE vec mask_chunk(vec scores, uint32_t c, const visible *r) {
    static const float lane[16] = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3};
    const vec slot = v_add(v_set((float)(4 * c)), v_load(lane)), none = v_set(-INFINITY);
    scores = v_if_less(slot, r->end_slot, scores, none);
    return v_if_less(slot, r->first_slot, none, scores);
}

/* Masks and stores chunks [begin, end). Returns the maximum of `max` and their scores. */
INLINE vec mask_chunks(float *scores, uint32_t begin, uint32_t end, const visible *r, vec max) {
    for (uint32_t c = begin; c < end; c++) {
        const vec score = mask_chunk(v_load(scores + c * LANES), c, r);
        v_store(scores + c * LANES, score);
        max = v_max(score, max);
    }
    return max;
}

/* Caps scores before they are masked: invisible slots may have any value. */
static void cap_scores(const tile *t, float *scores, const visible *r) {
    const vec cap = v_set(t->in->params.softcap);
    if (t->in->params.softcap == 0) return;
    for (uint32_t c = r->begin; c < r->end; c++) {
        v_store(scores + c * LANES, v_mul(v_tanh(v_div(v_load(scores + c * LANES), cap)), cap));
    }
}

INLINE vec over_quad_max(vec a) {
    a = v_max(a, v_swap_lanes(a));
    return v_max(a, v_swap_pairs(a));
}

INLINE vec over_quad_add(vec a) {
    a = v_add(a, v_swap_lanes(a));
    return v_add(a, v_swap_pairs(a));
}

/* Returns the value to subtract from scores: max, but 0 if max is -inf, since -inf - -inf is NaN.
 */
INLINE vec base_of(vec max) { return v_if_less(v_set(-INFINITY), max, max, v_zero()); }

/* Caps and masks the scores of one vector of queries in place, writes their exponentials to
 * t->scores, which may be the same array, and updates the running maximum and sum. */
static void softmax_step(const tile *t, size_t v, float *scores) {
    const visible r = visible_to(t, v);
    float *weights = t->scores + v * SCORE_STRIDE;
    scores += v * SCORE_STRIDE;
    cap_scores(t, scores, &r);
    vec max = mask_chunks(scores, r.begin, r.all_begin, &r, v_set(-INFINITY));
    for (uint32_t c = r.all_begin; c < r.all_end; c++) max = v_max(v_load(scores + c * LANES), max);
    max = mask_chunks(scores, r.all_end, r.end, &r, max);
    const vec old = v_load(t->max + v * LANES);
    max = v_max(over_quad_max(max), old);
    const vec base = base_of(max), factor = v_weight(v_sub(old, base));
    vec sum = v_zero();
    for (uint32_t c = r.begin; c < r.end; c++) {
        const vec weight = v_weight(v_sub(v_load(scores + c * LANES), base));
        v_store(weights + c * LANES, weight);
        sum = v_add(sum, weight);
    }
    v_store(t->max + v * LANES, max);
    v_store(t->sum + v * LANES, v_fma(v_load(t->sum + v * LANES), factor, sum));
    v_store_firsts(t->factor + v * QUADS, factor);
}

/* ---- a span ---- */

/* Prefetches the positions that find_visible() will read. */
static void fetch_positions(const tile *t, uint32_t b) {
    const uint32_t n = kv_head_slots(t->kv, b, t->kv->n_slots);
    if (n) __builtin_prefetch(rows_at(t, b, t->kv->p_offset) + (n - 1) * sizeof(uint32_t));
}

static void store_sums(const tile *t, const ag_cpu_partial *out) {
    for (size_t v = 0; v < t->n_vecs; v++) {
        float max[QUADS], sum[QUADS];
        v_store_firsts(max, v_load(t->max + v * LANES));
        v_store_firsts(sum, over_quad_add(v_load(t->sum + v * LANES)));
        for (size_t q = 0; q < QUADS && v * QUADS + q < t->n_queries; q++) {
            out->max[v * QUADS + q] = max[q];
            out->sum[v * QUADS + q] = sum[q];
        }
    }
}

/* Returns the end of the blocks of the span that starts with block `block0`. */
static uint32_t span_end(const ag_cpu_kv_head *kv, uint32_t block0) {
    const uint32_t end = block0 + AG_ATTENTION_SPAN / AG_KV_BLOCK;
    const uint32_t used = (kv->n_slots + AG_KV_BLOCK - 1) / AG_KV_BLOCK;
    return end < used ? end : used;
}

size_t SET(ag_kept_floats)(uint32_t n_queries) {
    return AG_ATTENTION_SPAN / AG_KV_BLOCK * vectors_of(n_queries) * SCORE_STRIDE;
}

/* Returns the address of the stored scores of block b of the span. */
static float *kept_of(const tile *t, float *kept, uint32_t b) {
    return kept + b % (AG_ATTENTION_SPAN / AG_KV_BLOCK) * t->n_vecs * SCORE_STRIDE;
}

void SET(ag_attention)(const ag_cpu_partial *out, const ag_cpu_queries *in,
                       const ag_cpu_kv_head *kv, uint32_t slot0, void *scratch) {
    const tile t = make_tile(in, kv, scratch);
    const uint32_t block0 = slot0 / AG_KV_BLOCK, end = span_end(kv, block0);
    bool packed = false;
    for (size_t i = 0; i < t.n_vecs * LANES; i++) t.max[i] = -INFINITY, t.sum[i] = 0;
    memset(out->values, 0, t.n_queries * t.width * sizeof *out->values);
    for (uint32_t b = block0; b < end; b++) {
        const kv_range range = find_visible(&t, b);
        if (!range.end) break; /* later slots have later positions */
        if (range.first == range.end) continue;
        if (!packed) pack_queries(&t);
        packed = true;
        const bool follows = (b + 1) * AG_KV_BLOCK < kv->fetch_end;
        if (follows) fetch_positions(&t, b + 1);
        tile scored = t;
        if (out->kept) scored.scores = kept_of(&t, out->kept, b);
        score_block(&scored, b, range, values_of(&t, b));
        for (size_t v = 0; v < t.n_vecs; v++) softmax_step(&t, v, scored.scores);
        add_block(&t, out->values, b, range, follows ? keys_of(&t, b + 1) : NOTHING);
    }
    store_sums(&t, out);
}

void SET(ag_attention_merge)(const ag_cpu_partial *into, const ag_cpu_partial *from, size_t n,
                             size_t head_dim) {
    const size_t width = ag_cpu_value_stride(head_dim);
    for (size_t q = 0; q < n; q++) {
        const vec a = v_set(into->max[q]), b = v_set(from->max[q]);
        const vec max = v_max(a, b), base = base_of(max);
        const vec old = v_weight(v_sub(a, base)), new = v_weight(v_sub(b, base));
        float *x = into->values + q * width;
        const float *y = from->values + q * width;
        for (size_t i = 0; i < width; i += LANES) {
            v_store(x + i, v_fma(v_load(y + i), new, v_mul(v_load(x + i), old)));
        }
        /* Arrays of floats, not vectors: gcc 12 misaligns 64-byte locals if the address sanitizer
         * puts frames on the heap. */
        float sums[QUADS], maxima[QUADS];
        v_store_firsts(sums, v_fma(v_set(from->sum[q]), new, v_mul(v_set(into->sum[q]), old)));
        v_store_firsts(maxima, max);
        into->sum[q] = sums[0];
        into->max[q] = maxima[0];
    }
}

/* ---- attention weights ---- */

/* Replaces the scores of one vector of queries by weights. */
static void normalise(const tile *t, size_t v, const float *max, const float *sum) {
    const visible r = visible_to(t, v);
    float *scores = t->scores + v * SCORE_STRIDE, low[QUADS] = {0}, total[QUADS] = {0};
    for (size_t q = 0; q < QUADS && v * QUADS + q < t->n_queries; q++) {
        low[q] = max[v * QUADS + q];
        total[q] = sum[v * QUADS + q];
    }
    const vec base = base_of(v_quads_of(low)), sums = v_quads_of(total);
    cap_scores(t, scores, &r);
    (void)mask_chunks(scores, r.begin, r.all_begin, &r, base);
    (void)mask_chunks(scores, r.all_end, r.end, &r, base);
    for (uint32_t c = r.begin; c < r.end; c++) {
        const vec score = v_load(scores + c * LANES);
        v_store(scores + c * LANES, v_div(v_weight(v_sub(score, base)), sums));
    }
}

/* Adds the mean weights of each row's group to the visible slots of the block, row by row. */
static void add_means(const tile *t, float *scores) {
    const size_t group = t->in->group;
    const float share = 1.0f / (float)group;
    for (size_t m = 0; m < t->n_queries; m += group) {
        const uint32_t first = t->ranges[m].first, end = t->ranges[m].end;
        for (uint32_t s = first / 4 * 4; s < end; s += 4) {
            float sum[4] = {0};
            for (size_t q = m; q < m + group; q++) {
                const float *w = t->scores + q / QUADS * SCORE_STRIDE + s * QUADS + q % QUADS * 4;
                for (int i = 0; i < 4; i++) sum[i] += w[i];
            }
            const uint32_t begin = first > s ? first - s : 0;
            for (uint32_t i = begin; i < 4 && s + i < end; i++) scores[s + i] += sum[i] * share;
        }
    }
}

enum { CHUNKS = AG_KV_BLOCK / 4 };

/* Converts capped and masked scores of one vector of queries to logarithms of weights, and updates
 * their maxima in most [CHUNKS][LANES]. */
static void raise_logs(const tile *t, size_t v, const float *scores, const float *max,
                       const float *sum, float *most) {
    const visible r = visible_to(t, v);
    float low[QUADS];
    for (size_t q = 0; q < QUADS; q++) {
        const size_t i = v * QUADS + q;
        const bool sees = i < t->n_queries && sum[i] > 0;
        low[q] = sees ? max[i] + logf(sum[i]) : INFINITY;
    }
    const vec base = v_quads_of(low);
    scores += v * SCORE_STRIDE;
    for (uint32_t c = r.begin; c < r.end; c++) {
        const vec log = v_sub(v_load(scores + c * LANES), base);
        v_store(most + c * LANES, v_max(log, v_load(most + c * LANES)));
    }
}

/* Raises a slot's score to the largest weight of the tile's queries. The exponential is computed
 * once for all queries. */
static void raise_to_most(const tile *t, const float *kept, const float *max, const float *sum,
                          float *scores, uint32_t n_slots) {
    float most[CHUNKS * LANES];
    for (size_t i = 0; i < CHUNKS * LANES; i++) most[i] = -INFINITY;
    for (size_t v = 0; v < t->n_vecs; v++) raise_logs(t, v, kept, max, sum, most);
    for (uint32_t c = 0; c < CHUNKS; c++)
        v_store(most + c * LANES, v_weight(v_load(most + c * LANES)));
    for (uint32_t s = 0; s < n_slots; s++) {
        for (size_t q = 0; q < QUADS; q++)
            scores[s] = fmaxf(scores[s], most[s / 4 * LANES + q * 4 + s % 4]);
    }
}

/* Caps the scores of one vector of queries and replaces those of invisible slots by -inf. */
static void cap_and_mask(const tile *t, size_t v) {
    const visible r = visible_to(t, v);
    float *scores = t->scores + v * SCORE_STRIDE;
    cap_scores(t, scores, &r);
    (void)mask_chunks(scores, r.begin, r.all_begin, &r, v_zero());
    (void)mask_chunks(scores, r.all_end, r.end, &r, v_zero());
}

void SET(ag_attention_scores)(float *scores, const ag_cpu_queries *in, const ag_cpu_kv_head *kv,
                              uint32_t slot0, const float *max, const float *sum, float *kept,
                              void *scratch) {
    const tile t = make_tile(in, kv, scratch);
    const uint32_t block0 = slot0 / AG_KV_BLOCK, end = span_end(kv, block0);
    bool packed = false;
    for (uint32_t b = block0; b < end; b++) {
        const kv_range range = find_visible(&t, b);
        if (!range.end) break;
        if (range.first == range.end) continue;
        float *to = scores + b * AG_KV_BLOCK;
        const uint32_t n = kv_head_slots(kv, b, kv->n_slots);
        if (kept) {
            raise_to_most(&t, kept_of(&t, kept, b), max, sum, to, n);
            continue;
        }
        if (!packed) pack_queries(&t);
        packed = true;
        score_block(&t, b, range, b + 1 < end ? keys_of(&t, b + 1) : NOTHING);
        if (in->score_max) {
            for (size_t v = 0; v < t.n_vecs; v++) cap_and_mask(&t, v);
            raise_to_most(&t, t.scores, max, sum, to, n);
            continue;
        }
        for (size_t v = 0; v < t.n_vecs; v++) normalise(&t, v, max, sum);
        add_means(&t, to);
    }
}

#endif
