/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/neon/exp.h"
#include "backend/cpu/neon/neon.h"
#include "backend/cpu/neon/tail.h"

/* With t = exp(-|a|) the sigmoid is 1 / (1 + t), or t / (1 + t) where a is negative: no overflow,
 * and no digits lost far from 0. */
static float32x4_t silu(float32x4_t a) {
    const float32x4_t one = vdupq_n_f32(1.0f), t = exp_negative(vnegq_f32(vabsq_f32(a)));
    const float32x4_t top = vbslq_f32(vcltzq_f32(a), t, one);
    return vmulq_f32(a, vdivq_f32(top, vaddq_f32(one, t)));
}

void ag_silu_mul__neon(float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i += 4) {
        const float32x4_t y = silu(load_first(a + i, n - i, 0));
        store_first(a + i, vmulq_f32(y, load_first(b + i, n - i, 0)), n - i);
    }
}
