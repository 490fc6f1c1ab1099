/* SPDX-License-Identifier: Apache-2.0 */
/* A set's KeyDiff scores of a head's keys. Include a vec.h and define SET(name) first. Few rows at
 * a time are converted to floats, and twice: they stay in L1, whereas a whole head would not fit
 * any cache. */
#ifndef AG_BACKEND_CPU_SIMD_KEY_SCORES_H
#define AG_BACKEND_CPU_SIMD_KEY_SCORES_H

#include "backend/cpu/simd/cache_rows.h"

#include <math.h>

enum { TOGETHER = 4 }; /* rows multiplied at a time */

/* Returns n rows of one block from `slot` on as floats. */
static const float *keys_from(const ag_cpu_kv_head *kv, const cache_rows *keys, float *converted,
                              uint32_t slot, uint32_t n) {
    const unsigned char *block = kv->blocks[slot / AG_KV_BLOCK];
    return load_rows(converted, block + slot % AG_KV_BLOCK * keys->row_bytes, n, keys);
}

/* Multiplies up to TOGETHER rows with `other`, or each with itself if that is NULL. */
INLINE void multiply_rows(float *dots, const float *rows, size_t width, uint32_t n,
                          const float *other) {
    vec acc[TOGETHER];
    const float *row[TOGETHER];
    float lanes[LANES];
    for (uint32_t k = 0; k < TOGETHER; k++) {
        row[k] = rows + (k < n ? k : n - 1) * width;
        acc[k] = v_zero();
    }
    for (size_t i = 0; i < width; i += LANES) {
        const vec common = v_load((other ? other : rows) + i);
        for (int k = 0; k < TOGETHER; k++) {
            const vec key = v_load(row[k] + i);
            acc[k] = v_fma(key, other ? common : key, acc[k]);
        }
    }
    const vec low = v_add(v_zip_low(acc[0], acc[1]), v_zip_high(acc[0], acc[1]));
    const vec high = v_add(v_zip_low(acc[2], acc[3]), v_zip_high(acc[2], acc[3]));
    v_store(lanes, v_add(v_pairs_low(low, high), v_pairs_high(low, high)));
    for (int k = 0; k < TOGETHER; k++) {
        dots[k] = lanes[k];
        for (int quad = 4; quad < LANES; quad += 4) dots[k] += lanes[quad + k];
    }
}

/* Writes the inverse lengths of up to TOGETHER rows and adds the normalised rows to sum. */
INLINE void add_directions(float *inverse, float *sum, const float *rows, size_t width,
                           uint32_t n) {
    float squares[TOGETHER];
    multiply_rows(squares, rows, width, n, NULL);
    for (uint32_t k = 0; k < n; k++) inverse[k] = squares[k] > 0 ? 1 / sqrtf(squares[k]) : 0;
    for (size_t i = 0; i < width; i += LANES) {
        vec v = v_load(sum + i);
        for (uint32_t k = 0; k < n; k++) {
            v = v_fma(v_load(rows + k * width + i), v_set(inverse[k]), v);
        }
        v_store(sum + i, v);
    }
}

/* Replaces inverse lengths of up to TOGETHER rows by scores. */
INLINE void finish_scores(float *scores, const float *rows, size_t width, uint32_t n,
                          const float *mean) {
    float dots[TOGETHER];
    multiply_rows(dots, rows, width, n, mean);
    for (uint32_t i = 0; i < n; i++) scores[i] *= dots[i];
}

/* Pass 1 (`lengths`) computes the lengths and the sum of normalised keys. Pass 2, with `mean` of
 * length -1, computes the scores, from the end back, since the caches still have the last keys. */
INLINE void over_keys(const bool lengths, float *scores, float *mean, float *converted,
                      const ag_cpu_kv_head *kv) {
    const cache_rows keys = cache_rows_of(kv->k_type, kv->head_dim);
    const uint32_t n_groups = (kv->n_slots + AG_KEY_SCORE_ROWS - 1) / AG_KEY_SCORE_ROWS;
    for (uint32_t i = 0; i < n_groups; i++) {
        const uint32_t s = (lengths ? i : n_groups - 1 - i) * AG_KEY_SCORE_ROWS;
        const uint32_t left = kv->n_slots - s;
        const uint32_t n = left < AG_KEY_SCORE_ROWS ? left : AG_KEY_SCORE_ROWS;
        const float *rows = keys_from(kv, &keys, converted, s, n);
        for (uint32_t k = 0; k < n; k += TOGETHER, rows += TOGETHER * keys.width) {
            const uint32_t some = n - k < TOGETHER ? n - k : TOGETHER;
            if (lengths) add_directions(scores + s + k, mean, rows, keys.width, some);
            else finish_scores(scores + s + k, rows, keys.width, some, mean);
        }
    }
}

void SET(ag_key_scores)(float *scores, const ag_cpu_kv_head *kv, void *scratch) {
    const size_t width = ag_cpu_value_stride(kv->head_dim);
    float *mean = scratch, *converted = mean + width, square[TOGETHER];
    memset(mean, 0, width * sizeof *mean);
    over_keys(true, scores, mean, converted, kv);
    multiply_rows(square, mean, width, 1, NULL);
    const vec scale = v_set(square[0] > 0 ? -1 / sqrtf(square[0]) : 0);
    for (size_t i = 0; i < width; i += LANES) v_store(mean + i, v_mul(v_load(mean + i), scale));
    over_keys(false, scores, mean, converted, kv);
}

#endif
