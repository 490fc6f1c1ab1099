/* SPDX-License-Identifier: Apache-2.0 */
/* Loads and stores of vectors of 4 floats of which n exist. */
#ifndef AG_BACKEND_CPU_NEON_TAIL_H
#define AG_BACKEND_CPU_NEON_TAIL_H

#include <arm_neon.h>
#include <stddef.h>

/* Loads n floats; lanes from n on are `rest`. */
static inline float32x4_t load_first(const float *p, size_t n, float rest) {
    if (n >= 4) return vld1q_f32(p);
    float lanes[4] = {rest, rest, rest, rest};
    __builtin_memcpy(lanes, p, n * sizeof *p);
    return vld1q_f32(lanes);
}

static inline void store_first(float *p, float32x4_t v, size_t n) {
    if (n >= 4) {
        vst1q_f32(p, v);
        return;
    }
    float lanes[4];
    vst1q_f32(lanes, v);
    __builtin_memcpy(p, lanes, n * sizeof *p);
}

#endif
