/* SPDX-License-Identifier: Apache-2.0 */
/* Converts rows of weights to Q4_0 with the search of the reference in wider vectors. The including
 * file defines what quant/q4_0_search.h requires. */
#ifndef AG_BACKEND_CPU_SIMD_QUANTIZE_Q4_0_H
#define AG_BACKEND_CPU_SIMD_QUANTIZE_Q4_0_H

#include "quant/q4_0_search.h"

#include <stdbool.h>

/* Returns the value of largest magnitude, the negative one of two. NaN and inf are the largest. */
INLINE float extreme_of(const float *x) {
    int32_t largest = 0, negative = 0;
    for (int i = 0; i < AG_QK; i++) {
        const int32_t magnitude = q4_0_bits(x[i]) & INT32_MAX;
        largest = magnitude > largest ? magnitude : largest;
    }
    for (int i = 0; i < AG_QK; i++) negative |= q4_0_bits(x[i]) == (largest | INT32_MIN);
    float extreme;
    memcpy(&extreme, &largest, sizeof extreme);
    return negative ? -extreme : extreme;
}

/* Gathers n blocks from src on and fills the batch with copies of the last one. Returns false if
 * one of them has no scale, or values out of its range. */
INLINE bool gather_ordinary(q4_0_batch *batch, const float *src, size_t n) {
    bool ordinary = true;
    for (size_t i = 0; i < n; i++) {
        batch->x[i] = src + i * AG_QK;
        batch->extreme[i] = extreme_of(batch->x[i]);
        const float magnitude = fabsf(batch->extreme[i]);
        ordinary = ordinary && magnitude >= 0x1p-26f && magnitude <= 65504 * 8.0f;
    }
    for (size_t i = n; i < Q4_0_BATCH; i++) {
        batch->x[i] = batch->x[n - 1];
        batch->extreme[i] = batch->extreme[n - 1];
    }
    return ordinary;
}

INLINE size_t quantize_q4_0(void *dst, const float *src, size_t n) {
    unsigned char *p = dst;
    for (size_t i = 0; i < n; i += Q4_0_BATCH * AG_QK) {
        const size_t left = (n - i) / AG_QK, blocks = left < Q4_0_BATCH ? left : Q4_0_BATCH;
        ag_block_q4_0 out[Q4_0_BATCH];
        q4_0_batch batch;
        size_t bad;
        if (gather_ordinary(&batch, src + i, blocks)) {
            q4_0_round(out, &batch, Q4_0_BATCH);
        } else if (ag_quantize_row(AG_Q4_0, out, src + i, blocks * AG_QK, AG_ROUND_WEIGHT, &bad) !=
                   AG_OK) {
            return i + bad;
        }
        memcpy(p, out, blocks * sizeof *out);
        p += blocks * sizeof *out;
    }
    return n;
}

#endif
