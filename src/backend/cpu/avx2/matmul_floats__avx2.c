/* SPDX-License-Identifier: Apache-2.0 */
/* Vector sums and loads for simd/matmul_floats.h: 8 lanes. */
#include "backend/cpu/avx2/avx2.h"
#include "backend/cpu/avx2/vec.h"

typedef vec wide;

/* X_ROWS: rows of activations multiplied at a time, four sums each. */
enum { WIDE = LANES, X_ROWS = 2, FETCHES_WEIGHTS = 1 };

INLINE wide wide_zero(void) { return v_zero(); }
INLINE wide wide_load(const float *p) { return _mm256_load_ps(p); }
INLINE wide wide_fma(wide a, wide b, wide c) { return v_fma(a, b, c); }

INLINE float wide_sum(wide v) {
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

INLINE wide load_f32(const unsigned char *p) { return v_load((const void *)p); }
INLINE wide load_f16(const unsigned char *p) { return v_load_f16(p); }
INLINE wide load_bf16(const unsigned char *p) {
    const __m128i halves = _mm_loadu_si128((const void *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

#include "backend/cpu/simd/matmul_floats.h"
