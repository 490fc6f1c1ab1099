/* SPDX-License-Identifier: Apache-2.0 */
/* Packs activations as bytes, in blocks of 32 values of a row. */
#ifndef AG_BACKEND_CPU_NEON_PACK_X16_H
#define AG_BACKEND_CPU_NEON_PACK_X16_H

#include "backend/cpu/neon/neon.h"

#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline))

/* Returns the largest magnitude in integer order, where NaN is above all numbers. */
INLINE float largest_magnitude(const float32x4_t x[8]) {
    uint32x4_t max = vdupq_n_u32(0);
    for (int i = 0; i < 8; i++) max = vmaxq_u32(max, vreinterpretq_u32_f32(vabsq_f32(x[i])));
    const uint32x4_t largest = vdupq_n_u32(vmaxvq_u32(max));
    return vgetq_lane_f32(vreinterpretq_f32_u32(largest), 0);
}

/* Rounds the block to bytes. sums: of the first 16 bytes and of all. */
INLINE void round_block(int8x8_t q[4], int32_t sums[2], const float32x4_t x[8], float factor) {
    int32x4_t sum = vdupq_n_s32(0);
    for (int g = 0; g < 4; g++) {
        const int32x4_t a = vcvtnq_s32_f32(vmulq_n_f32(x[2 * g], factor));
        const int32x4_t b = vcvtnq_s32_f32(vmulq_n_f32(x[2 * g + 1], factor));
        sum = vaddq_s32(sum, vaddq_s32(a, b));
        q[g] = vqmovn_s16(vcombine_s16(vqmovn_s32(a), vqmovn_s32(b)));
        if (g % 2) sums[g / 2] = vaddvq_s32(sum);
    }
}

/* Packs one block of a row as block `at` of the n blocks of its tile. Writes its groups of 8 bytes
 * to q, `stride` apart. */
INLINE void pack_block(unsigned char *tile, size_t at, size_t n, const float32x4_t x[8],
                       unsigned char *q, size_t stride) {
    const float largest = largest_magnitude(x);
    /* Below this, 127 / largest would overflow; such values do not affect sums of floats. */
    const int tiny = largest < 0x1p-119f;
    const float d = tiny ? 0 : largest / 127;
    int8x8_t bytes[4];
    int32_t sums[2];
    round_block(bytes, sums, x, tiny ? 0 : 127 / largest);
    for (size_t g = 0; g < 4; g++) vst1_s8((void *)(q + g * stride), bytes[g]);
    float *ds = (void *)(tile + n * 32);
    int32_t *cs = (void *)(tile + n * 36);
    float *ss = (void *)(tile + n * 40);
    int32_t *hs = (void *)(tile + n * 44);
    ds[at] = d;
    cs[at] = -8 * sums[1];
    ss[at] = d * (float)sums[1];
    hs[at] = -8 * sums[0];
}

/* Packs a row. paired: the bytes of rows 2i and 2i + 1 of a tile alternate. */
INLINE void pack_x16(void *panel, const float *x, size_t row, size_t m, size_t k,
                     const int paired) {
    const size_t first = row - row % AG_X16, n_blocks = ag_x16_steps(k) * 2;
    const size_t n_rows = m - first < AG_X16 ? m - first : AG_X16, r = row % AG_X16;
    unsigned char *tile = (unsigned char *)panel + first * ag_x16_row_bytes(k);
    const int in_pair = paired && (r | 1) < n_rows;
    for (size_t b = 0; b < n_blocks; b++) {
        float32x4_t v[8];
        for (size_t i = 0; i < 8; i++) {
            v[i] = b * 32 < k ? vld1q_f32(x + b * 32 + i * 4) : vdupq_n_f32(0);
        }
        const size_t at = b * n_rows + r;
        unsigned char *q = tile + (in_pair ? (at - r % 2) * 32 + r % 2 * 8 : at * 32);
        pack_block(tile, at, n_blocks * n_rows, v, q, in_pair ? 16 : 8);
    }
}

#endif
