/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors for the shared code of simd/: 16 floats, in quads of 4. */
#ifndef AG_BACKEND_CPU_AVX512_VEC_H
#define AG_BACKEND_CPU_AVX512_VEC_H

#include "backend/cpu/avx512/exp.h"

#include <stddef.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))

typedef __m512 vec;

enum {
    LANES = 16,
    /* Sums that attention holds in registers: KEY_VECS vectors of queries times 4 keys, VALUE_VECS
     * vectors of values times 4 queries. */
    KEY_VECS = 4,
    VALUE_VECS = 4,
};

INLINE vec v_zero(void) { return _mm512_setzero_ps(); }
INLINE vec v_set(float x) { return _mm512_set1_ps(x); }
INLINE vec v_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void v_store(float *p, vec a) { _mm512_storeu_ps(p, a); }
INLINE vec v_add(vec a, vec b) { return _mm512_add_ps(a, b); }
INLINE vec v_sub(vec a, vec b) { return _mm512_sub_ps(a, b); }
INLINE vec v_mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
INLINE vec v_div(vec a, vec b) { return _mm512_div_ps(a, b); }
/* a * b + c, rounded once. */
INLINE vec v_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
/* Returns the maximum; b if either is NaN. */
INLINE vec v_max(vec a, vec b) { return _mm512_max_ps(a, b); }
INLINE vec v_min(vec a, vec b) { return _mm512_min_ps(a, b); }
INLINE vec v_abs(vec a) { return _mm512_abs_ps(a); }
/* Return the largest and the smallest of all lanes. */
INLINE float v_highest(vec a) { return _mm512_reduce_max_ps(a); }
INLINE float v_lowest(vec a) { return _mm512_reduce_min_ps(a); }
/* a < b ? yes : no, lane by lane. */
INLINE vec v_if_less(vec a, vec b, vec yes, vec no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}

/* Returns exp(x) for x <= 0 or NaN. */
INLINE vec v_exp(vec x) { return exp_negative(x); }
INLINE vec v_weight(vec x) { return exp_weight(x); }

/* ---- quads ---- */

/* Loads p[0..4) into every quad. */
INLINE vec v_quad(const float *p) { return _mm512_broadcast_f32x4(_mm_loadu_ps(p)); }
/* Loads p[q] into all lanes of quad q. */
INLINE vec v_quads_of(const float *p) {
    const __m512i quad = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
    return _mm512_permutexvar_ps(quad, _mm512_broadcast_f32x4(_mm_loadu_ps(p)));
}
/* Stores lane 0 of every quad. */
INLINE void v_store_firsts(float *p, vec a) {
    const __m512i first = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 8, 4, 0);
    _mm_storeu_ps(p, _mm512_castps512_ps128(_mm512_permutexvar_ps(first, a)));
}
/* Rearrange lanes within every quad of four lanes. In this order they return: a0 b0 a1 b1;
 * a2 b2 a3 b3; a0 a1 b0 b1; a2 a3 b2 b3; a1 a0 a3 a2 (of a alone); a2 a3 a0 a1 (of a alone). */
INLINE vec v_zip_low(vec a, vec b) { return _mm512_unpacklo_ps(a, b); }
INLINE vec v_zip_high(vec a, vec b) { return _mm512_unpackhi_ps(a, b); }
INLINE vec v_pairs_low(vec a, vec b) { return _mm512_shuffle_ps(a, b, 0x44); }
INLINE vec v_pairs_high(vec a, vec b) { return _mm512_shuffle_ps(a, b, 0xee); }
INLINE vec v_swap_lanes(vec a) { return _mm512_permute_ps(a, 0xb1); }
INLINE vec v_swap_pairs(vec a) { return _mm512_permute_ps(a, 0x4e); }

/* ---- from a cache ---- */

INLINE vec v_load_f16(const void *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

/* Loads values at, at + 1, ... of the 32 bytes at q; `at` is a multiple of LANES. */
INLINE vec v_load_q8(const unsigned char *q, size_t at) {
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(q + at));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}

/* Loads values of 32 nibbles minus 8: values 0 to 15 are the low nibbles of 16 bytes, values 16 to
 * 31 the high nibbles. */
INLINE vec v_load_q4(const unsigned char *q, size_t at) {
    const vec levels = _mm512_set_ps(7, 6, 5, 4, 3, 2, 1, 0, -1, -2, -3, -4, -5, -6, -7, -8);
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)q);
    __m512i index = _mm512_cvtepu8_epi32(bytes);
    if (at) index = _mm512_srli_epi32(index, 4);
    return _mm512_permutexvar_ps(index, levels); /* takes the low 4 bits of an index */
}

/* ---- into a cache ---- */

INLINE void v_store_f16(void *p, vec a) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

/* Stores bytes of the nearest integers, halves rounded up, clamped to -127 and 127. */
INLINE void v_store_q8(unsigned char *q, vec a) {
    __m512i n = _mm512_cvttps_epi32(_mm512_add_ps(a, _mm512_set1_ps(256.5f)));
    n = _mm512_sub_epi32(n, _mm512_set1_epi32(256));
    n = _mm512_max_epi32(_mm512_min_epi32(n, _mm512_set1_epi32(127)), _mm512_set1_epi32(-127));
    _mm_storeu_si128((__m128i *)(void *)q, _mm512_cvtepi32_epi8(n));
}

/* Returns the nearest integers plus 8, clamped to 0 and 15. */
INLINE __m512i levels_of(vec a) {
    const __m512i n = _mm512_cvttps_epi32(_mm512_add_ps(a, _mm512_set1_ps(8.5f)));
    return _mm512_max_epi32(_mm512_min_epi32(n, _mm512_set1_epi32(15)), _mm512_setzero_si512());
}

/* Stores LANES bytes with the levels of `low` in their low nibbles. */
INLINE void v_store_q4(unsigned char *q, vec low, vec high) {
    const __m512i n = _mm512_or_si512(levels_of(low), _mm512_slli_epi32(levels_of(high), 4));
    _mm_storeu_si128((__m128i *)(void *)q, _mm512_cvtepi32_epi8(n));
}

INLINE uint16_t float_to_half(float x) {
    return (uint16_t)_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT), 0);
}
INLINE float half_to_float(uint16_t h) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))); }

#endif
