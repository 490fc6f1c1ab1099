/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/quant.h"

#include "quant/blocks.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

/* Returns whether all values are finite. NaN and infinity have all exponent bits set. Testing
 * bits vectorises and does not depend on floating-point compiler options. */
static bool all_finite(const float *x, size_t n) {
    uint32_t found = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t b;
        memcpy(&b, x + i, sizeof b);
        found |= (b & 0x7f800000) == 0x7f800000;
    }
    return !found;
}

static size_t first_not_finite(const float *x, size_t n) {
    size_t i = 0;
    if (all_finite(x, n)) return n;
    while (isfinite(x[i])) i++;
    return i;
}

/* Returns the index of the first half that is infinite; n if there is none. */
static size_t first_too_large(const unsigned char *halves, size_t n, uint16_t infinity) {
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, halves + 2 * i, sizeof h);
        if ((h & 0x7fff) == infinity) return i;
    }
    return n;
}

typedef struct block_type {
    ag_quantize_fn *quantize; /* NULL for Q4_0 */
    ag_dequantize_fn *dequantize;
    bool has_search; /* in search.c */
    /* Number of halves that make all values of a block finite if they are finite, and the offset
     * of the first. 0: each value must be checked. */
    uint16_t n_scales, scales_offset;
} block_type;

static const block_type block_types[AG_DTYPE_COUNT] = {
    [AG_F16] = {.n_scales = 1},
    [AG_Q4_0] = {NULL, ag_dequantize_q4_0, true, 1, 0},
    [AG_Q4_1] = {ag_quantize_q4_1, ag_dequantize_q4_1, true, 2, 0},
    [AG_Q8_0] = {ag_quantize_q8_0, ag_dequantize_q8_0, false, 1, 0},
    [AG_Q5_0] = {ag_quantize_q5_0, ag_dequantize_q5_0, true, 1, 0},
    [AG_Q5_1] = {ag_quantize_q5_1, ag_dequantize_q5_1, true, 2, 0},
    [AG_Q2_K] = {ag_quantize_q2_k, ag_dequantize_q2_k, false, 2, offsetof(ag_block_q2_k, d)},
    [AG_Q3_K] = {ag_quantize_q3_k, ag_dequantize_q3_k, false, 1, offsetof(ag_block_q3_k, d)},
    [AG_Q4_K] = {ag_quantize_q4_k, ag_dequantize_q4_k, true, 2, 0},
    [AG_Q5_K] = {ag_quantize_q5_k, ag_dequantize_q5_k, true, 2, 0},
    [AG_Q6_K] = {ag_quantize_q6_k, ag_dequantize_q6_k, true, 1, offsetof(ag_block_q6_k, d)},
    [AG_IQ4_NL] = {ag_quantize_iq4_nl, ag_dequantize_iq4_nl, false, 1, 0},
    [AG_MXFP4] = {ag_quantize_mxfp4, ag_dequantize_mxfp4, false, 0, 0},
};

bool ag_has_search(ag_dtype type) { return block_types[type].has_search; }

static ag_status quantize_blocks(ag_dtype dtype, void *dst, const float *src, size_t n,
                                 ag_rounding rounding, size_t *bad) {
    const size_t values = ag_dtype_block(dtype);
    size_t block = 0;
    if (rounding == AG_ROUND_WEIGHT && dtype != AG_Q4_0 && ag_has_search(dtype)) {
        return ag_quantize_weights(&ag_reference_rounding, dtype, dst, src, n, NULL, bad);
    }
    const bool done = dtype == AG_Q4_0 ? ag_quantize_q4_0(dst, src, n / values, rounding, &block)
                                       : block_types[dtype].quantize(dst, src, n / values, &block);
    if (done) return AG_OK;
    *bad = block * values + ag_largest_at(src + block * values, values);
    return AG_FORMAT;
}

ag_status ag_quantize_row(ag_dtype dtype, void *dst, const float *src, size_t n,
                          ag_rounding rounding, size_t *bad) {
    assert(ag_dtype_block(dtype) > 0 && n % ag_dtype_block(dtype) == 0);
    size_t ignored;
    if (!bad) bad = &ignored;
    *bad = first_not_finite(src, n);
    if (*bad < n) return AG_FORMAT;
    switch (dtype) {
    case AG_F32:
        memcpy(dst, src, n * sizeof *src);
        return AG_OK;
    case AG_F16:
        ag_f32_to_f16_row(dst, src, n);
        *bad = first_too_large(dst, n, 0x7c00);
        return *bad < n ? AG_FORMAT : AG_OK;
    case AG_BF16:
        ag_f32_to_bf16_row(dst, src, n);
        *bad = first_too_large(dst, n, 0x7f80);
        return *bad < n ? AG_FORMAT : AG_OK;
    default:
        if (block_types[dtype].dequantize)
            return quantize_blocks(dtype, dst, src, n, rounding, bad);
    }
    assert(!"a dtype that floats are not rounded to");
    return AG_DTYPE;
}

void ag_dequantize_row(ag_dtype dtype, float *dst, const void *src, size_t n) {
    assert(ag_dtype_block(dtype) > 0 && n % ag_dtype_block(dtype) == 0);
    switch (dtype) {
    case AG_F32:
        memcpy(dst, src, n * sizeof *dst);
        return;
    case AG_F16:
        ag_f16_to_f32_row(dst, src, n);
        return;
    case AG_BF16:
        ag_bf16_to_f32_row(dst, src, n);
        return;
    default:
        assert(block_types[dtype].dequantize); /* other dtypes hold no floats */
        block_types[dtype].dequantize(dst, src, n / ag_dtype_block(dtype));
    }
}

/* Returns whether all scales are finite; false also for types without such scales. */
static bool scales_are_finite(ag_dtype dtype, const unsigned char *src, size_t n) {
    const block_type *type = &block_types[dtype];
    const size_t bytes = ag_dtype_block_bytes(dtype), n_blocks = n / ag_dtype_block(dtype);
    bool finite = type->n_scales > 0;
    for (size_t b = 0; b < n_blocks; b++, src += bytes) {
        for (size_t i = 0; i < type->n_scales; i++) {
            uint16_t h;
            memcpy(&h, src + type->scales_offset + i * sizeof h, sizeof h);
            finite &= ag_f16_is_finite(h);
        }
    }
    return finite;
}

size_t ag_first_not_finite(ag_dtype dtype, const void *src, float *values, size_t n) {
    if (dtype == AG_F32) return first_not_finite(src, n);
    if (scales_are_finite(dtype, src, n)) return n;
    ag_dequantize_row(dtype, values, src, n);
    return first_not_finite(values, n);
}

ag_status ag_convert_row(ag_dtype to, void *dst, ag_dtype from, const void *src, float *values,
                         size_t n, ag_rounding rounding, size_t *bad) {
    if (to != from || !ag_dtype_is_quantized(to)) {
        ag_dequantize_row(from, values, src, n);
        return ag_quantize_row(to, dst, values, n, rounding, bad);
    }
    const size_t first = ag_first_not_finite(from, src, values, n);
    if (first < n) {
        if (bad) *bad = first;
        return AG_FORMAT;
    }
    memcpy(dst, src, ag_dtype_row_bytes(to, n));
    return AG_OK;
}
