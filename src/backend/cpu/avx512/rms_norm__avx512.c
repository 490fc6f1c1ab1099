/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx512/avx512.h"

#include <immintrin.h>
#include <math.h>

static __mmask8 lanes_from(size_t i, size_t n) {
    return (__mmask8)(n - i < 8 ? (1u << (n - i)) - 1 : 0xff);
}

static __m512d load(const float *x, size_t i, size_t n) {
    return _mm512_cvtps_pd(_mm256_maskz_loadu_ps(lanes_from(i, n), x + i));
}

static double mean_of_squares(const float *x, size_t n) {
    __m512d even = _mm512_setzero_pd(), odd = even;
    for (size_t i = 0; i < n; i += 16) {
        const __m512d a = load(x, i, n);
        even = _mm512_fmadd_pd(a, a, even);
        if (i + 8 >= n) break;
        const __m512d b = load(x, i + 8, n);
        odd = _mm512_fmadd_pd(b, b, odd);
    }
    return _mm512_reduce_add_pd(_mm512_add_pd(even, odd)) / (double)n;
}

void ag_rms_norm__avx512(float *y, const float *x, const float *w, size_t n, float eps) {
    const __m512d factor = _mm512_set1_pd(1 / sqrt(mean_of_squares(x, n) + (double)eps));
    for (size_t i = 0; i < n; i += 8) {
        const __m512d v = _mm512_mul_pd(_mm512_mul_pd(load(x, i, n), factor), load(w, i, n));
        _mm256_mask_storeu_ps(y + i, lanes_from(i, n), _mm512_cvtpd_ps(v));
    }
}
