/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/neon/neon.h"
#include "backend/cpu/neon/tail.h"

#include <math.h>

/* Returns the sum in double: the square of a large float exceeds the range of floats. */
static double sum_of_squares(const float *x, size_t n) {
    float64x2_t low = vdupq_n_f64(0), high = low;
    for (size_t i = 0; i < n; i += 4) {
        const float32x4_t v = load_first(x + i, n - i, 0);
        const float64x2_t a = vcvt_f64_f32(vget_low_f32(v)), b = vcvt_high_f64_f32(v);
        low = vfmaq_f64(low, a, a);
        high = vfmaq_f64(high, b, b);
    }
    return vaddvq_f64(vaddq_f64(low, high));
}

void ag_rms_norm__neon(float *y, const float *x, const float *w, size_t n, float eps) {
    const double factor = 1 / sqrt(sum_of_squares(x, n) / (double)n + (double)eps);
    for (size_t i = 0; i < n; i += 4) {
        const float32x4_t v = load_first(x + i, n - i, 0), f = load_first(w + i, n - i, 0);
        float64x2_t low = vmulq_n_f64(vcvt_f64_f32(vget_low_f32(v)), factor);
        float64x2_t high = vmulq_n_f64(vcvt_high_f64_f32(v), factor);
        low = vmulq_f64(low, vcvt_f64_f32(vget_low_f32(f)));
        high = vmulq_f64(high, vcvt_high_f64_f32(f));
        store_first(y + i, vcvt_high_f32_f64(vcvt_f32_f64(low), high), n - i);
    }
}
