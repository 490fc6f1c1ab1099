/* SPDX-License-Identifier: Apache-2.0 */
/* Vector sums and loads for simd/matmul_floats.h: 16 lanes. */
#include "backend/cpu/avx512/avx512.h"
#include "backend/cpu/avx512/vec.h"

typedef vec wide;

/* X_ROWS: rows of activations multiplied at a time, four sums each. */
enum { WIDE = LANES, X_ROWS = 4, FETCHES_WEIGHTS = 1 };

INLINE wide wide_zero(void) { return v_zero(); }
INLINE wide wide_load(const float *p) { return _mm512_load_ps(p); }
INLINE wide wide_fma(wide a, wide b, wide c) { return v_fma(a, b, c); }

INLINE float wide_sum(wide v) {
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

INLINE wide load_f32(const unsigned char *p) { return v_load((const void *)p); }
INLINE wide load_f16(const unsigned char *p) { return v_load_f16(p); }
INLINE wide load_bf16(const unsigned char *p) {
    const __m256i halves = _mm256_loadu_si256((const void *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

#define SET(name) name##__avx512
#include "backend/cpu/simd/matmul_floats.h"
