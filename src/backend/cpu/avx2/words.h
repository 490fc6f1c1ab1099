/* SPDX-License-Identifier: Apache-2.0 */
/* Integers for simd/key_words.h: words of two 16-bit values, for keys and queries. */
#ifndef AG_BACKEND_CPU_AVX2_WORDS_H
#define AG_BACKEND_CPU_AVX2_WORDS_H

#include "backend/cpu/avx2/vec.h"

#include <antigravity/dtype.h>
#include <string.h>

typedef __m256i ivec;

enum {
    QUERY_PARTS = 1,
    BLOCK_WORDS = 16, /* words of 32 values */
    WORD_VECS = 2,    /* vectors of queries whose sums are in registers */
    HELD_VECS = 0,    /* vectors of queries whose words are in registers, too */
};

INLINE ivec i_zero(void) { return _mm256_setzero_si256(); }
INLINE ivec i_load(const int32_t *p) {
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}
/* Loads p[0..4) into every quad. */
INLINE ivec i_quad(const int32_t *p) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)p));
}
INLINE vec i_floats(ivec a) { return _mm256_cvtepi32_ps(a); }
/* Returns sum + key * query, summed over the values of a word. */
INLINE ivec i_dot(ivec sum, ivec key, ivec query) {
#ifdef __AVXVNNI__
    return _mm256_dpwssd_avx_epi32(sum, key, query);
#else
    return _mm256_add_epi32(sum, _mm256_madd_epi16(key, query));
#endif
}
INLINE ivec i_join(ivec upper, ivec lower) {
    return _mm256_add_epi32(_mm256_slli_epi32(upper, 8), lower);
}
/* Stores the nearest integers. */
INLINE void v_store_rounded(int32_t *p, vec a) {
    _mm256_storeu_si256((__m256i *)(void *)p, _mm256_cvtps_epi32(a));
}

/* ---- a block of 32 values ---- */

/* Returns the offset that unpack_group() adds to each value. */
INLINE int32_t key_bias(ag_dtype type) { return type == AG_Q8_0 ? 0 : 8; }

/* Returns the index of word w of four slots. */
INLINE size_t key_word_at(int w, int quad) { return (size_t)(quad * BLOCK_WORDS + w) * 4; }

/* Word 4 i + 2 k + h has values 16 h + 4 i + k and 16 h + 4 i + k + 2. */
INLINE void words_of_query(int32_t *words, const int16_t *rounded) {
    for (size_t w = 0; w < BLOCK_WORDS; w++) {
        const int16_t *x = rounded + w % 2 * 16 + w / 4 * 4 + w / 2 % 2;
        words[w] = (int32_t)((uint32_t)(uint16_t)x[0] | (uint32_t)(uint16_t)x[2] << 16);
    }
}

/* Loads one row: 32 bytes. */
INLINE __m256i one_row(const ag_dtype type, const unsigned char *levels) {
    if (type == AG_Q8_0) return _mm256_loadu_si256((const __m256i *)(const void *)levels);
    const __m128i row = _mm_loadu_si128((const __m128i *)(const void *)levels);
    const __m256i both =
        _mm256_inserti128_si256(_mm256_castsi128_si256(row), _mm_srli_epi16(row, 4), 1);
    return _mm256_and_si256(both, _mm256_set1_epi8(15));
}

/* Stores a word of four bytes as two words of 16-bit values: bytes 0 and 2, then 1 and 3. */
INLINE void store_words(int32_t *words, __m256i bytes) {
    const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8);
    _mm256_storeu_si256((__m256i *)(void *)words, even);
    _mm256_storeu_si256((__m256i *)(void *)(words + 8), _mm256_srai_epi16(bytes, 8));
}

/* Unpacks eight rows of a block, row_bytes apart. */
INLINE void unpack_group(const ag_dtype type, int32_t *words, const unsigned char *levels,
                         size_t row_bytes) {
    for (int quad = 0; quad < 2; quad++, words += BLOCK_WORDS * 4) {
        __m256i r[4];
        for (int i = 0; i < 4; i++, levels += row_bytes) r[i] = one_row(type, levels);
        const __m256i a = _mm256_unpacklo_epi32(r[0], r[1]);
        const __m256i b = _mm256_unpackhi_epi32(r[0], r[1]);
        const __m256i c = _mm256_unpacklo_epi32(r[2], r[3]);
        const __m256i d = _mm256_unpackhi_epi32(r[2], r[3]);
        store_words(words, _mm256_unpacklo_epi64(a, c));
        store_words(words + 16, _mm256_unpackhi_epi64(a, c));
        store_words(words + 32, _mm256_unpacklo_epi64(b, d));
        store_words(words + 48, _mm256_unpackhi_epi64(b, d));
    }
}

#endif
