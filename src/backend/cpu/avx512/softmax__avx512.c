/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx512/avx512.h"
#include "backend/cpu/avx512/exp.h"

#include <math.h>

static __mmask16 lanes_from(size_t i, size_t n) {
    return (__mmask16)(n - i < 16 ? (1u << (n - i)) - 1 : 0xffff);
}

/* Returns the largest value, ignoring NaN. */
static float largest(const float *x, size_t n) {
    const __m512 none = _mm512_set1_ps(-INFINITY);
    __m512 max = none;
    for (size_t i = 0; i < n; i += 16) {
        /* If the first operand is NaN, the result is the second one. */
        max = _mm512_max_ps(_mm512_mask_loadu_ps(none, lanes_from(i, n), x + i), max);
    }
    return _mm512_reduce_max_ps(max);
}

void ag_softmax__avx512(float *x, size_t n) {
    const float max = largest(x, n);
    if (max == -INFINITY) {
        /* A row of only -inf becomes 0. NaN is retained so that it is noticed. */
        for (size_t i = 0; i < n; i++) x[i] = isnan(x[i]) ? x[i] : 0.0f;
        return;
    }
    __m512d low = _mm512_setzero_pd(), high = low;
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = lanes_from(i, n);
        const __m512 v = _mm512_maskz_loadu_ps(lanes, x + i);
        const __m512 e =
            _mm512_maskz_mov_ps(lanes, exp_weight(_mm512_sub_ps(v, _mm512_set1_ps(max))));
        low = _mm512_add_pd(low, _mm512_cvtps_pd(_mm512_castps512_ps256(e)));
        high = _mm512_add_pd(high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(e, 1)));
        _mm512_mask_storeu_ps(x + i, lanes, e);
    }
    const float factor = (float)(1 / _mm512_reduce_add_pd(_mm512_add_pd(low, high)));
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = lanes_from(i, n);
        const __m512 v = _mm512_maskz_loadu_ps(lanes, x + i);
        _mm512_mask_storeu_ps(x + i, lanes, _mm512_mul_ps(v, _mm512_set1_ps(factor)));
    }
}
