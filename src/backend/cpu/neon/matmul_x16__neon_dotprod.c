/* SPDX-License-Identifier: Apache-2.0 */
/* Products of bytes with dotprod, which adds four columns of a row to its sum. */
#include "backend/cpu/neon/matmul_x16.h"

enum { MOST_ROWS = 4, PAIRED = 0 };

INLINE void dot(int32x4_t *sums, const int N, const weight_quad *w, const int8_t *q, const int from,
                const int to) {
    for (int i = 0; i < N; i++) sums[i] = vdupq_n_s32(0);
    for (int half = from / 4; half < to / 4; half++) {
        const int8x16_t *v = w->q + 4 * half;
        for (int i = 0; i < N; i++) {
            const int8x16_t x = vld1q_s8(q + 32 * i + 16 * half);
            sums[i] = vdotq_laneq_s32(sums[i], v[0], x, 0);
            sums[i] = vdotq_laneq_s32(sums[i], v[1], x, 1);
            sums[i] = vdotq_laneq_s32(sums[i], v[2], x, 2);
            sums[i] = vdotq_laneq_s32(sums[i], v[3], x, 3);
        }
    }
}

#define KERNEL(name, dot, correction, has_m, has_parts) \
    MATMUL_X16_KERNEL(neon_dotprod, name, dot, correction, has_m, has_parts)
WEIGHT_FORMATS(KERNEL, dot, dot)
