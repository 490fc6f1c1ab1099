/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/neon/exp.h"
#include "backend/cpu/neon/neon.h"
#include "backend/cpu/neon/tail.h"

#include <math.h>

/* Returns the largest value, ignoring NaN. */
static float largest(const float *x, size_t n) {
    float32x4_t max = vdupq_n_f32(-INFINITY);
    for (size_t i = 0; i < n; i += 4) {
        const float32x4_t v = load_first(x + i, n - i, -INFINITY);
        max = vbslq_f32(vcgtq_f32(v, max), v, max);
    }
    return vmaxvq_f32(max);
}

/* Replaces x by exp(x - max). Returns the sum. */
static double exponentials(float *x, size_t n, float max) {
    float64x2_t low = vdupq_n_f64(0), high = low;
    for (size_t i = 0; i < n; i += 4) {
        const float32x4_t v = load_first(x + i, n - i, -INFINITY);
        const float32x4_t e = exp_weight(vsubq_f32(v, vdupq_n_f32(max)));
        low = vaddq_f64(low, vcvt_f64_f32(vget_low_f32(e)));
        high = vaddq_f64(high, vcvt_high_f64_f32(e));
        store_first(x + i, e, n - i);
    }
    return vaddvq_f64(vaddq_f64(low, high));
}

void ag_softmax__neon(float *x, size_t n) {
    const float max = largest(x, n);
    if (max == -INFINITY) {
        /* A row of only -inf becomes 0. NaN is retained so that it is noticed. */
        for (size_t i = 0; i < n; i++) x[i] = isnan(x[i]) ? x[i] : 0.0f;
        return;
    }
    const float factor = (float)(1 / exponentials(x, n, max));
    for (size_t i = 0; i < n; i += 4) {
        store_first(x + i, vmulq_n_f32(load_first(x + i, n - i, 0), factor), n - i);
    }
}
