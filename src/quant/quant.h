/* SPDX-License-Identifier: Apache-2.0 */
/* Block layouts, and the reference conversions between F32 and every other type. */
#ifndef AG_QUANT_QUANT_H
#define AG_QUANT_QUANT_H

#include <antigravity/dtype.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    AG_QK = 32,    /* elements of a block */
    AG_QK_K = 256, /* elements of a block of types with K in their names */
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

/* Bit i of the 32 bits of qh is bit 4 of element i. */
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
    uint8_t e; /* exponent of 2, plus 127 */
    uint8_t qs[AG_QK / 2];
} ag_block_mxfp4;

/* A field of two bits: elements 128 h + 32 j + i, j < 4, i < 32, have bits 2j and 2j + 1 of byte
 * 32 h + i. Sub-blocks of 16 elements; sub-block p has scales[p]: d * (low nibble) * level -
 * dmin * (high nibble). */
typedef struct ag_block_q2_k {
    uint8_t scales[AG_QK_K / 16], qs[AG_QK_K / 4];
    uint16_t d, dmin; /* halves */
} ag_block_q2_k;

/* qs as in Q2_K; bit b of hmask[i] is bit 2 of element 32 b + i. Sub-blocks of 16 elements with
 * scales of 6 bits (ag_q3_k_scales): d * (scale - 32) * (level - 4). */
typedef struct ag_block_q3_k {
    uint8_t hmask[AG_QK_K / 8], qs[AG_QK_K / 4], scales[12];
    uint16_t d; /* half */
} ag_block_q3_k;

/* Byte 32 h + i holds elements 64 h + i (low nibble) and 64 h + 32 + i. Sub-blocks of 32
 * elements, with two scales of 6 bits (ag_q4_k_scales): d * scale * level - dmin * m. */
typedef struct ag_block_q4_k {
    uint16_t d, dmin; /* halves */
    uint8_t scales[12], qs[AG_QK_K / 2];
} ag_block_q4_k;

/* Like Q4_K; bit b of qh[i] is bit 4 of element 32 b + i. */
typedef struct ag_block_q5_k {
    uint16_t d, dmin; /* halves */
    uint8_t scales[12], qh[AG_QK_K / 8], qs[AG_QK_K / 2];
} ag_block_q5_k;

/* Elements 128 h + 64 n + i, i < 64, have nibble n (0: low) of ql[64 h + i]; qh holds their
 * upper two bits as qs of Q2_K does. Sub-blocks of 16 elements: d * scale * (level - 32). */
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

/* Unpack the scales of a block from 12 bytes. Q4_K and Q5_K: sc and m of 8 sub-blocks, 0 to 63
 * each. Q3_K: scales of 16 sub-blocks, minus 32. */
void ag_q4_k_scales(uint8_t sc[8], uint8_t m[8], const uint8_t packed[12]);
void ag_q3_k_scales(int8_t sc[16], const uint8_t packed[12]);

/* Convert halves: round to nearest even; values beyond 65504 become infinity, NaN stays NaN. */
float ag_f16_to_f32(uint16_t h);
uint16_t ag_f32_to_f16(float f);
float ag_bf16_to_f32(uint16_t h);
uint16_t ag_f32_to_bf16(float f);

/* Rounding rules of quantised types. */
typedef enum ag_rounding {
    AG_ROUND_WEIGHT,    /* the best d of several candidates: slow, for weights */
    AG_ROUND_REFERENCE, /* Q4_0: d = max|x| / 7 */
    AG_ROUND_KV,        /* for rows of the KV cache: Q4_0 d = signed extreme / -8 */
} ag_rounding;

/* Converts src[0..n) to dtype; n must be a multiple of the block. Fails with AG_FORMAT if a
 * value is NaN or infinite, or if a scale or a half exceeds 65504. *bad (may be NULL) is then
 * the index of that value. Q8_0: d = max|x| / 127; Q4_1: d = (max - min) / 15, m = min. With
 * AG_ROUND_WEIGHT the error of a block is never larger than that of the reference rule: the
 * squared error of Q4_0, the weighted error of other types with a search. */
ag_status ag_quantize_row(ag_dtype dtype, void *dst, const float *src, size_t n,
                          ag_rounding rounding, size_t *bad);
/* Quantises full blocks of a type that has a search, at most AG_SEARCH_VALUES values. w: weights
 * of the squared errors. Returns the number of blocks done; less than n_blocks if a half of the
 * next one exceeds 65504. The error of a block is never larger than that of the type's rule. */
typedef size_t ag_search_fn(ag_dtype type, void *dst, const float *x, const float *w,
                            size_t n_blocks);
enum { AG_SEARCH_VALUES = 2 * AG_QK_K };
ag_search_fn ag_search_blocks;
/* Returns true for Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K. */
bool ag_has_search(ag_dtype type);

/* Functions that round weights, possibly with wider vectors. Their bits must equal those of
 * ag_reference_rounding. */
typedef struct ag_weight_rounding {
    ag_search_fn *search;
    /* Quantises n weights to Q4_0 as ag_quantize_row() does with AG_ROUND_WEIGHT. Returns n, or
     * the index of the value that fails. */
    size_t (*q4_0)(void *dst, const float *src, size_t n);
} ag_weight_rounding;
extern const ag_weight_rounding ag_reference_rounding;

/* Quantises like ag_quantize_row() with AG_ROUND_WEIGHT, but also Q4_0 by the weighted search.
 * importance [n], not negative: weights of the squared errors of each column, such as the mean
 * square of its inputs. NULL: unknown; larger values then count more, as they do in products. */
ag_status ag_quantize_weights(const ag_weight_rounding *how, ag_dtype dtype, void *dst,
                              const float *src, size_t n, const float *importance, size_t *bad);
/* Converts n values of src to F32. dtype may be any but I32 and U8. */
void ag_dequantize_row(ag_dtype dtype, float *dst, const void *src, size_t n);
/* Returns the index of the first of n values that is not finite; n if there is none. values [n] is
 * scratch, which holds src as F32 if the index is less than n and dtype is not F32. */
size_t ag_first_not_finite(ag_dtype dtype, const void *src, float *values, size_t n);

/* Makes blocks of MXFP4 of the two tensors that safetensors files have instead: nibbles, with
 * adjacent values in a byte, and the exponents of the blocks. */
void ag_join_mxfp4(void *dst, const uint8_t *nibbles, const uint8_t *exponents, size_t n_blocks);

/* Converts a row to another type by way of values [n], scratch. A quantised row that keeps its
 * type is copied, not rounded again. Fails like ag_quantize_row(), also for a copied row that
 * holds NaN; `values` then holds src. */
ag_status ag_convert_row(ag_dtype to, void *dst, ag_dtype from, const void *src, float *values,
                         size_t n, ag_rounding rounding, size_t *bad);
/* Does the same with AG_ROUND_WEIGHT. */
ag_status ag_convert_weights(const ag_weight_rounding *how, ag_dtype to, void *dst, ag_dtype from,
                             const void *src, float *values, size_t n, size_t *bad);

#endif
