/* SPDX-License-Identifier: Apache-2.0 */
/* Block layouts and the reference conversions between F32 and every other type. */
#ifndef AG_QUANT_QUANT_H
#define AG_QUANT_QUANT_H

#include <antigravity/dtype.h>
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
 * block's squared error is never larger than the reference rule's. Other types have one rule, in
 * their files. */
ag_status ag_quantize_row(ag_dtype dtype, void *dst, const float *src, size_t n,
                          ag_rounding rounding, size_t *bad);
/* The same for weights, with the scales that a search finds where the type has one (Q4_0, Q4_1,
 * Q5_0, Q5_1, Q4_K, Q5_K, Q6_K): slow, once per file. importance [n]: how much the square of an
 * error counts in each column, such as the mean square of what it is multiplied with; not below 0,
 * NULL: not known. */
ag_status ag_quantize_weights(ag_dtype dtype, void *dst, const float *src, size_t n,
                              const float *importance, size_t *bad);
/* dst[0..n) = the values of src, any dtype but I32 and U8. */
void ag_dequantize_row(ag_dtype dtype, float *dst, const void *src, size_t n);

/* dst = src in another type, by way of values [n]. A quantised row that keeps its type is copied,
 * not rounded again; *bad and AG_FORMAT as above, also for its NaN, and values then hold src. */
ag_status ag_convert_row(ag_dtype to, void *dst, ag_dtype from, const void *src, float *values,
                         size_t n, ag_rounding rounding, size_t *bad);

#endif
