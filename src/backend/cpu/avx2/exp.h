/* SPDX-License-Identifier: Apache-2.0 */
/* Exponentials for x <= 0: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial for exp(r), times 2^n.
 * The error is at most 2 units in the last place; NaN gives NaN. */
#ifndef AG_BACKEND_CPU_AVX2_EXP_H
#define AG_BACKEND_CPU_AVX2_EXP_H

#include <immintrin.h>

static inline __m256 power_of_two(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

/* Returns p with exp(x) = p 2^n. */
static inline __m256 exp_parts(__m256 x, __m256i *n) {
    const __m256 whole = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(0x1.715476p+0f)),
                                         _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    *n = _mm256_cvtps_epi32(whole);
    /* ln 2 as a sum of two floats; the product of n and the first one is exact. */
    __m256 r = _mm256_fnmadd_ps(whole, _mm256_set1_ps(0x1.62ep-1f), x);
    r = _mm256_fnmadd_ps(whole, _mm256_set1_ps(0x1.0bfbe8p-15f), r);
    __m256 p = _mm256_set1_ps(1.0f / 5040);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 720));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    return _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
}

/* Returns exp(x), 0 below -104. */
static inline __m256 exp_negative(__m256 x) {
    __m256i n;
    x = _mm256_max_ps(_mm256_set1_ps(-110.0f), x); /* this order of operands keeps NaN */
    const __m256 p = exp_parts(x, &n);
    /* Two factors: 2^-159 is below the range of floats, but the result may be subnormal. */
    const __m256i part = _mm256_srai_epi32(n, 1);
    return _mm256_mul_ps(_mm256_mul_ps(p, power_of_two(part)),
                         power_of_two(_mm256_sub_epi32(n, part)));
}

/* Returns exp(x), 0 below -87.33: never a subnormal number. Weights of attention are multiplied
 * many times, and a product with a subnormal number takes over a hundred cycles. */
static inline __m256 exp_weight(__m256 x) {
    __m256i n;
    const __m256 p = exp_parts(x, &n);
    const __m256 is_kept = _mm256_cmp_ps(x, _mm256_set1_ps(-87.33f), _CMP_NLT_UQ); /* NaN too */
    return _mm256_and_ps(is_kept, _mm256_mul_ps(p, power_of_two(n)));
}

#endif
