/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx2/avx2.h"
#include "backend/cpu/avx2/tail.h"

#include <math.h>

static double mean_of_squares(const float *x, size_t n) {
    __m256d low = _mm256_setzero_pd(), high = low;
    for (size_t i = 0; i < n; i += 8) {
        const __m256 v = _mm256_maskload_ps(x + i, first_lanes(n - i));
        const __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(v));
        const __m256d b = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
        low = _mm256_fmadd_pd(a, a, low);
        high = _mm256_fmadd_pd(b, b, high);
    }
    double lanes[4];
    _mm256_storeu_pd(lanes, _mm256_add_pd(low, high));
    return ((lanes[0] + lanes[2]) + (lanes[1] + lanes[3])) / (double)n;
}

static __m128 scaled(__m128 x, __m128 w, __m256d factor) {
    const __m256d v = _mm256_mul_pd(_mm256_cvtps_pd(x), factor);
    return _mm256_cvtpd_ps(_mm256_mul_pd(v, _mm256_cvtps_pd(w)));
}

void ag_rms_norm__avx2(float *y, const float *x, const float *w, size_t n, float eps) {
    const __m256d factor = _mm256_set1_pd(1 / sqrt(mean_of_squares(x, n) + (double)eps));
    for (size_t i = 0; i < n; i += 8) {
        const __m256i lanes = first_lanes(n - i);
        const __m256 v = _mm256_maskload_ps(x + i, lanes), f = _mm256_maskload_ps(w + i, lanes);
        const __m128 low = scaled(_mm256_castps256_ps128(v), _mm256_castps256_ps128(f), factor);
        const __m128 high =
            scaled(_mm256_extractf128_ps(v, 1), _mm256_extractf128_ps(f, 1), factor);
        _mm256_maskstore_ps(y + i, lanes, _mm256_set_m128(high, low));
    }
}
