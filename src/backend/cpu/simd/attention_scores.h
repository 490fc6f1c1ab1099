/* SPDX-License-Identifier: Apache-2.0 */
/* Attention scores of all queries of a tile for slots of one block. */
#ifndef AG_BACKEND_CPU_SIMD_ATTENTION_SCORES_H
#define AG_BACKEND_CPU_SIMD_ATTENTION_SCORES_H

#include "backend/cpu/simd/attention_tile.h"

/* Multiplies NV vectors of queries with S keys, `width` apart. Prefetches S rows of `next`. */
INLINE void score_keys(const int NV, const int S, float *scores, const float *q, const float *keys,
                       size_t width, const ahead *next) {
    vec acc[KEY_VECS][STEP];
    for (int v = 0; v < NV; v++) {
        for (int s = 0; s < S; s++) acc[v][s] = v_zero();
    }
    const size_t q_stride = width * QUADS;
    fetcher f = fetcher_of(next, (size_t)S, width / 4);
    for (size_t i = 0; i < width; i += 4) {
        vec query[KEY_VECS];
        for (int v = 0; v < NV; v++) query[v] = v_load(q + (size_t)v * q_stride + i * QUADS);
        fetch_step(&f);
        for (int s = 0; s < S; s++) {
            const vec key = v_quad(keys + (size_t)s * width + i);
            for (int v = 0; v < NV; v++) acc[v][s] = v_fma(query[v], key, acc[v][s]);
        }
    }
    for (int v = 0; v < NV; v++) {
        for (int s = 0; s < S; s += 4) {
            const vec *a = &acc[v][s];
            const vec low = v_add(v_zip_low(a[0], a[1]), v_zip_high(a[0], a[1]));
            const vec high = v_add(v_zip_low(a[2], a[3]), v_zip_high(a[2], a[3]));
            const vec sum = v_add(v_pairs_low(low, high), v_pairs_high(low, high));
            v_store(scores + v * SCORE_STRIDE + s * QUADS, sum);
        }
    }
}

INLINE void score_rows_of(const size_t width, const tile *t, const float *keys, uint32_t s0,
                          uint32_t n, const ahead *next) {
    const size_t q_stride = width * QUADS;
    size_t v = 0;
    for (; v + KEY_VECS <= t->n_vecs; v += KEY_VECS) {
        float *scores = t->scores + v * SCORE_STRIDE + s0 * QUADS;
        const ahead part = v ? (ahead){NOTHING, 0} : *next;
        for (uint32_t s = 0; s < n; s += 4) {
            const ahead rows = ahead_from(&part, s);
            score_keys(KEY_VECS, 4, scores + s * QUADS, t->q + v * q_stride, keys + s * width,
                       width, &rows);
        }
    }
    for (; v < t->n_vecs; v++) {
        float *scores = t->scores + v * SCORE_STRIDE + s0 * QUADS;
        const ahead part = v ? (ahead){NOTHING, 0} : *next;
        for (uint32_t s = 0; s < n; s += STEP) {
            const ahead rows = ahead_from(&part, s);
            score_keys(1, STEP, scores + s * QUADS, t->q + v * q_stride, keys + s * width, width,
                       &rows);
        }
    }
}

/* Computes the scores of all queries for n keys, n rounded up to S, from slot s0 on. The common
 * widths are compile-time constants. */
static void score_rows(const tile *t, const float *keys, uint32_t s0, uint32_t n,
                       const ahead *next) {
    if (t->width == 64) score_rows_of(64, t, keys, s0, n, next);
    else if (t->width == 128) score_rows_of(128, t, keys, s0, n, next);
    else score_rows_of(t->width, t, keys, s0, n, next);
}

/* Computes the scores of all queries for n unpacked keys in full groups, from slot s0 on. */
INLINE void score_unpacked(const tile *t, const int32_t *keys, uint32_t s0, uint32_t n,
                           const ahead *next) {
    const size_t n_groups = (n + GROUP_ROWS - 1) / GROUP_ROWS;
    for (size_t v = 0; v < t->n_vecs;) {
        const size_t n_vecs = t->n_vecs - v < WORD_VECS ? 1 : WORD_VECS;
        const ahead none = {NOTHING, 0};
        fetcher f = fetcher_of(v ? &none : next, n, n_groups * t->words.n_blocks);
        float *scores = t->scores + v * SCORE_STRIDE + s0 * QUADS;
        const float *scales = t->scales + s0;
        if (n_vecs == 1) score_groups(1, scores, &t->words, v, keys, n_groups, scales, &f);
        else score_groups(WORD_VECS, scores, &t->words, v, keys, n_groups, scales, &f);
        v += n_vecs;
    }
}

static void score_quantised(const tile *t, stream here, kv_range slots, stream next) {
    const ag_dtype type = t->keys.type;
    const size_t row_bytes = t->keys.row_bytes, n_blocks = t->words.n_blocks;
    int32_t *words = (int32_t *)(void *)t->converted;
    load_scales(t->scales, here.rows, slots.end, &t->keys);
    for (uint32_t s = slots.first; s < slots.end; s += t->rows_at_once) {
        const uint32_t rows = slots.end - s < t->rows_at_once ? slots.end - s : t->rows_at_once;
        const ahead meanwhile = {next, s};
        if (type == AG_Q8_0)
            unpack_keys(AG_Q8_0, words, row_of(&here, s), rows, row_bytes, n_blocks);
        else unpack_keys(AG_Q4_0, words, row_of(&here, s), rows, row_bytes, n_blocks);
        score_unpacked(t, words, s, rows, &meanwhile);
    }
}

/* Computes the scores of a range of slots of block b. */
static void score_block(const tile *t, uint32_t b, kv_range slots, stream next) {
    const stream here = keys_of(t, b);
    slots.first = slots.first / STEP * STEP; /* scores are stored in groups */
    if (has_scales(t->keys.type)) {
        score_quantised(t, here, slots, next);
        return;
    }
    for (uint32_t s = slots.first; s < slots.end; s += t->rows_at_once) {
        const uint32_t rows = slots.end - s < t->rows_at_once ? slots.end - s : t->rows_at_once;
        const ahead meanwhile = {next, s};
        const float *keys = load_rows(t->converted, row_of(&here, s), rows, &t->keys);
        score_rows(t, keys, s, rows, &meanwhile);
    }
}

#endif
