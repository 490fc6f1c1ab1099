/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx512/avx512.h"

#include <immintrin.h>

void ag_rope__avx512(float *x, const float *cos_sin, size_t n) {
    const size_t half = n / 2;
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    for (size_t i = 0; i < half; i += 16) {
        const size_t left = half - i;
        const __mmask16 lanes = (__mmask16)(left < 16 ? (1u << left) - 1 : 0xffff);
        const uint32_t both = left < 16 ? (uint32_t)((UINT64_C(1) << 2 * left) - 1) : UINT32_MAX;
        const __m512 p = _mm512_maskz_loadu_ps((__mmask16)both, cos_sin + 2 * i);
        const __m512 q = _mm512_maskz_loadu_ps((__mmask16)(both >> 16), cos_sin + 2 * i + 16);
        const __m512 c = _mm512_permutex2var_ps(p, even, q), s = _mm512_permutex2var_ps(p, odd, q);
        const __m512 a = _mm512_maskz_loadu_ps(lanes, x + i);
        const __m512 b = _mm512_maskz_loadu_ps(lanes, x + i + half);
        _mm512_mask_storeu_ps(x + i, lanes, _mm512_fmsub_ps(a, c, _mm512_mul_ps(b, s)));
        _mm512_mask_storeu_ps(x + i + half, lanes, _mm512_fmadd_ps(b, c, _mm512_mul_ps(a, s)));
    }
}
