/* SPDX-License-Identifier: Apache-2.0 */
/* Row conversions of each type, dispatched by quant.c. dst and src may lie at any byte. */
#ifndef AG_QUANT_BLOCKS_H
#define AG_QUANT_BLOCKS_H

#include "quant/quant.h"

#include <stdbool.h>
#include <stddef.h>

/* The values of a row are finite; false if a scale passes 65504, *block is then the first such. */
bool ag_quantize_q4_0(void *dst, const float *src, size_t n_blocks, ag_rounding rounding,
                      size_t *block);
bool ag_quantize_q4_1(void *dst, const float *src, size_t n_blocks, ag_rounding rounding,
                      size_t *block);
bool ag_quantize_q8_0(void *dst, const float *src, size_t n_blocks, size_t *block);

void ag_dequantize_q4_0(float *dst, const void *src, size_t n_blocks);
void ag_dequantize_q4_1(float *dst, const void *src, size_t n_blocks);
void ag_dequantize_q8_0(float *dst, const void *src, size_t n_blocks);

/* Rows of halves: the same as the functions for one value, in loops that vectorise. */
void ag_f16_to_f32_row(float *dst, const void *src, size_t n);
void ag_bf16_to_f32_row(float *dst, const void *src, size_t n);
void ag_f32_to_f16_row(void *dst, const float *src, size_t n);
void ag_f32_to_bf16_row(void *dst, const float *src, size_t n);

/* Sums and extremes of a block are taken in 8 lanes that are joined at the end: an order that
 * vector units of any width up to 8 follow without changing the result. */
enum { AG_LANES = 8 };

static inline float ag_block_sum(const float *x) {
    float v[AG_LANES];
    for (int l = 0; l < AG_LANES; l++) v[l] = (x[l] + x[l + 8]) + (x[l + 16] + x[l + 24]);
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

static inline void ag_block_range(const float *x, float *lowest, float *highest) {
    float lo[AG_LANES], hi[AG_LANES];
    for (int l = 0; l < AG_LANES; l++) lo[l] = hi[l] = x[l];
    for (int i = AG_LANES; i < AG_QK; i += AG_LANES) {
        for (int l = 0; l < AG_LANES; l++) lo[l] = x[i + l] < lo[l] ? x[i + l] : lo[l];
        for (int l = 0; l < AG_LANES; l++) hi[l] = x[i + l] > hi[l] ? x[i + l] : hi[l];
    }
    for (int n = AG_LANES / 2; n > 0; n /= 2) {
        for (int l = 0; l < n; l++) lo[l] = lo[l + n] < lo[l] ? lo[l + n] : lo[l];
        for (int l = 0; l < n; l++) hi[l] = hi[l + n] > hi[l] ? hi[l + n] : hi[l];
    }
    *lowest = lo[0];
    *highest = hi[0];
}

/* 32 values 0..15, element i beside i + 16. */
static inline void ag_pack_nibbles(uint8_t *qs, const uint8_t *q) {
    for (int i = 0; i < AG_QK / 2; i++) qs[i] = (uint8_t)(q[i] | q[i + AG_QK / 2] << 4);
}

/* Finite as a half: neither Inf nor NaN. */
static inline bool ag_f16_is_finite(uint16_t h) { return (h & 0x7c00) != 0x7c00; }

#endif
