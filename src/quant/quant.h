/* SPDX-License-Identifier: Apache-2.0 */
/* Block layouts and the reference conversions between F32 and every other type. */
#ifndef AG_QUANT_QUANT_H
#define AG_QUANT_QUANT_H

#include <antigravity/dtype.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    AG_QK = 32,    /* elements in a block of the quantised types */
    AG_QK_K = 256, /* ... of those with K in their names */
};

typedef struct ag_block_q4_0 {
    uint16_t d; /* half */
    uint8_t qs[AG_QK / 2];
} ag_block_q4_0;

typedef struct ag_block_q4_1 {
    uint16_t d, m; /* halves */
    uint8_t qs[AG_QK / 2];
} ag_block_q4_1;

typedef struct ag_block_q8_0 {
    uint16_t d; /* half */
    int8_t qs[AG_QK];
} ag_block_q8_0;

/* qh: bit i of the 32 is the fifth bit of element i. */
typedef struct ag_block_q5_0 {
    uint16_t d; /* half */
    uint8_t qh[AG_QK / 8], qs[AG_QK / 2];
} ag_block_q5_0;

typedef struct ag_block_q5_1 {
    uint16_t d, m; /* halves */
    uint8_t qh[AG_QK / 8], qs[AG_QK / 2];
} ag_block_q5_1;

typedef struct ag_block_iq4_nl {
    uint16_t d; /* half */
    uint8_t qs[AG_QK / 2];
} ag_block_iq4_nl;

typedef struct ag_block_mxfp4 {
    uint8_t e; /* exponent of 2, with 127 added */
    uint8_t qs[AG_QK / 2];
} ag_block_mxfp4;

/* Elements 128 h + 32 j + i, j < 4, i < 32, have bits 2j and 2j + 1 of byte 32 h + i of a field of
 * two bits each. Parts of 16 elements, part p has scales[p]: d * (nibble below) * level - dmin *
 * (nibble above). */
typedef struct ag_block_q2_k {
    uint8_t scales[AG_QK_K / 16], qs[AG_QK_K / 4];
    uint16_t d, dmin; /* halves */
} ag_block_q2_k;

/* qs as in Q2_K; bit b of hmask[i] is the third bit of element 32 b + i. Parts of 16 elements, the
 * scales of which are of 6 bits (ag_q3_k_scales): d * (scale - 32) * (level - 4). */
typedef struct ag_block_q3_k {
    uint8_t hmask[AG_QK_K / 8], qs[AG_QK_K / 4], scales[12];
    uint16_t d; /* half */
} ag_block_q3_k;

/* Byte 32 h + i holds elements 64 h + i (low nibble) and 64 h + 32 + i. Parts of 32 elements, with
 * two scales of 6 bits (ag_q4_k_scales): d * scale * level - dmin * m. */
typedef struct ag_block_q4_k {
    uint16_t d, dmin; /* halves */
    uint8_t scales[12], qs[AG_QK_K / 2];
} ag_block_q4_k;

/* The same; bit b of qh[i] is the fifth bit of element 32 b + i. */
typedef struct ag_block_q5_k {
    uint16_t d, dmin; /* halves */
    uint8_t scales[12], qh[AG_QK_K / 8], qs[AG_QK_K / 2];
} ag_block_q5_k;

/* Elements 128 h + 64 n + i, i < 64, have nibble n (0: low) of ql[64 h + i]; qh holds their upper
 * two bits as qs of Q2_K does. Parts of 16 elements: d * scale * (level - 32). */
typedef struct ag_block_q6_k {
    uint8_t ql[AG_QK_K / 2], qh[AG_QK_K / 4];
    int8_t scales[AG_QK_K / 16];
    uint16_t d; /* half */
} ag_block_q6_k;

_Static_assert(sizeof(ag_block_q4_0) == 18, "18 bytes, no padding");
_Static_assert(sizeof(ag_block_q4_1) == 20, "20 bytes, no padding");
_Static_assert(sizeof(ag_block_q8_0) == 34, "34 bytes, no padding");
_Static_assert(sizeof(ag_block_q5_0) == 22, "22 bytes, no padding");
_Static_assert(sizeof(ag_block_q5_1) == 24, "24 bytes, no padding");
_Static_assert(sizeof(ag_block_iq4_nl) == 18, "18 bytes, no padding");
_Static_assert(sizeof(ag_block_mxfp4) == 17, "17 bytes, no padding");
_Static_assert(sizeof(ag_block_q2_k) == 84, "84 bytes, no padding");
_Static_assert(sizeof(ag_block_q3_k) == 110, "110 bytes, no padding");
_Static_assert(sizeof(ag_block_q4_k) == 144, "144 bytes, no padding");
_Static_assert(sizeof(ag_block_q5_k) == 176, "176 bytes, no padding");
_Static_assert(sizeof(ag_block_q6_k) == 210, "210 bytes, no padding");

