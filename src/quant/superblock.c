/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/superblock.h"

#include <math.h>

/* ---- sub-blocks with a base ---- */

/* Computes the step and the base of each sub-block. */
static void sub_block_ranges(float *scale, float *base, const float *x, size_t sub_block, int top) {
    for (size_t p = 0; p < AG_QK_K / sub_block; p++) {
        float lowest = 0, highest = x[p * sub_block];
        for (size_t i = 0; i < sub_block; i++) {
            const float v = x[p * sub_block + i];
            lowest = v < lowest ? v : lowest;
            highest = v > highest ? v : highest;
        }
        scale[p] = (highest - lowest) / (float)top;
        base[p] = -lowest;
    }
}

/* Rounds n scales to integers of at most `top` and returns their common factor as a half. */
static uint16_t round_scales(uint8_t *out, const float *scale, size_t n, int top) {
    float largest = 0;
    for (size_t p = 0; p < n; p++) largest = scale[p] > largest ? scale[p] : largest;
    const uint16_t d = ag_f32_to_f16(largest / (float)top);
    const float inverse = ag_inverse_of(ag_f16_to_f32(d));
    for (size_t p = 0; p < n; p++) out[p] = (uint8_t)ag_nearest_level(scale[p] * inverse, 0, top);
    return d;
}

bool ag_round_superblock(ag_superblock *out, const float *x, size_t sub_block, int top,
                         int top_scale) {
    const size_t n = AG_QK_K / sub_block;
    float scale[AG_QK_K / 16], base[AG_QK_K / 16];
    sub_block_ranges(scale, base, x, sub_block, top);
    out->d = round_scales(out->sc, scale, n, top_scale);
    out->dmin = round_scales(out->m, base, n, top_scale);
    if (!ag_f16_is_finite(out->d) || !ag_f16_is_finite(out->dmin)) return false;
    for (size_t i = 0; i < AG_QK_K; i++) {
        const float inverse = ag_inverse_of(ag_f16_to_f32(out->d) * out->sc[i / sub_block]);
        const float above = x[i] + ag_f16_to_f32(out->dmin) * out->m[i / sub_block];
        out->q[i] = (uint8_t)ag_nearest_level(above * inverse, 0, top);
    }
    return true;
}

/* ---- sub-blocks without a base ---- */

bool ag_round_signed_superblock(ag_signed_superblock *out, const float *x, int lowest,
                                int lowest_scale) {
    enum { SUB_BLOCK = 16, N = AG_QK_K / SUB_BLOCK };
    float scale[N];
    for (size_t p = 0; p < N; p++)
        scale[p] = ag_extreme_of(x + p * SUB_BLOCK, SUB_BLOCK) / (float)lowest;
    out->d = ag_f32_to_f16(ag_extreme_of(scale, N) / (float)lowest_scale);
    if (!ag_f16_is_finite(out->d)) return false;
    const float d = ag_f16_to_f32(out->d);
    for (size_t p = 0; p < N; p++) {
        out->sc[p] =
            (int8_t)ag_nearest_level(scale[p] * ag_inverse_of(d), lowest_scale, -lowest_scale - 1);
        const float inverse = ag_inverse_of(d * out->sc[p]);
        for (size_t i = p * SUB_BLOCK; i < (p + 1) * SUB_BLOCK; i++) {
            out->q[i] = (uint8_t)(ag_nearest_level(x[i] * inverse, lowest, -lowest - 1) - lowest);
        }
    }
    return true;
}

/* ---- scales of Q4_K and Q5_K ---- */

void ag_q4_k_scales(uint8_t sc[8], uint8_t m[8], const uint8_t packed[12]) {
    for (int p = 0; p < 4; p++) {
        sc[p] = packed[p] & 63;
        m[p] = packed[p + 4] & 63;
        sc[p + 4] = (uint8_t)((packed[p + 8] & 15) | packed[p] >> 6 << 4);
        m[p + 4] = (uint8_t)(packed[p + 8] >> 4 | packed[p + 4] >> 6 << 4);
    }
}

void ag_pack_q4_k_scales(uint8_t packed[12], const uint8_t sc[8], const uint8_t m[8]) {
    for (int p = 0; p < 4; p++) {
        packed[p] = (uint8_t)(sc[p] | sc[p + 4] >> 4 << 6);
        packed[p + 4] = (uint8_t)(m[p] | m[p + 4] >> 4 << 6);
        packed[p + 8] = (uint8_t)((sc[p + 4] & 15) | (m[p + 4] & 15) << 4);
    }
}

void ag_dequantize_superblock_32(float *dst, const uint8_t *q, uint16_t d, uint16_t dmin,
                                 const uint8_t packed[12]) {
    uint8_t sc[8], m[8];
    ag_q4_k_scales(sc, m, packed);
    for (size_t p = 0; p < 8; p++) {
        const float scale = ag_f16_to_f32(d) * sc[p], base = ag_f16_to_f32(dmin) * m[p];
        for (size_t i = p * 32; i < p * 32 + 32; i++) dst[i] = scale * (float)q[i] - base;
    }
}
