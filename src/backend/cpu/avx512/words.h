/* SPDX-License-Identifier: Apache-2.0 */
/* Integers for simd/key_words.h: words of four bytes, multiplied by VNNI. Bytes of keys are
 * unsigned. The 16-bit values of a query are two words: lower and upper bytes. */
#ifndef AG_BACKEND_CPU_AVX512_WORDS_H
#define AG_BACKEND_CPU_AVX512_WORDS_H

#include "backend/cpu/avx512/vec.h"

#include <antigravity/dtype.h>
#include <string.h>

typedef __m512i ivec;

enum {
    QUERY_PARTS = 2,
    BLOCK_WORDS = 8, /* words of 32 values */
    WORD_VECS = 4,   /* vectors of queries whose sums are in registers */
    HELD_VECS = 1,   /* vectors of queries whose words are in registers, too */
};

INLINE ivec i_zero(void) { return _mm512_setzero_si512(); }
INLINE ivec i_load(const int32_t *p) { return _mm512_loadu_si512(p); }
/* Loads p[0..4) into every quad. */
INLINE ivec i_quad(const int32_t *p) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)p));
}
INLINE vec i_floats(ivec a) { return _mm512_cvtepi32_ps(a); }
/* Returns sum + key * query, summed over the values of a word. */
INLINE ivec i_dot(ivec sum, ivec key, ivec query) { return _mm512_dpbusd_epi32(sum, key, query); }
/* Joins the sums of a query's upper and lower bytes. */
INLINE ivec i_join(ivec upper, ivec lower) {
    return _mm512_add_epi32(_mm512_slli_epi32(upper, 8), lower);
}
/* Stores the nearest integers. */
INLINE void v_store_rounded(int32_t *p, vec a) { _mm512_storeu_si512(p, _mm512_cvtps_epi32(a)); }

/* ---- a block of 32 values ---- */

/* Returns the offset that unpack_group() adds to each value. The query's offsets correct for it. */
INLINE int32_t key_bias(ag_dtype type) { return type == AG_Q8_0 ? 128 : 8; }

/* Returns the index of word w of a quad of four slots (keys) in a group of eight. Words of values 0
 * to 15 and 16 to 31 alternate. */
INLINE size_t key_word_at(int w, int quad) { return (size_t)(w / 2 * 16 + quad * 8 + w % 2 * 4); }

/* Writes words of a query: [word][lower bytes, upper bytes]. */
INLINE void words_of_query(int32_t *words, const int16_t *rounded) {
    int8_t lower[32], upper[32];
    for (int i = 0; i < 32; i++) {
        lower[i] = (int8_t)(rounded[i] & 0xff);
        upper[i] = (int8_t)((rounded[i] - lower[i]) / 256);
    }
    for (size_t w = 0; w < BLOCK_WORDS; w++) {
        const size_t i = w % 2 * 16 + w / 2 * 4;
        memcpy(&words[2 * w], lower + i, sizeof *words);
        memcpy(&words[2 * w + 1], upper + i, sizeof *words);
    }
}

/* Rows r and r + 4, 32 bytes each. */
INLINE __m512i two_rows(const ag_dtype type, const unsigned char *levels, size_t row_bytes) {
    const unsigned char *other = levels + 4 * row_bytes;
    if (type == AG_Q8_0) {
        const __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)levels);
        const __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)other);
        const __m512i rows = _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
        return _mm512_xor_si512(rows, _mm512_set1_epi8((char)0x80));
    }
    const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)levels);
    const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)other);
    const __m512i shift = _mm512_set_epi32(4, 4, 4, 4, 0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0);
    const __m512i twice = _mm512_castsi256_si512(_mm256_broadcastsi128_si256(a));
    const __m512i rows = _mm512_mask_broadcast_i32x4(twice, 0xff00, b);
    return _mm512_and_si512(_mm512_srlv_epi32(rows, shift), _mm512_set1_epi8(15));
}

/* Unpacks eight rows of a block, row_bytes apart. */
INLINE void unpack_group(const ag_dtype type, int32_t *words, const unsigned char *levels,
                         size_t row_bytes) {
    __m512i r[4];
    for (size_t i = 0; i < 4; i++) r[i] = two_rows(type, levels + i * row_bytes, row_bytes);
    const __m512i a = _mm512_unpacklo_epi32(r[0], r[1]), b = _mm512_unpackhi_epi32(r[0], r[1]);
    const __m512i c = _mm512_unpacklo_epi32(r[2], r[3]), d = _mm512_unpackhi_epi32(r[2], r[3]);
    _mm512_storeu_si512(words, _mm512_unpacklo_epi64(a, c));
    _mm512_storeu_si512(words + 16, _mm512_unpackhi_epi64(a, c));
    _mm512_storeu_si512(words + 32, _mm512_unpacklo_epi64(b, d));
    _mm512_storeu_si512(words + 48, _mm512_unpackhi_epi64(b, d));
}

#endif
