/* SPDX-License-Identifier: Apache-2.0 */
/* Dot products of float rows, for code that runs on every machine. */
#ifndef AG_QUANT_DOT_H
#define AG_QUANT_DOT_H

#include "quant/vectors.h"

#include <stddef.h>

static inline float ag_dot(const float *a, const float *b, size_t n) {
    enum { VECS = 4, STEP = LANES * VECS };
    vec sums[VECS] = {0};
    size_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        for (size_t v = 0; v < VECS; v++)
            sums[v] += v_load(a + i + v * LANES) * v_load(b + i + v * LANES);
    }
    const vec sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    float total = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    for (; i < n; i++) total += a[i] * b[i];
    return total;
}

#endif
