/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx2/avx2.h"
#include "backend/cpu/avx2/exp.h"
#include "backend/cpu/avx2/tail.h"

/* With t = exp(-|a|) the sigmoid is 1 / (1 + t), or t / (1 + t) where a is negative: no overflow,
 * and no digits lost far from 0. */
static __m256 silu(__m256 a) {
    const __m256 one = _mm256_set1_ps(1.0f), sign = _mm256_set1_ps(-0.0f);
    const __m256 t = exp_negative(_mm256_or_ps(a, sign));
    const __m256 top = _mm256_blendv_ps(one, t, a); /* by a's sign */
    return _mm256_mul_ps(a, _mm256_div_ps(top, _mm256_add_ps(one, t)));
}

void ag_silu_mul__avx2(float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i += 8) {
        const __m256i lanes = first_lanes(n - i);
        const __m256 y = silu(_mm256_maskload_ps(a + i, lanes));
        _mm256_maskstore_ps(a + i, lanes, _mm256_mul_ps(y, _mm256_maskload_ps(b + i, lanes)));
    }
}
