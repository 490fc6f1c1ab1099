/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding of a value or a block of 32 for a cache, with the bits of src/quant. A value that the
 * type cannot represent (NaN, Inf, a scale above the range of F16) is stored as NaN, so that all
 * results are NaN and the error is detected. Included by kernels. */
#ifndef KV_ROUNDING
#define KV_ROUNDING

#include "types.cl"

enum { HALF_NAN = 0x7e00 };

static inline float kept_f32(float v) { return isfinite(v) ? v : NAN; }

static inline ushort kept_f16(float v) {
    const ushort h = half_bits(v);
    return (h & 0x7fff) == 0x7c00 ? HALF_NAN : h;
}

/* Returns a / b, correctly rounded on every device; 0 < |b| < Inf. */
static inline float quotient(float a, float b) {
    const float q = a / b;
    const float r = fma(-q, b, a);
    return isfinite(r) ? q + r / b : q;
}

/* Returns a * b + c with two roundings. */
static inline float product_then_sum(float a, float b, float c) {
#pragma OPENCL FP_CONTRACT OFF
#ifdef __NV_CL_C_VERSION
    float product;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(a), "f"(b));
#else
    const float product = a * b;
#endif
    return product + c;
}

/* A stored scale and its factor for values. */
typedef struct kept_scale {
    ushort stored;
    float inverse;
} kept_scale;

/* Returns the scale d = signed extreme / -8. bad: a value is not finite. */
static inline kept_scale kept_q4_0(float lowest, float highest, bool bad) {
    const float extreme = highest > -lowest ? highest : lowest;
    const float d = extreme * -0.125f;
    kept_scale s = {half_bits(d), 0.0f};
    if (s.stored & 0x7fff) s.inverse = quotient(1.0f, d);
    if (bad || (s.stored & 0x7c00) == 0x7c00) s.stored = HALF_NAN;
    return s;
}

/* Returns the level 0 .. 15; ties round up. */
static inline int level_q4_0(float v, kept_scale s) {
    return clamp((int)product_then_sum(v, s.inverse, 8.5f), 0, 15);
}

/* Returns the scale d = largest / 127 as F16. */
static inline kept_scale kept_q8_0(float lowest, float highest, bool bad) {
    const float largest = highest > -lowest ? highest : -lowest;
    kept_scale s = {half_bits(quotient(largest, 127.0f)), 0.0f};
    bad = bad || (s.stored & 0x7c00) == 0x7c00;
    const float d = half_value(s.stored);
    if (d > 0 && !bad) s.inverse = quotient(1.0f, d);
    if (bad) s.stored = HALF_NAN;
    return s;
}

/* Returns the level -127 .. 127 nearest to v / d. */
static inline int level_q8_0(float v, kept_scale s) {
    return clamp((int)product_then_sum(v, s.inverse, 256.5f) - 256, -127, 127);
}

#endif
