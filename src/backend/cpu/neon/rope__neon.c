/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/neon/neon.h"
#include "backend/cpu/neon/tail.h"

/* Loads n pairs (cos, sin), at most 4, as cosines and sines. */
static float32x4x2_t load_pairs(const float *p, size_t n) {
    if (n >= 4) return vld2q_f32(p);
    float pairs[8] = {0};
    __builtin_memcpy(pairs, p, 2 * n * sizeof *p);
    return vld2q_f32(pairs);
}

void ag_rope__neon(float *x, const float *cos_sin, size_t n) {
    const size_t half = n / 2;
    for (size_t i = 0; i < half; i += 4) {
        const float32x4x2_t turn = load_pairs(cos_sin + 2 * i, half - i);
        const float32x4_t c = turn.val[0], s = turn.val[1];
        const float32x4_t a = load_first(x + i, half - i, 0);
        const float32x4_t b = load_first(x + i + half, half - i, 0);
        store_first(x + i, vfmaq_f32(vnegq_f32(vmulq_f32(b, s)), a, c), half - i);
        store_first(x + i + half, vfmaq_f32(vmulq_f32(a, s), b, c), half - i);
    }
}
