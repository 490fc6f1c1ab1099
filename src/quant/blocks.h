/* SPDX-License-Identifier: Apache-2.0 */
/* Row conversions of each type, dispatched by rows.c. dst and src need no alignment. */
#ifndef AG_QUANT_BLOCKS_H
#define AG_QUANT_BLOCKS_H

#include "quant/quant.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

/* Quantises finite values. Returns false if a scale exceeds 65504; *block is then that block's
 * index. */
typedef bool ag_quantize_fn(void *dst, const float *src, size_t n_blocks, size_t *block);
typedef void ag_dequantize_fn(float *dst, const void *src, size_t n_blocks);
ag_quantize_fn ag_quantize_q4_1;
ag_quantize_fn ag_quantize_q8_0;
ag_quantize_fn ag_quantize_q5_0;
ag_quantize_fn ag_quantize_q5_1;
ag_quantize_fn ag_quantize_q2_k;
ag_quantize_fn ag_quantize_q3_k;
ag_quantize_fn ag_quantize_q4_k;
ag_quantize_fn ag_quantize_q5_k;
ag_quantize_fn ag_quantize_q6_k;
ag_quantize_fn ag_quantize_iq4_nl;
ag_quantize_fn ag_quantize_mxfp4;

/* Does the same for Q4_0, the only type with several rounding rules. */
bool ag_quantize_q4_0(void *dst, const float *src, size_t n_blocks, ag_rounding rounding,
                      size_t *block);

ag_dequantize_fn ag_dequantize_q4_0;
ag_dequantize_fn ag_dequantize_q4_1;
ag_dequantize_fn ag_dequantize_q8_0;
ag_dequantize_fn ag_dequantize_q5_0;
ag_dequantize_fn ag_dequantize_q5_1;
ag_dequantize_fn ag_dequantize_q2_k;
ag_dequantize_fn ag_dequantize_q3_k;
ag_dequantize_fn ag_dequantize_q4_k;
ag_dequantize_fn ag_dequantize_q5_k;
ag_dequantize_fn ag_dequantize_q6_k;
ag_dequantize_fn ag_dequantize_iq4_nl;
ag_dequantize_fn ag_dequantize_mxfp4;

/* Convert rows of halves like the functions for one value, in loops that vectorise. */
void ag_f16_to_f32_row(float *dst, const void *src, size_t n);
void ag_bf16_to_f32_row(float *dst, const void *src, size_t n);
void ag_f32_to_f16_row(void *dst, const float *src, size_t n);
void ag_f32_to_bf16_row(void *dst, const float *src, size_t n);

/* Lanes of sums and extremes of a block, which are joined at the end. Vector units of up to 8
 * lanes follow this order without changing the result. */
enum { AG_LANES = 8 };

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

/* Packs the lower four bits of 32 values; values i and i + 16 share a byte. */
static inline void ag_pack_nibbles(uint8_t *qs, const uint8_t *q) {
    for (int i = 0; i < AG_QK / 2; i++) qs[i] = (uint8_t)((q[i] & 15) | q[i + AG_QK / 2] << 4);
}

static inline void ag_unpack_nibbles(uint8_t *q, const uint8_t *qs) {
    for (int i = 0; i < AG_QK / 2; i++) q[i] = qs[i] & 15;
    for (int i = 0; i < AG_QK / 2; i++) q[i + AG_QK / 2] = qs[i] >> 4;
}

/* Packs bit 4 of 32 values, of element i into bit i. */
static inline void ag_pack_qh(uint8_t *qh, const uint8_t *q) {
    for (int j = 0; j < AG_QK / 8; j++) {
        unsigned byte = 0;
        for (int i = 0; i < 8; i++) byte |= (unsigned)(q[8 * j + i] >> 4 & 1) << i;
        qh[j] = (uint8_t)byte;
    }
}

static inline void ag_unpack_qh(uint8_t *q, const uint8_t *qh) {
    for (int i = 0; i < AG_QK; i++) q[i] |= (uint8_t)((qh[i / 8] >> i % 8 & 1) << 4);
}

/* Returns the nibble whose value is nearest to v. */
static inline uint8_t ag_nearest_of(const int8_t values[16], float v) {
    uint8_t best = 0;
    for (uint8_t q = 1; q < 16; q++) {
        const float one = v - (float)values[best], other = v - (float)values[q];
        if (other * other < one * one) best = q;
    }
    return best;
}

/* Returns the index of the largest magnitude, which makes the scale of a block too large. */
static inline size_t ag_largest_at(const float *x, size_t n) {
    size_t largest = 0;
    for (size_t i = 1; i < n; i++) {
        if (fabsf(x[i]) > fabsf(x[largest])) largest = i;
    }
    return largest;
}

/* Returns whether the half is neither infinity nor NaN. */
static inline bool ag_f16_is_finite(uint16_t h) { return (h & 0x7c00) != 0x7c00; }

#endif
