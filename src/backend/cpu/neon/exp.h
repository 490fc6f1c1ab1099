/* SPDX-License-Identifier: Apache-2.0 */
/* exp(x) for x <= 0: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial for exp(r), times 2^n. The
 * error is at most 2 units in the last place. 0 below -104; NaN gives NaN. */
#ifndef AG_BACKEND_CPU_NEON_EXP_H
#define AG_BACKEND_CPU_NEON_EXP_H

#include <arm_neon.h>

static inline float32x4_t power_of_two(int32x4_t n) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
}

static inline float32x4_t exp_negative(float32x4_t x) {
    x = vmaxq_f32(vdupq_n_f32(-110.0f), x);
    const float32x4_t n = vrndnq_f32(vmulq_n_f32(x, 0x1.715476p+0f));
    /* ln 2 as a sum of two floats; the product of n and the first one is exact. */
    float32x4_t r = vfmsq_n_f32(x, n, 0x1.62ep-1f);
    r = vfmsq_n_f32(r, n, 0x1.0bfbe8p-15f);
    float32x4_t p = vdupq_n_f32(1.0f / 5040);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 720), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 120), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 24), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 6), p, r);
    p = vfmaq_f32(vdupq_n_f32(0.5f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
    /* Two factors: 2^-159 is below the range of floats, but the result may be subnormal. */
    const int32x4_t exponent = vcvtnq_s32_f32(n), part = vshrq_n_s32(exponent, 1);
    p = vmulq_f32(p, power_of_two(part));
    return vmulq_f32(p, power_of_two(vsubq_s32(exponent, part)));
}

#endif
