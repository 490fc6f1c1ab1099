/* SPDX-License-Identifier: Apache-2.0 */
/* Attention scores of quantised keys in integers. Include a vec.h and a words.h first. Queries are
 * rounded to 16 bits, 32 values with one scale: 256 times finer than Q8_0 keys. Sums over 32 values
 * are exact.
 *
 * A word has 4 bytes: a few adjacent values. Keys are transposed as they are unpacked, once for all
 * queries: a quad of a vector has the same word of four slots. All lanes of a query's quad have the
 * query's word. A vector then has the scores of QUADS queries for four slots, as for float keys. */
#ifndef AG_BACKEND_CPU_SIMD_KEY_WORDS_H
#define AG_BACKEND_CPU_SIMD_KEY_WORDS_H

#include "backend/cpu/simd/cache_rows.h"

#include <float.h>
#include <math.h>

enum {
    QUADS = LANES / 4,
    SCORE_STRIDE = AG_KV_BLOCK * QUADS,              /* floats for a vector of queries */
    GROUP_ROWS = 8,                                  /* keys unpacked at a time */
    GROUP_QUADS = 2,                                 /* quads of slots */
    GROUP_WORDS = GROUP_QUADS * 4 * BLOCK_WORDS,     /* words for a block of 32 values */
    QUERY_WORDS = BLOCK_WORDS * QUERY_PARTS * LANES, /* words for such a block */
    QUERY_PART = QUERY_WORDS + 2 * LANES,
    MAX_INTEGER = 127 * 257, /* largest value of two signed bytes */
};

/* Queries of one call, [blocks of 32][vectors]. Each element has:
 *   words    [BLOCK_WORDS][QUERY_PARTS][LANES]
 *   offsets  [LANES] corrections of the keys' bias
 *   scales   [LANES] floats */
typedef struct query_words {
    int32_t *parts;
    size_t n_vecs, n_blocks;
} query_words;

static inline size_t query_words_floats(size_t n_vecs, size_t width) {
    return n_vecs * (width / AG_QK) * QUERY_PART;
}

/* Rounds 32 values to integers and returns their scale; NaN if one of the values is NaN or
 * infinite.
 */
INLINE float round_query(int16_t *rounded, const float *x, float factor) {
    vec largest = v_zero(), wrong = v_zero();
    for (size_t i = 0; i < AG_QK; i += LANES) {
        const vec v = v_mul(v_load(x + i), v_set(factor));
        largest = v_max(v_abs(v), largest);
        wrong = v_add(wrong, v_if_less(v_abs(v), v_set(INFINITY), v_zero(), v_set(1)));
    }
    const float scale = v_highest(largest) / MAX_INTEGER;
    const bool right = v_highest(wrong) == 0;
    const vec inverse = v_set(right && scale >= FLT_MIN ? factor / scale : 0);
    for (size_t i = 0; i < AG_QK; i += LANES) {
        int32_t n[LANES];
        v_store_rounded(n, right ? v_mul(v_load(x + i), inverse) : v_zero());
        for (size_t k = 0; k < LANES; k++) rounded[i + k] = (int16_t)n[k];
    }
    return right ? scale : NAN;
}

/* Packs query m. */
static void pack_query_words(const query_words *to, size_t m, const float *x, float factor,
                             int32_t bias) {
    for (size_t b = 0; b < to->n_blocks; b++) {
        int32_t *lanes = to->parts + (b * to->n_vecs + m / QUADS) * QUERY_PART + m % QUADS * 4;
        int16_t rounded[AG_QK];
        int32_t words[BLOCK_WORDS * QUERY_PARTS], sum = 0;
        const float scale = round_query(rounded, x + b * AG_QK, factor);
        for (size_t i = 0; i < AG_QK; i++) sum += rounded[i];
        words_of_query(words, rounded);
        for (size_t w = 0; w < BLOCK_WORDS * QUERY_PARTS; w++, lanes += LANES) {
            for (size_t i = 0; i < 4; i++) lanes[i] = words[w];
        }
        for (size_t i = 0; i < 4; i++) {
            lanes[i] = -bias * sum;
            memcpy(&lanes[LANES + i], &scale, sizeof scale);
        }
    }
}

