/* SPDX-License-Identifier: Apache-2.0 */
/* Block layouts and the reference conversions between F32 and every other type. */
#ifndef AG_QUANT_QUANT_H
#define AG_QUANT_QUANT_H

#include <antigravity/dtype.h>
#include <stdint.h>

enum { AG_QK = 32 }; /* elements in a block of every quantised type */

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

_Static_assert(sizeof(ag_block_q4_0) == 18, "18 bytes, no padding");
_Static_assert(sizeof(ag_block_q4_1) == 20, "20 bytes, no padding");
_Static_assert(sizeof(ag_block_q8_0) == 34, "34 bytes, no padding");

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
 * block's squared error is never larger than the reference rule's. */
ag_status ag_quantize_row(ag_dtype dtype, void *dst, const float *src, size_t n,
                          ag_rounding rounding, size_t *bad);
/* dst[0..n) = the values of src, any dtype but I32 and U8. */
void ag_dequantize_row(ag_dtype dtype, float *dst, const void *src, size_t n);

/* dst = src in another type, by way of values [n], which hold src afterwards. A quantised row that
 * keeps its type is copied, not rounded again; *bad and AG_FORMAT as above, also for its NaN. */
ag_status ag_convert_row(ag_dtype to, void *dst, ag_dtype from, const void *src, float *values,
                         size_t n, ag_rounding rounding, size_t *bad);

#endif
