/* SPDX-License-Identifier: Apache-2.0 */
/* Superblocks: blocks of 256 in sub-blocks of 16 or 32 with integer scales, which share a factor
 * that is a half. Helpers of the K types. */
#ifndef AG_QUANT_SUPERBLOCK_H
#define AG_QUANT_SUPERBLOCK_H

#include "quant/blocks.h"

#include <math.h>

/* Value i of sub-block p is d * sc[p] * q[i] - dmin * m[p]; levels begin at 0. */
typedef struct ag_superblock {
    uint16_t d, dmin; /* halves */
    uint8_t sc[AG_QK_K / 16], m[AG_QK_K / 16], q[AG_QK_K];
} ag_superblock;

/* Value i of sub-block p, of 16 values, is d * sc[p] * (q[i] + lowest). */
typedef struct ag_signed_superblock {
    uint16_t d; /* half */
    int8_t sc[AG_QK_K / 16];
    uint8_t q[AG_QK_K];
} ag_signed_superblock;

/* Quantises by the reference rule: the range of a sub-block goes from 0 or its lowest value to
 * its highest, in levels 0 .. top. The largest scale becomes `top_scale`. Returns false if a
 * half exceeds 65504. */
bool ag_round_superblock(ag_superblock *out, const float *x, size_t sub_block, int top,
                         int top_scale);
/* Does the same without a base: the value of largest magnitude becomes `lowest`, the scale of
 * largest magnitude `lowest_scale`. */
bool ag_round_signed_superblock(ag_signed_superblock *out, const float *x, int lowest,
                                int lowest_scale);

/* Returns the nearest integer in [min, max]. */
static inline int ag_nearest_level(float v, int min, int max) {
    v = roundf(v);
    v = v > (float)min ? v : (float)min;
    return (int)(v < (float)max ? v : (float)max);
}

static inline float ag_inverse_of(float scale) { return scale != 0 ? 1 / scale : 0; }

/* Returns the value of largest magnitude. */
static inline float ag_extreme_of(const float *x, size_t n) {
    float extreme = x[0];
    for (size_t i = 1; i < n; i++) extreme = fabsf(x[i]) > fabsf(extreme) ? x[i] : extreme;
    return extreme;
}

/* Unpacks fields of 1, 2 or 4 bits. Byte i of `chunk` bytes holds element i in its lowest bits,
 * element i + chunk above it, and so on. The next `chunk` bytes follow. */
static inline void ag_get_fields(uint8_t *q, const uint8_t *bytes, size_t width, size_t chunk) {
    const size_t each = 8 / width;
    for (size_t h = 0; h < AG_QK_K / (chunk * each); h++) {
        for (size_t j = 0; j < each; j++) {
            for (size_t i = 0; i < chunk; i++) {
                q[(h * each + j) * chunk + i] =
                    (uint8_t)(bytes[h * chunk + i] >> width * j & ((1u << width) - 1));
            }
        }
    }
}

/* Packs the bits of q from `shift` on. */
static inline void ag_put_fields(uint8_t *bytes, const uint8_t *q, size_t shift, size_t width,
                                 size_t chunk) {
    const size_t each = 8 / width;
    for (size_t b = 0; b < AG_QK_K / each; b++) {
        const uint8_t *first = q + b / chunk * chunk * each + b % chunk;
        unsigned byte = 0;
        for (size_t j = 0; j < each; j++) {
            byte |= (first[j * chunk] >> shift & ((1u << width) - 1)) << width * j;
        }
        bytes[b] = (uint8_t)byte;
    }
}

/* Unpack levels with all their bits. */
static inline void ag_q5_k_levels(uint8_t q[AG_QK_K], const ag_block_q5_k *in) {
    uint8_t high[AG_QK_K];
    ag_get_fields(q, in->qs, 4, 32);
    ag_get_fields(high, in->qh, 1, 32);
    for (int i = 0; i < AG_QK_K; i++) q[i] |= (uint8_t)(high[i] << 4);
}

static inline void ag_q3_k_levels(uint8_t q[AG_QK_K], const ag_block_q3_k *in) {
    uint8_t high[AG_QK_K];
    ag_get_fields(q, in->qs, 2, 32);
    ag_get_fields(high, in->hmask, 1, 32);
    for (int i = 0; i < AG_QK_K; i++) q[i] |= (uint8_t)(high[i] << 2);
}

static inline void ag_q6_k_levels(uint8_t q[AG_QK_K], const ag_block_q6_k *in) {
    uint8_t high[AG_QK_K];
    ag_get_fields(q, in->ql, 4, 64);
    ag_get_fields(high, in->qh, 2, 32);
    for (int i = 0; i < AG_QK_K; i++) q[i] |= (uint8_t)(high[i] << 4);
}

/* ---- bits of 32 levels in the order of kernels: byte j of a word has elements j, j + 4, ... ----
 */

/* Packs bit `shift` of element 4v + j into bit v of byte j. */
static inline void ag_put_bit_words(uint8_t to[4], const uint8_t *q, int shift) {
    for (int j = 0; j < 4; j++) {
        unsigned byte = 0;
        for (int v = 0; v < 8; v++) byte |= (unsigned)(q[4 * v + j] >> shift & 1) << v;
        to[j] = (uint8_t)byte;
    }
}

/* Does the same for qh of Q5_0, which has element i in bit i. */
static inline void ag_put_qh_words(uint8_t to[4], const uint8_t qh[AG_QK / 8]) {
    const uint32_t all =
        qh[0] | (uint32_t)qh[1] << 8 | (uint32_t)qh[2] << 16 | (uint32_t)qh[3] << 24;
    for (int j = 0; j < 4; j++) {
        uint32_t bits = all >> j & 0x11111111u; /* every fourth bit; they move together */
        bits = (bits | bits >> 3) & 0x03030303u;
        bits = (bits | bits >> 6) & 0x000f000fu;
        to[j] = (uint8_t)(bits | bits >> 12);
    }
}

/* ---- scales ---- */

/* Packs the scales of Q4_K and Q5_K: the inverse of ag_q4_k_scales(). */
void ag_pack_q4_k_scales(uint8_t packed[12], const uint8_t sc[8], const uint8_t m[8]);
/* Computes dst[0..256) = d * sc * q - dmin * m, in sub-blocks of 32 with such scales. */
void ag_dequantize_superblock_32(float *dst, const uint8_t *q, uint16_t d, uint16_t dmin,
                                 const uint8_t packed[12]);

#endif
