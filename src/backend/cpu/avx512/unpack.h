/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacks blocks of interleaved weights, 16 rows at a time. */
#ifndef AG_BACKEND_CPU_AVX512_UNPACK_H
#define AG_BACKEND_CPU_AVX512_UNPACK_H

#include "backend/cpu/interleaved.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

INLINE __m512 load_halves(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256(p)); }
INLINE __m512i load_bytes(const void *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128(p)); }

/* Returns 2^(e - 128), the unit of values of MXFP4, for 16 exponent bytes e; NaN for 255, since
 * twice the unit is infinite. Subtraction is exact, also for units that are not normal. */
INLINE __m512 load_exponents(const void *p) {
    const __m512i bits = _mm512_slli_epi32(load_bytes(p), 23);
    const __m512i smallest = _mm512_set1_epi32(0x00400000); /* 2^-127 */
    const __m512 twice = _mm512_castsi512_ps(_mm512_max_epi32(bits, smallest));
    return _mm512_fnmadd_ps(twice, _mm512_set1_ps(0.5f), twice);
}

/* Returns a & mask | b. */
INLINE __m512i masked_or(__m512i a, __m512i mask, __m512i b) {
    enum { A_AND_B_OR_C = 0xea };
    return _mm512_ternarylogic_epi32(a, mask, b, A_AND_B_OR_C);
}

/* Unpacks the lower four bits of the levels of a block. */
INLINE void unpack_nibbles(__m512i q[8], const uint8_t qs[4][AG_X16][4]) {
    const __m512i low = _mm512_set1_epi8(15);
    for (int v = 0; v < 4; v++) {
        const __m512i both = _mm512_loadu_si512(qs[v]);
        q[v] = _mm512_and_si512(both, low);
        q[v + 4] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
    }
}

/* Returns q | (bits << n & mask), byte by byte. */
INLINE __m512i add_bits(__m512i q, __m512i bits, const int n, int mask) {
    const __m512i there =
        n < 0 ? _mm512_srli_epi16(bits, (unsigned)-n) : _mm512_slli_epi16(bits, (unsigned)n);
    return masked_or(there, _mm512_set1_epi8((char)mask), q);
}

/* Adds one bit of each level at bit `bit`. */
INLINE void add_bit(__m512i q[8], const uint8_t qh[AG_X16][4], const int bit) {
    const __m512i bits = _mm512_loadu_si512(qh);
    for (int v = 0; v < 8; v++) q[v] = add_bits(q[v], bits, bit - v, 1 << bit);
}

/* Adds two bits of each level at bits `bit` and `bit` + 1. */
INLINE void add_pairs(__m512i q[8], const uint8_t pairs[2][AG_X16][4], const int bit) {
    for (int v = 0; v < 8; v++) {
        q[v] = add_bits(q[v], _mm512_loadu_si512(pairs[v / 4]), bit - v % 4 * 2, 3 << bit);
    }
}

/* Unpacks the levels of Q3_K, doubled. */
INLINE void unpack_twice_q3_k(__m512i q[8], const ag_q3_k_x16 *s, size_t block) {
    for (int v = 0; v < 8; v++) q[v] = _mm512_setzero_si512();
    add_pairs(q, s->qs[block], 1);
    add_bit(q, s->qh[block], 3);
}

/* Loads a block's 6-bit scale and minimum. They multiply the step's d and m. */
INLINE void unpack_scales(__m512 scales[2], const ag_x16_scales *s, size_t block) {
    const __m512i low = load_bytes(s->low[block]);
    const __m128i shift = _mm_cvtsi32_si128((int)(block % 2 * 4));
    const __m512i high = _mm512_srl_epi32(load_bytes(s->high[block / 2]), shift);
    const __m512i upper = _mm512_set1_epi32(0x30), lower = _mm512_set1_epi32(15);
    const __m512i sc = masked_or(_mm512_slli_epi32(high, 4), upper, _mm512_and_si512(low, lower));
    const __m512i m = masked_or(_mm512_slli_epi32(high, 2), upper, _mm512_srli_epi32(low, 4));
    scales[0] = _mm512_cvtepi32_ps(sc);
    scales[1] = _mm512_cvtepi32_ps(m);
}

/* Loads the scales of Q6_K, for columns 0 to 15 and 16 to 31. */
INLINE void unpack_part_scales(__m512 scales[2], const int8_t s[2][AG_X16]) {
    for (int g = 0; g < 2; g++) {
        const __m128i bytes = _mm_loadu_si128((const void *)s[g]);
        scales[g] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
    }
}

/* Loads the scales of Q3_K, which are unsigned in the layout. */
INLINE void unpack_q3_k_scales(__m512 scales[2], const ag_x16_scales *s, size_t block) {
    unpack_scales(scales, s, block);
    for (int g = 0; g < 2; g++) scales[g] = _mm512_sub_ps(scales[g], _mm512_set1_ps(32));
}

/* Loads the scales and minima of Q2_K. The minima multiply m. */
INLINE void unpack_q2_k_scales(__m512 scales[2], __m512 mins[2], const uint8_t s[2][AG_X16]) {
    for (int g = 0; g < 2; g++) {
        const __m512i both = load_bytes(s[g]);
        scales[g] = _mm512_cvtepi32_ps(_mm512_and_si512(both, _mm512_set1_epi32(15)));
        mins[g] = _mm512_cvtepi32_ps(_mm512_srli_epi32(both, 4));
    }
}

#endif
