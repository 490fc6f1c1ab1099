/* SPDX-License-Identifier: Apache-2.0 */
/* Products of bytes with 16-bit sums, for every 64-bit ARM processor. */
#include "backend/cpu/neon/matmul_x16.h"

enum { MOST_ROWS = 4, PAIRED = 0 };

/* Writes columns 4v .. 4v + 3 four times to x[v]. */
INLINE void spread(int8x16_t x[8], const int8_t *q) {
    for (int half = 0; half < 2; half++) {
        const int32x4_t columns = vreinterpretq_s32_s8(vld1q_s8(q + 16 * half));
        x[4 * half] = vreinterpretq_s8_s32(vdupq_laneq_s32(columns, 0));
        x[4 * half + 1] = vreinterpretq_s8_s32(vdupq_laneq_s32(columns, 1));
        x[4 * half + 2] = vreinterpretq_s8_s32(vdupq_laneq_s32(columns, 2));
        x[4 * half + 3] = vreinterpretq_s8_s32(vdupq_laneq_s32(columns, 3));
    }
}

/* Multiplies levels. Eight products in a lane are at most 8 * 31 * 127 = 31496; four
 * products of levels up to 63 are at most 32004. */
INLINE void dot_levels(int32x4_t *sums, const int N, const weight_quad *w, const int8_t *q,
                       const int from, const int to) {
    for (int i = 0; i < N; i++) {
        int8x16_t x[8];
        spread(x, q + 32 * i);
        int16x8_t low = vmull_s8(vget_low_s8(w->q[from]), vget_low_s8(x[from]));
        int16x8_t high = vmull_high_s8(w->q[from], x[from]);
        for (int v = from + 1; v < to; v++) {
            low = vmlal_s8(low, vget_low_s8(w->q[v]), vget_low_s8(x[v]));
            high = vmlal_high_s8(high, w->q[v], x[v]);
        }
        sums[i] = vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high));
    }
}

/* Multiplies signed bytes. Two products in a lane are at most 2 * 128 * 127 = 32512. */
INLINE void dot_bytes(int32x4_t *sums, const int N, const weight_quad *w, const int8_t *q,
                      const int from, const int to) {
    for (int i = 0; i < N; i++) {
        int8x16_t x[8];
        spread(x, q + 32 * i);
        int32x4_t lows = vdupq_n_s32(0), highs = lows;
        for (int v = from; v < to; v += 2) {
            int16x8_t low = vmull_s8(vget_low_s8(w->q[v]), vget_low_s8(x[v]));
            int16x8_t high = vmull_high_s8(w->q[v], x[v]);
            low = vmlal_s8(low, vget_low_s8(w->q[v + 1]), vget_low_s8(x[v + 1]));
            high = vmlal_high_s8(high, w->q[v + 1], x[v + 1]);
            lows = vpadalq_s16(lows, low);
            highs = vpadalq_s16(highs, high);
        }
        sums[i] = vpaddq_s32(lows, highs);
    }
}

#define KERNEL(name, dot, correction, has_m, has_parts) \
    MATMUL_X16_KERNEL(neon, name, dot, correction, has_m, has_parts)
WEIGHT_FORMATS(KERNEL, dot_levels, dot_bytes)
