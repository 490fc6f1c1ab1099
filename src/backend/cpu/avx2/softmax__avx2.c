/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx2/avx2.h"
#include "backend/cpu/avx2/exp.h"
#include "backend/cpu/avx2/tail.h"

#include <math.h>

/* Returns the largest value, ignoring NaN. */
static float largest(const float *x, size_t n) {
    const __m256 none = _mm256_set1_ps(-INFINITY);
    __m256 maxima = none;
    for (size_t i = 0; i < n; i += 8) {
        const __m256i lanes = first_lanes(n - i);
        const __m256 v = _mm256_maskload_ps(x + i, lanes);
        /* If the first operand is NaN, the result is the second one. */
        maxima = _mm256_max_ps(_mm256_blendv_ps(none, v, _mm256_castsi256_ps(lanes)), maxima);
    }
    float lanes[8], max = -INFINITY;
    _mm256_storeu_ps(lanes, maxima);
    for (int i = 0; i < 8; i++) max = lanes[i] > max ? lanes[i] : max;
    return max;
}

static double add_lanes(__m256d v) {
    double lanes[4];
    _mm256_storeu_pd(lanes, v);
    return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

void ag_softmax__avx2(float *x, size_t n) {
    const float max = largest(x, n);
    if (max == -INFINITY) {
        /* A row of only -inf becomes 0. NaN is retained so that it is noticed. */
        for (size_t i = 0; i < n; i++) x[i] = isnan(x[i]) ? x[i] : 0.0f;
        return;
    }
    __m256d low = _mm256_setzero_pd(), high = low;
    for (size_t i = 0; i < n; i += 8) {
        const __m256i lanes = first_lanes(n - i);
        __m256 e = exp_weight(_mm256_sub_ps(_mm256_maskload_ps(x + i, lanes), _mm256_set1_ps(max)));
        e = _mm256_and_ps(e, _mm256_castsi256_ps(lanes));
        low = _mm256_add_pd(low, _mm256_cvtps_pd(_mm256_castps256_ps128(e)));
        high = _mm256_add_pd(high, _mm256_cvtps_pd(_mm256_extractf128_ps(e, 1)));
        _mm256_maskstore_ps(x + i, lanes, e);
    }
    const float factor = (float)(1 / add_lanes(_mm256_add_pd(low, high)));
    for (size_t i = 0; i < n; i += 8) {
        const __m256i lanes = first_lanes(n - i);
        const __m256 v = _mm256_maskload_ps(x + i, lanes);
        _mm256_maskstore_ps(x + i, lanes, _mm256_mul_ps(v, _mm256_set1_ps(factor)));
    }
}
