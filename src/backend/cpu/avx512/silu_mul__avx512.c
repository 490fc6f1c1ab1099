/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx512/avx512.h"
#include "backend/cpu/avx512/exp.h"

/* With t = exp(-|a|) the sigmoid is 1 / (1 + t), or t / (1 + t) where a is negative: no overflow,
 * and no digits lost far from 0. */
static __m512 silu(__m512 a) {
    const __m512 one = _mm512_set1_ps(1.0f), sign = _mm512_set1_ps(-0.0f);
    const __m512 t = exp_negative(_mm512_or_ps(a, sign));
    const __mmask16 negative = _mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_LT_OQ);
    const __m512 top = _mm512_mask_mov_ps(one, negative, t);
    return _mm512_mul_ps(a, _mm512_div_ps(top, _mm512_add_ps(one, t)));
}

void ag_silu_mul__avx512(float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = (__mmask16)(n - i < 16 ? (1u << (n - i)) - 1 : 0xffff);
        const __m512 y = silu(_mm512_maskz_loadu_ps(lanes, a + i));
        _mm512_mask_storeu_ps(a + i, lanes, _mm512_mul_ps(y, _mm512_maskz_loadu_ps(lanes, b + i)));
    }
}
