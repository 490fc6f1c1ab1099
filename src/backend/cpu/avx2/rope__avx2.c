/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx2/avx2.h"
#include "backend/cpu/avx2/tail.h"

/* Returns the even or the odd values of 16, in order. */
static __m256 every_other(__m256 p, __m256 q, int odd) {
    const __m256 v = odd ? _mm256_shuffle_ps(p, q, 0xdd) : _mm256_shuffle_ps(p, q, 0x88);
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8));
}

void ag_rope__avx2(float *x, const float *cos_sin, size_t n) {
    const size_t half = n / 2;
    for (size_t i = 0; i < half; i += 8) {
        const size_t left = half - i;
        const __m256i lanes = first_lanes(left);
        const __m256 p = _mm256_maskload_ps(cos_sin + 2 * i, first_lanes(2 * left));
        const __m256 q =
            _mm256_maskload_ps(cos_sin + 2 * i + 8, first_lanes(left > 4 ? 2 * left - 8 : 0));
        const __m256 c = every_other(p, q, 0), s = every_other(p, q, 1);
        const __m256 a = _mm256_maskload_ps(x + i, lanes);
        const __m256 b = _mm256_maskload_ps(x + i + half, lanes);
        _mm256_maskstore_ps(x + i, lanes, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
        _mm256_maskstore_ps(x + i + half, lanes, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
    }
}