/* scores += products of NV vectors of queries with one block of 32 values of eight keys. */
INLINE void score_group(const int NV, float *scores, const ivec low[][BLOCK_WORDS],
                        const ivec high[][BLOCK_WORDS], const int32_t *query, const int32_t *keys,
                        const float *key_scales) {
    ivec lower[WORD_VECS][GROUP_QUADS], upper[WORD_VECS][GROUP_QUADS];
    for (int v = 0; v < NV; v++) {
        for (int s = 0; s < GROUP_QUADS; s++) {
            lower[v][s] = i_load(query + v * QUERY_PART + QUERY_WORDS);
            upper[v][s] = i_zero();
        }
    }
    for (int w = 0; w < BLOCK_WORDS; w++) {
        ivec key[GROUP_QUADS];
        for (int s = 0; s < GROUP_QUADS; s++) key[s] = i_quad(keys + key_word_at(w, s));
        for (int v = 0; v < NV; v++) {
            const int32_t *word = query + v * QUERY_PART + w * QUERY_PARTS * LANES;
            const ivec l = NV <= HELD_VECS ? low[v][w] : i_load(word);
            const ivec h = NV <= HELD_VECS ? high[v][w] : i_load(word + (QUERY_PARTS - 1) * LANES);
            for (int s = 0; s < GROUP_QUADS; s++) {
                lower[v][s] = i_dot(lower[v][s], key[s], l);
                if (QUERY_PARTS == 2) upper[v][s] = i_dot(upper[v][s], key[s], h);
            }
        }
    }
    for (int v = 0; v < NV; v++) {
        const void *scales = query + v * QUERY_PART + QUERY_WORDS + LANES;
        for (int s = 0; s < GROUP_QUADS; s++) {
            float *sums = scores + v * SCORE_STRIDE + s * LANES;
            const ivec rounded = QUERY_PARTS == 2 ? i_join(upper[v][s], lower[v][s]) : lower[v][s];
            const vec scale = v_mul(v_quad(key_scales + s * 4), v_load(scales));
            v_store(sums, v_fma(i_floats(rounded), scale, v_load(sums)));
        }
    }
}

/* Computes the scores of NV vectors of queries, from vector v on, for n_groups of keys. key_scales:
 * [blocks][AG_KV_BLOCK] from the first slot on. Up to HELD_VECS vectors of queries of one block of
 * 32 values stay in registers. */
INLINE void score_groups(const int NV, float *scores, const query_words *q, size_t v,
                         const int32_t *keys, size_t n_groups, const float *key_scales,
                         fetcher *f) {
    for (int i = 0; i < NV; i++) {
        memset(scores + i * SCORE_STRIDE, 0, n_groups * GROUP_QUADS * LANES * sizeof *scores);
    }
    for (size_t b = 0; b < q->n_blocks; b++, key_scales += AG_KV_BLOCK) {
        const int32_t *query = q->parts + (b * q->n_vecs + v) * QUERY_PART;
        const int32_t *words = keys + b * GROUP_WORDS;
        ivec low[WORD_VECS][BLOCK_WORDS], high[WORD_VECS][BLOCK_WORDS];
        for (int i = 0; NV <= HELD_VECS && i < NV; i++) {
            for (int w = 0; w < BLOCK_WORDS; w++) {
                const int32_t *word = query + i * QUERY_PART + w * QUERY_PARTS * LANES;
                low[i][w] = i_load(word);
                high[i][w] = i_load(word + (QUERY_PARTS - 1) * LANES);
            }
        }
        for (size_t g = 0; g < n_groups; g++, words += q->n_blocks * GROUP_WORDS) {
            fetch_step(f);
            score_group(NV, scores + g * GROUP_QUADS * LANES, (const ivec(*)[BLOCK_WORDS])low,
                        (const ivec(*)[BLOCK_WORDS])high, query, words,
                        key_scales + g * GROUP_ROWS);
        }
    }
}

/* Unpacks n rows, rounded up to full groups, to [groups][blocks][GROUP_WORDS]. */
INLINE void unpack_keys(const ag_dtype type, int32_t *words, const unsigned char *rows, size_t n,
                        size_t row_bytes, size_t n_blocks) {
    const size_t block_bytes = type == AG_Q8_0 ? sizeof(ag_block_q8_0) : sizeof(ag_block_q4_0);
    const size_t levels =
        type == AG_Q8_0 ? offsetof(ag_block_q8_0, qs) : offsetof(ag_block_q4_0, qs);
    for (size_t s = 0; s < n; s += GROUP_ROWS, rows += GROUP_ROWS * row_bytes) {
        for (size_t b = 0; b < n_blocks; b++, words += GROUP_WORDS) {
            unpack_group(type, words, rows + b * block_bytes + levels, row_bytes);
        }
    }
}

#endif