/* Scales of a block as they are packed into 12 bytes: Q4_K's and Q5_K's sc and m of 8 parts, each
 * 0 to 63; Q3_K's of 16 parts, less 32. */
void ag_q4_k_scales(uint8_t sc[8], uint8_t m[8], const uint8_t packed[12]);
void ag_q3_k_scales(int8_t sc[16], const uint8_t packed[12]);
/* What the nibbles of IQ4_NL and MXFP4 stand for, in units of d; of MXFP4, whose d is half of
 * 2^(e - 127), ag_mxfp4_scale. */
extern const int8_t ag_iq4_nl_values[16], ag_mxfp4_values[16];
float ag_mxfp4_scale(uint8_t e);

/* Halves: round to nearest even; beyond 65504 becomes Inf, NaN stays NaN. */
float ag_f16_to_f32(uint16_t h);
uint16_t ag_f32_to_f16(float f);
float ag_bf16_to_f32(uint16_t h);
uint16_t ag_f32_to_bf16(float f);

/* How a row is rounded to a quantised type. */
typedef enum ag_rounding {
    AG_ROUND_WEIGHT,    /* the best d of several candidates: slow, once per weight */
    AG_ROUND_REFERENCE, /* Q4_0: d = max|x| / 7 */
    AG_ROUND_KV,        /* a cache row: Q4_0 d = signed extreme / -8 */
} ag_rounding;

/* dst[0..n) = src[0..n) in dtype; n a multiple of the block. AG_FORMAT if a value is NaN or Inf, or
 * if a scale or a half would pass 65504; *bad (may be NULL) is then the index of the first such
 * value. Q8_0: d = max|x| / 127; Q4_1: d = (max - min) / 15, m = min; with AG_ROUND_WEIGHT a
 * block's squared error, of Q4_0, or weighted error, of others with a search, is never larger than
 * the reference rule's. */
ag_status ag_quantize_row(ag_dtype dtype, void *dst, const float *src, size_t n,
                          ag_rounding rounding, size_t *bad);
/* At most AG_SEARCH_VALUES values, whole blocks of a type that has a search; w says what the square
 * of the error of each value counts. How many blocks were done, with as small an error as was found
 * and never a larger one than the type's rule has: less than n_blocks if a half of the next one
 * would pass 65504. */
typedef size_t ag_search_fn(ag_dtype type, void *dst, const float *x, const float *w,
                            size_t n_blocks);
enum { AG_SEARCH_VALUES = 2 * AG_QK_K };
ag_search_fn ag_search_blocks;
/* Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K. */
bool ag_has_search(ag_dtype type);

/* What rounds weights, perhaps in wider vectors; the bits are those of ag_reference_rounding. */
typedef struct ag_weight_rounding {
    ag_search_fn *search;
    /* n weights to Q4_0 as ag_quantize_row() does it with AG_ROUND_WEIGHT; n, or the index of the
     * value at fault. */
    size_t (*q4_0)(void *dst, const float *src, size_t n);
} ag_weight_rounding;
extern const ag_weight_rounding ag_reference_rounding;

/* As ag_quantize_row() with AG_ROUND_WEIGHT, with the scales that a search finds where the type has
 * one; the bits are the same, but for Q4_0. importance [n]: how much the square of an error counts
 * in each column, such as the mean square of what it is multiplied with; not below 0. NULL: not
 * known, and then larger values count more, as they do in products. */
ag_status ag_quantize_weights(const ag_weight_rounding *how, ag_dtype dtype, void *dst,
                              const float *src, size_t n, const float *importance, size_t *bad);
/* dst[0..n) = the values of src, any dtype but I32 and U8. */
void ag_dequantize_row(ag_dtype dtype, float *dst, const void *src, size_t n);

/* dst = src in another type, by way of values [n]. A quantised row that keeps its type is copied,
 * not rounded again; *bad and AG_FORMAT as above, also for its NaN, and values then hold src. */
ag_status ag_convert_row(ag_dtype to, void *dst, ag_dtype from, const void *src, float *values,
                         size_t n, ag_rounding rounding, size_t *bad);
/* The same with AG_ROUND_WEIGHT. */
ag_status ag_convert_weights(const ag_weight_rounding *how, ag_dtype to, void *dst, ag_dtype from,
                             const void *src, float *values, size_t n, size_t *bad);

#endif
