/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors for the shared code of simd/: 8 floats, in quads of 4. */
#ifndef AG_BACKEND_CPU_AVX2_VEC_H
#define AG_BACKEND_CPU_AVX2_VEC_H

#include "backend/cpu/avx2/exp.h"

#include <stddef.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))

typedef __m256 vec;

enum {
    LANES = 8,
    /* Sums that attention holds in registers: KEY_VECS vectors of queries times 4 keys, VALUE_VECS
     * vectors of values times 4 queries. */
    KEY_VECS = 2,
    VALUE_VECS = 2,
};

INLINE vec v_zero(void) { return _mm256_setzero_ps(); }
INLINE vec v_set(float x) { return _mm256_set1_ps(x); }
INLINE vec v_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void v_store(float *p, vec a) { _mm256_storeu_ps(p, a); }
INLINE vec v_add(vec a, vec b) { return _mm256_add_ps(a, b); }
INLINE vec v_sub(vec a, vec b) { return _mm256_sub_ps(a, b); }
INLINE vec v_mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
INLINE vec v_div(vec a, vec b) { return _mm256_div_ps(a, b); }
/* a * b + c, rounded once. */
INLINE vec v_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
/* Returns the maximum; b if either is NaN. */
INLINE vec v_max(vec a, vec b) { return _mm256_max_ps(a, b); }
INLINE vec v_min(vec a, vec b) { return _mm256_min_ps(a, b); }
INLINE vec v_abs(vec a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
/* Return the largest and the smallest of all lanes. */
INLINE float v_highest(vec a) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}
INLINE float v_lowest(vec a) {
    __m128 m = _mm_min_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    m = _mm_min_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_min_ss(m, _mm_movehdup_ps(m)));
}

/* a < b ? yes : no, lane by lane. */
INLINE vec v_if_less(vec a, vec b, vec yes, vec no) {
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

/* Returns exp(x) for x <= 0 or NaN. */
INLINE vec v_exp(vec x) { return exp_negative(x); }
INLINE vec v_weight(vec x) { return exp_weight(x); }

/* ---- quads ---- */

/* Loads p[0..4) into every quad. */
INLINE vec v_quad(const float *p) { return _mm256_broadcast_ps((const __m128 *)p); }
/* Loads p[q] into all lanes of quad q. */
INLINE vec v_quads_of(const float *p) {
    return _mm256_set_m128(_mm_set1_ps(p[1]), _mm_set1_ps(p[0]));
}
/* Stores lane 0 of every quad. */
INLINE void v_store_firsts(float *p, vec a) {
    p[0] = _mm256_cvtss_f32(a);
    p[1] = _mm_cvtss_f32(_mm256_extractf128_ps(a, 1));
}
/* Rearrange lanes within every quad of four lanes. In this order they return: a0 b0 a1 b1;
 * a2 b2 a3 b3; a0 a1 b0 b1; a2 a3 b2 b3; a1 a0 a3 a2 (of a alone); a2 a3 a0 a1 (of a alone). */
INLINE vec v_zip_low(vec a, vec b) { return _mm256_unpacklo_ps(a, b); }
INLINE vec v_zip_high(vec a, vec b) { return _mm256_unpackhi_ps(a, b); }
INLINE vec v_pairs_low(vec a, vec b) { return _mm256_shuffle_ps(a, b, 0x44); }
INLINE vec v_pairs_high(vec a, vec b) { return _mm256_shuffle_ps(a, b, 0xee); }
INLINE vec v_swap_lanes(vec a) { return _mm256_permute_ps(a, 0xb1); }
INLINE vec v_swap_pairs(vec a) { return _mm256_permute_ps(a, 0x4e); }

/* ---- from a cache ---- */

INLINE vec v_load_f16(const void *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

/* Loads values at, at + 1, ... of the 32 bytes at q; `at` is a multiple of LANES. */
INLINE vec v_load_q8(const unsigned char *q, size_t at) {
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(q + at));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}

/* Loads values of 32 nibbles minus 8: values 0 to 15 are the low nibbles of 16 bytes, values 16 to
 * 31 the high nibbles. */
INLINE vec v_load_q4(const unsigned char *q, size_t at) {
    __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(q + at % 16));
    if (at >= 16) bytes = _mm_srli_epi16(bytes, 4);
    const __m128i levels = _mm_sub_epi8(_mm_and_si128(bytes, _mm_set1_epi8(15)), _mm_set1_epi8(8));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(levels));
}

/* ---- into a cache ---- */

INLINE void v_store_f16(void *p, vec a) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

/* Stores 8 integers between -128 and 127 as bytes. */
INLINE void store_bytes(unsigned char *q, __m256i n) {
    const __m128i pairs =
        _mm_packs_epi32(_mm256_castsi256_si128(n), _mm256_extracti128_si256(n, 1));
    _mm_storel_epi64((__m128i *)(void *)q, _mm_packs_epi16(pairs, pairs));
}

/* Stores bytes of the nearest integers, halves rounded up, clamped to -127 and 127. */
INLINE void v_store_q8(unsigned char *q, vec a) {
    __m256i n = _mm256_cvttps_epi32(_mm256_add_ps(a, _mm256_set1_ps(256.5f)));
    n = _mm256_sub_epi32(n, _mm256_set1_epi32(256));
    n = _mm256_min_epi32(n, _mm256_set1_epi32(127));
    store_bytes(q, _mm256_max_epi32(n, _mm256_set1_epi32(-127)));
}

/* Returns the nearest integers plus 8, clamped to 0 and 15. */
INLINE __m256i levels_of(vec a) {
    const __m256i n = _mm256_cvttps_epi32(_mm256_add_ps(a, _mm256_set1_ps(8.5f)));
    return _mm256_max_epi32(_mm256_min_epi32(n, _mm256_set1_epi32(15)), _mm256_setzero_si256());
}

/* Stores LANES bytes with the levels of `low` in their low nibbles. */
INLINE void v_store_q4(unsigned char *q, vec low, vec high) {
    const __m256i n = _mm256_or_si256(levels_of(low), _mm256_slli_epi32(levels_of(high), 4));
    const __m128i pairs =
        _mm_packs_epi32(_mm256_castsi256_si128(n), _mm256_extracti128_si256(n, 1));
    _mm_storel_epi64((__m128i *)(void *)q, _mm_packus_epi16(pairs, pairs));
}

INLINE uint16_t float_to_half(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }
INLINE float half_to_float(uint16_t h) { return _cvtsh_ss(h); }

#endif
