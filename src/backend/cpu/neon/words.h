/* SPDX-License-Identifier: Apache-2.0 */
/* Integers for simd/key_words.h: words of four bytes, multiplied by sdot with the extension
 * dotprod. A query's 16 bits are two words. */
#ifndef AG_BACKEND_CPU_NEON_WORDS_H
#define AG_BACKEND_CPU_NEON_WORDS_H

#include "backend/cpu/neon/vec.h"

#include <antigravity/dtype.h>

typedef int32x4_t ivec;

enum {
    QUERY_PARTS = 2,
    BLOCK_WORDS = 8, /* words of 32 values */
    WORD_VECS = 4,   /* vectors of queries whose sums are in registers */
    HELD_VECS = 1,   /* vectors of queries whose words are in registers, too */
};

INLINE ivec i_zero(void) { return vdupq_n_s32(0); }
INLINE ivec i_load(const int32_t *p) { return vld1q_s32(p); }
/* Loads p[0..4) into every quad. */
INLINE ivec i_quad(const int32_t *p) { return vld1q_s32(p); }
INLINE vec i_floats(ivec a) { return vcvtq_f32_s32(a); }
/* Returns sum + key * query, summed over the values of a word. */
INLINE ivec i_dot(ivec sum, ivec key, ivec query) {
    const int8x16_t a = vreinterpretq_s8_s32(key), b = vreinterpretq_s8_s32(query);
#ifdef __ARM_FEATURE_DOTPROD
    return vdotq_s32(sum, a, b);
#else
    const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b)), high = vmull_high_s8(a, b);
    return vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
#endif
}
/* Joins the sums of a query's upper and lower bytes. */
INLINE ivec i_join(ivec upper, ivec lower) { return vaddq_s32(vshlq_n_s32(upper, 8), lower); }
/* Stores the nearest integers. */
INLINE void v_store_rounded(int32_t *p, vec a) { vst1q_s32(p, vcvtnq_s32_f32(a)); }

/* ---- a block of 32 values ---- */

/* Returns the offset that unpack_group() adds to each value. */
INLINE int32_t key_bias(ag_dtype type) { return type == AG_Q8_0 ? 0 : 8; }

/* Returns the index of word w of four slots. */
INLINE size_t key_word_at(int w, int quad) { return (size_t)(quad * BLOCK_WORDS + w) * 4; }

/* Writes words of a query: [word][lower bytes, upper bytes]. */
INLINE void words_of_query(int32_t *words, const int16_t *rounded) {
    int8_t lower[32], upper[32];
    for (int i = 0; i < 32; i++) {
        lower[i] = (int8_t)(rounded[i] & 0xff);
        upper[i] = (int8_t)((rounded[i] - lower[i]) / 256);
    }
    for (size_t w = 0; w < BLOCK_WORDS; w++) {
        memcpy(&words[2 * w], lower + 4 * w, sizeof *words);
        memcpy(&words[2 * w + 1], upper + 4 * w, sizeof *words);
    }
}

/* Loads values 0 to 15 or 16 to 31 of a row. */
INLINE int32x4_t half_row(const ag_dtype type, const unsigned char *levels, int half) {
    if (type == AG_Q8_0) return vreinterpretq_s32_u8(vld1q_u8(levels + 16 * half));
    const uint8x16_t both = vld1q_u8(levels);
    return vreinterpretq_s32_u8(half ? vshrq_n_u8(both, 4) : vandq_u8(both, vdupq_n_u8(15)));
}

/* Unpacks words 4 half to 4 half + 3 of four rows. */
INLINE void unpack_half(const ag_dtype type, int32_t *words, const unsigned char *levels,
                        size_t row_bytes, int half) {
    int32x4_t r[4];
    for (size_t i = 0; i < 4; i++) r[i] = half_row(type, levels + i * row_bytes, half);
    const int64x2_t a = vreinterpretq_s64_s32(vzip1q_s32(r[0], r[1]));
    const int64x2_t b = vreinterpretq_s64_s32(vzip2q_s32(r[0], r[1]));
    const int64x2_t c = vreinterpretq_s64_s32(vzip1q_s32(r[2], r[3]));
    const int64x2_t d = vreinterpretq_s64_s32(vzip2q_s32(r[2], r[3]));
    vst1q_s32(words, vreinterpretq_s32_s64(vzip1q_s64(a, c)));
    vst1q_s32(words + 4, vreinterpretq_s32_s64(vzip2q_s64(a, c)));
    vst1q_s32(words + 8, vreinterpretq_s32_s64(vzip1q_s64(b, d)));
    vst1q_s32(words + 12, vreinterpretq_s32_s64(vzip2q_s64(b, d)));
}

/* Unpacks eight rows of a block, row_bytes apart. */
INLINE void unpack_group(const ag_dtype type, int32_t *words, const unsigned char *levels,
                         size_t row_bytes) {
    for (int quad = 0; quad < 2; quad++, levels += 4 * row_bytes) {
        unpack_half(type, words + key_word_at(0, quad), levels, row_bytes, 0);
        unpack_half(type, words + key_word_at(4, quad), levels, row_bytes, 1);
    }
}

#endif
