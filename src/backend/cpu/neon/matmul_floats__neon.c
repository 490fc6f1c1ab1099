/* SPDX-License-Identifier: Apache-2.0 */
/* Vector sums and loads for simd/matmul_floats.h: 8 lanes, two vectors. */
#include "backend/cpu/neon/neon.h"
#include "backend/cpu/neon/vec.h"

typedef struct wide {
    vec low, high;
} wide;

/* X_ROWS: rows of activations multiplied at a time, four sums each. */
enum { WIDE = 2 * LANES, X_ROWS = 2, FETCHES_WEIGHTS = 0 };

INLINE wide wide_zero(void) { return (wide){v_zero(), v_zero()}; }
INLINE wide wide_load(const float *p) { return (wide){v_load(p), v_load(p + LANES)}; }
INLINE wide wide_fma(wide a, wide b, wide c) {
    return (wide){v_fma(a.low, b.low, c.low), v_fma(a.high, b.high, c.high)};
}

INLINE float wide_sum(wide v) {
    const vec a = v_add(v.low, v.high);
    const float32x2_t b = vadd_f32(vget_low_f32(a), vget_high_f32(a));
    return vget_lane_f32(b, 0) + vget_lane_f32(b, 1);
}

INLINE wide load_f32(const unsigned char *p) { return wide_load((const void *)p); }
INLINE wide load_f16(const unsigned char *p) {
    return (wide){v_load_f16(p), v_load_f16(p + 2 * LANES)};
}
INLINE wide load_bf16(const unsigned char *p) {
    const uint16x8_t halves = vld1q_u16((const void *)p);
    return (wide){vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(halves), 16)),
                  vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(halves), 16))};
}

#define SET(name) name##__neon
#include "backend/cpu/simd/matmul_floats.h"
