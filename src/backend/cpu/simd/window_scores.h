/* SPDX-License-Identifier: Apache-2.0 */
/* Attention weights, without the output, of queries that attend to the same few slots. Include a
 * vec.h and a words.h and define SET(name) first. The scores of all these slots are stored, so none
 * is computed twice. */
#ifndef AG_BACKEND_CPU_SIMD_WINDOW_SCORES_H
#define AG_BACKEND_CPU_SIMD_WINDOW_SCORES_H

#include "backend/cpu/simd/attention.h"

/* A visible block with its own scores and one range for all queries. */
typedef struct window_block {
    uint32_t number;
    kv_range range;
    float *scores;
} window_block;

static void enter_block(tile *t, const window_block *b) {
    t->scores = b->scores;
    for (size_t m = 0; m < t->n_vecs * QUADS; m++) t->ranges[m] = b->range;
}

/* Caps and masks the scores of one vector of queries and updates the maximum of each lane. */
static void find_max(const tile *t, size_t v) {
    const visible r = visible_to(t, v);
    float *scores = t->scores + v * SCORE_STRIDE;
    cap_scores(t, scores, &r);
    vec max = mask_chunks(scores, r.begin, r.all_begin, &r, v_load(t->max + v * LANES));
    for (uint32_t c = r.all_begin; c < r.all_end; c++) max = v_max(v_load(scores + c * LANES), max);
    v_store(t->max + v * LANES, mask_chunks(scores, r.all_end, r.end, &r, max));
}

/* Replaces scores by exponentials. */
static void take_exponentials(const tile *t, size_t v, const window_block *b) {
    float *scores = t->scores + v * SCORE_STRIDE;
    const vec base = base_of(v_load(t->max + v * LANES));
    vec sum = v_load(t->sum + v * LANES);
    for (uint32_t c = b->range.first / 4; c < (b->range.end + 3) / 4; c++) {
        const vec weight = v_weight(v_sub(v_load(scores + c * LANES), base));
        v_store(scores + c * LANES, weight);
        sum = v_add(sum, weight);
    }
    v_store(t->sum + v * LANES, sum);
}

/* Inverts the sums, divided by the group's size. Queries after the last one get 0. */
static void invert_sums(const tile *t) {
    const float share = 1.0f / (float)t->in->group;
    for (size_t v = 0; v < t->n_vecs; v++) {
        float sums[QUADS];
        v_store_firsts(sums, over_quad_add(v_load(t->sum + v * LANES)));
        for (size_t q = 0; q < QUADS; q++) {
            const bool counts = v * QUADS + q < t->n_queries && sums[q] != 0;
            sums[q] = counts ? share / sums[q] : 0;
        }
        v_store(t->sum + v * LANES, v_quads_of(sums));
    }
}

static void add_weights(const tile *t, const window_block *b, float *scores) {
    const kv_range range = b->range;
    for (uint32_t c = range.first / 4; c < (range.end + 3) / 4; c++) {
        float lanes[LANES];
        vec sum = v_zero();
        for (size_t v = 0; v < t->n_vecs; v++) {
            const vec weight = v_load(t->scores + v * SCORE_STRIDE + c * LANES);
            sum = v_fma(weight, v_load(t->sum + v * LANES), sum);
        }
        v_store(lanes, sum);
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t s = 4 * c + i;
            if (s < range.first || s >= range.end) continue;
            for (size_t q = 0; q < QUADS; q++) scores[s] += lanes[4 * q + i];
        }
    }
}

void SET(ag_window_scores)(float *scores, const ag_cpu_queries *in, const ag_cpu_kv_head *kv,
                           uint32_t slot0, float *weights, void *scratch) {
    tile t = make_tile(in, kv, scratch);
    window_block blocks[AG_ATTENTION_SPAN / AG_KV_BLOCK];
    const uint32_t block0 = slot0 / AG_KV_BLOCK, end = span_end(kv, block0);
    uint32_t n = 0;
    for (uint32_t b = block0; b < end; b++) {
        const kv_range range = find_visible(&t, b);
        if (!range.end) break;
        if (range.first == range.end) continue;
        float *own = weights + n * t.n_vecs * SCORE_STRIDE;
        blocks[n++] = (window_block){b, range, own};
    }
    if (!n) return;
    pack_queries(&t);
    for (size_t i = 0; i < t.n_vecs * LANES; i++) t.max[i] = -INFINITY, t.sum[i] = 0;
    for (uint32_t i = 0; i < n; i++) {
        enter_block(&t, &blocks[i]);
        score_block(&t, blocks[i].number, blocks[i].range,
                    i + 1 < n ? keys_of(&t, blocks[i + 1].number) : NOTHING);
        for (size_t v = 0; v < t.n_vecs; v++) find_max(&t, v);
    }
    for (size_t v = 0; v < t.n_vecs; v++)
        v_store(t.max + v * LANES, over_quad_max(v_load(t.max + v * LANES)));
    for (uint32_t i = 0; i < n; i++) {
        enter_block(&t, &blocks[i]);
        for (size_t v = 0; v < t.n_vecs; v++) take_exponentials(&t, v, &blocks[i]);
    }
    invert_sums(&t);
    for (uint32_t i = 0; i < n; i++) {
        enter_block(&t, &blocks[i]);
        add_weights(&t, &blocks[i], scores + blocks[i].number * AG_KV_BLOCK);
    }
}

#endif
