/* SPDX-License-Identifier: Apache-2.0 */
/* Products of bytes with i8mm, which multiplies eight columns of two rows of weights and of two
 * rows of activations. A single row of activations uses dotprod. */
#include "backend/cpu/neon/matmul_x16.h"

/* Used by WEIGHT_FORMAT: rows multiplied at a time; activations of two rows are packed in pairs. */
enum { MOST_ROWS = 8, PAIRED = 1 };

INLINE int32x4_t dot_one(const weight_quad *w, const int8_t *q, const int from, const int to) {
    int32x4_t sum = vdupq_n_s32(0);
    for (int v = from; v < to; v += 4) {
        const int8x16_t x = vld1q_s8(q + 4 * v);
        sum = vdotq_laneq_s32(sum, w->q[v], x, 0);
        sum = vdotq_laneq_s32(sum, w->q[v + 1], x, 1);
        sum = vdotq_laneq_s32(sum, w->q[v + 2], x, 2);
        sum = vdotq_laneq_s32(sum, w->q[v + 3], x, 3);
    }
    return sum;
}

INLINE int64x2_t wide(int32x4_t v) { return vreinterpretq_s64_s32(v); }

INLINE void dot(int32x4_t *sums, const int N, const weight_quad *w, const int8_t *q, const int from,
                const int to) {
    if (N == 1) {
        sums[0] = dot_one(w, q, from, to);
        return;
    }
    for (int i = 0; i < N; i += 2) {
        /* [i][row 0], [i][row 1], [i + 1][row 0], [i + 1][row 1]; of rows 2 and 3. */
        int32x4_t low = vdupq_n_s32(0), high = low;
        for (int g = from / 2; g < to / 2; g++) {
            const int8x16_t x = vld1q_s8(q + 32 * i + 16 * g);
            low = vmmlaq_s32(low, x, w->q[2 * g]);
            high = vmmlaq_s32(high, x, w->q[2 * g + 1]);
        }
        sums[i] = vreinterpretq_s32_s64(vzip1q_s64(wide(low), wide(high)));
        sums[i + 1] = vreinterpretq_s32_s64(vzip2q_s64(wide(low), wide(high)));
    }
}

#define KERNEL(name, dot, correction, has_m, has_parts) \
    MATMUL_X16_KERNEL(neon_i8mm, name, dot, correction, has_m, has_parts)
WEIGHT_FORMATS(KERNEL, dot, dot)
