/* SPDX-License-Identifier: Apache-2.0 */
/* What lies in a block of interleaved weights, 16 rows at a time. */
#ifndef AG_BACKEND_CPU_AVX512_UNPACK_H
#define AG_BACKEND_CPU_AVX512_UNPACK_H

#include "backend/cpu/interleaved.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

INLINE __m512 load_halves(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256(p)); }
INLINE __m512i load_bytes(const void *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128(p)); }

/* a & mask | b. */
INLINE __m512i masked_or(__m512i a, __m512i mask, __m512i b) {
    enum { A_AND_B_OR_C = 0xea };
    return _mm512_ternarylogic_epi32(a, mask, b, A_AND_B_OR_C);
}

/* The lower four bits of the levels of a block. */
INLINE void unpack_nibbles(__m512i q[8], const uint8_t qs[4][AG_X16][4]) {
    const __m512i low = _mm512_set1_epi8(15);
    for (int v = 0; v < 4; v++) {
        const __m512i both = _mm512_loadu_si512(qs[v]);
        q[v] = _mm512_and_si512(both, low);
        q[v + 4] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
    }
}

INLINE void add_fifths(__m512i q[8], const uint8_t qh[AG_X16][4]) {
    const __m512i bits = _mm512_loadu_si512(qh), fifth = _mm512_set1_epi8(16);
    for (unsigned v = 0; v < 8; v++) {
        const __m512i at_4 =
            v < 4 ? _mm512_slli_epi16(bits, 4 - v) : _mm512_srli_epi16(bits, v - 4);
        q[v] = masked_or(at_4, fifth, q[v]);
    }
}

/* Bits 4 and 5. */
INLINE void add_upper(__m512i q[8], const uint8_t qh[2][AG_X16][4]) {
    const __m512i upper = _mm512_set1_epi8(0x30);
    for (unsigned v = 0; v < 8; v++) {
        const __m512i bits = _mm512_loadu_si512(qh[v / 4]);
        const unsigned f = v % 4;
        const __m512i at_4 =
            f < 2 ? _mm512_slli_epi16(bits, 4 - 2 * f) : _mm512_srli_epi16(bits, 2 * f - 4);
        q[v] = masked_or(at_4, upper, q[v]);
    }
}

/* Of a block what its step's d and m are multiplied with. */
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

/* The same of Q6_K: of columns 0 to 15 and of the others. */
INLINE void unpack_part_scales(__m512 scales[2], const int8_t s[2][AG_X16]) {
    for (int g = 0; g < 2; g++) {
        const __m128i bytes = _mm_loadu_si128((const void *)s[g]);
        scales[g] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
    }
}

#endif
