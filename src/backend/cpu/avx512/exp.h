/* SPDX-License-Identifier: Apache-2.0 */
/* Exponentials for x <= 0: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial for exp(r), times 2^n.
 * The error is at most 2 units in the last place; NaN gives NaN. */
#ifndef AG_BACKEND_CPU_AVX512_EXP_H
#define AG_BACKEND_CPU_AVX512_EXP_H

#include <immintrin.h>

/* Returns p with exp(x) = p 2^n. */
static inline __m512 exp_parts(__m512 x, __m512 *n) {
    *n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p+0f)), 0);
    /* ln 2 as a sum of two floats; the product of n and the first one is exact. */
    __m512 r = _mm512_fnmadd_ps(*n, _mm512_set1_ps(0x1.62ep-1f), x);
    r = _mm512_fnmadd_ps(*n, _mm512_set1_ps(0x1.0bfbe8p-15f), r);
    __m512 p = _mm512_set1_ps(1.0f / 5040);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 720));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
}

/* Returns exp(x), 0 below -104. */
static inline __m512 exp_negative(__m512 x) {
    __m512 n;
    const __m512 p = exp_parts(_mm512_max_ps(_mm512_set1_ps(-110.0f), x), &n); /* keeps NaN */
    return _mm512_scalef_ps(p, n);
}

/* Returns exp(x), 0 below -87.33: never a subnormal number. Weights of attention are multiplied
 * many times, and a product with a subnormal number takes over a hundred cycles. */
static inline __m512 exp_weight(__m512 x) {
    __m512 n;
    const __m512 p = exp_parts(x, &n);
    const __mmask16 is_kept = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.33f), _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(is_kept, p, n);
}

#endif
