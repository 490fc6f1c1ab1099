/* SPDX-License-Identifier: Apache-2.0 */
/* Exponentials for x <= 0: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial for exp(r), times 2^n.
 * The error is at most 2 units in the last place; NaN gives NaN. */
#ifndef AG_BACKEND_CPU_NEON_EXP_H
#define AG_BACKEND_CPU_NEON_EXP_H

#include <arm_neon.h>

static inline float32x4_t power_of_two(int32x4_t n) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
}

/* Returns p with exp(x) = p 2^n. */
static inline float32x4_t exp_parts(float32x4_t x, int32x4_t *n) {
    const float32x4_t whole = vrndnq_f32(vmulq_n_f32(x, 0x1.715476p+0f));
    *n = vcvtnq_s32_f32(whole);
    /* ln 2 as a sum of two floats; the product of n and the first one is exact. */
    float32x4_t r = vfmsq_n_f32(x, whole, 0x1.62ep-1f);
    r = vfmsq_n_f32(r, whole, 0x1.0bfbe8p-15f);
    float32x4_t p = vdupq_n_f32(1.0f / 5040);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 720), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 120), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 24), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 6), p, r);
    p = vfmaq_f32(vdupq_n_f32(0.5f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
    return vfmaq_f32(vdupq_n_f32(1.0f), p, r);
}

/* Returns exp(x), 0 below -104. */
static inline float32x4_t exp_negative(float32x4_t x) {
    int32x4_t n;
    const float32x4_t p = exp_parts(vmaxq_f32(vdupq_n_f32(-110.0f), x), &n);
    /* Two factors: 2^-159 is below the range of floats, but the result may be subnormal. */
    const int32x4_t part = vshrq_n_s32(n, 1);
    return vmulq_f32(vmulq_f32(p, power_of_two(part)), power_of_two(vsubq_s32(n, part)));
}

/* Returns exp(x), 0 below -87.33: never a subnormal number. Weights of attention are multiplied
 * many times, and a product with a subnormal number takes over a hundred cycles. */
static inline float32x4_t exp_weight(float32x4_t x) {
    int32x4_t n;
    const float32x4_t p = vmulq_f32(exp_parts(x, &n), power_of_two(n));
    const uint32x4_t is_small = vcltq_f32(x, vdupq_n_f32(-87.33f));
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(p), is_small));
}

#endif
