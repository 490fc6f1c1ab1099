/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors for the shared code of simd/: 4 floats, one quad. */
#ifndef AG_BACKEND_CPU_NEON_VEC_H
#define AG_BACKEND_CPU_NEON_VEC_H

#include "backend/cpu/neon/exp.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

typedef float32x4_t vec;

enum {
    LANES = 4,
    /* Sums that attention holds in registers: KEY_VECS vectors of queries times 4 keys, VALUE_VECS
     * vectors of values times 4 queries. */
    KEY_VECS = 4,
    VALUE_VECS = 4,
};

INLINE vec v_zero(void) { return vdupq_n_f32(0); }
INLINE vec v_set(float x) { return vdupq_n_f32(x); }
INLINE vec v_load(const float *p) { return vld1q_f32(p); }
INLINE void v_store(float *p, vec a) { vst1q_f32(p, a); }
INLINE vec v_add(vec a, vec b) { return vaddq_f32(a, b); }
INLINE vec v_sub(vec a, vec b) { return vsubq_f32(a, b); }
INLINE vec v_mul(vec a, vec b) { return vmulq_f32(a, b); }
INLINE vec v_div(vec a, vec b) { return vdivq_f32(a, b); }
/* a * b + c, rounded once. */
INLINE vec v_fma(vec a, vec b, vec c) { return vfmaq_f32(c, a, b); }
/* a < b ? yes : no, lane by lane. */
INLINE vec v_if_less(vec a, vec b, vec yes, vec no) { return vbslq_f32(vcltq_f32(a, b), yes, no); }
/* Returns the maximum; b if either is NaN, unlike vmaxq_f32. */
INLINE vec v_max(vec a, vec b) { return v_if_less(b, a, a, b); }
INLINE vec v_min(vec a, vec b) { return v_if_less(a, b, a, b); }
INLINE vec v_abs(vec a) { return vabsq_f32(a); }
/* Return the largest and the smallest of all lanes. */
INLINE float v_highest(vec a) { return vmaxvq_f32(a); }
INLINE float v_lowest(vec a) { return vminvq_f32(a); }

/* Returns exp(x) for x <= 0 or NaN. */
INLINE vec v_exp(vec x) { return exp_negative(x); }
INLINE vec v_weight(vec x) { return exp_weight(x); }

/* ---- quads ---- */

/* Loads p[0..4) into every quad. */
INLINE vec v_quad(const float *p) { return vld1q_f32(p); }
/* Loads p[q] into all lanes of quad q. */
INLINE vec v_quads_of(const float *p) { return vld1q_dup_f32(p); }
/* Stores lane 0 of every quad. */
INLINE void v_store_firsts(float *p, vec a) { *p = vgetq_lane_f32(a, 0); }
/* Rearrange lanes within every quad of four lanes. In this order they return: a0 b0 a1 b1;
 * a2 b2 a3 b3; a0 a1 b0 b1; a2 a3 b2 b3; a1 a0 a3 a2 (of a alone); a2 a3 a0 a1 (of a alone). */
INLINE vec v_zip_low(vec a, vec b) { return vzip1q_f32(a, b); }
INLINE vec v_zip_high(vec a, vec b) { return vzip2q_f32(a, b); }
INLINE vec v_pairs_low(vec a, vec b) { return vcombine_f32(vget_low_f32(a), vget_low_f32(b)); }
INLINE vec v_pairs_high(vec a, vec b) { return vcombine_f32(vget_high_f32(a), vget_high_f32(b)); }
INLINE vec v_swap_lanes(vec a) { return vrev64q_f32(a); }
INLINE vec v_swap_pairs(vec a) { return vextq_f32(a, a, 2); }

/* ---- from a cache ---- */

INLINE vec v_load_f16(const void *p) {
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8((const uint8_t *)p)));
}

/* Converts the first four of eight signed bytes to floats. */
INLINE vec floats_of(int8x8_t bytes) {
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))));
}

/* Loads four bytes into the low half. */
INLINE uint8x8_t load_4(const unsigned char *p) {
    uint32_t bytes;
    memcpy(&bytes, p, sizeof bytes);
    return vreinterpret_u8_u32(vdup_n_u32(bytes));
}

/* Loads values at, at + 1, ... of the 32 bytes at q; `at` is a multiple of LANES. */
INLINE vec v_load_q8(const unsigned char *q, size_t at) {
    return floats_of(vreinterpret_s8_u8(load_4(q + at)));
}

/* Loads values of 32 nibbles minus 8: values 0 to 15 are the low nibbles of 16 bytes, values 16 to
 * 31 the high nibbles. */
INLINE vec v_load_q4(const unsigned char *q, size_t at) {
    uint8x8_t bytes = load_4(q + at % 16);
    bytes = at < 16 ? vand_u8(bytes, vdup_n_u8(15)) : vshr_n_u8(bytes, 4);
    return floats_of(vsub_s8(vreinterpret_s8_u8(bytes), vdup_n_s8(8)));
}

/* ---- into a cache ---- */

INLINE void v_store_f16(void *p, vec a) {
    vst1_u8((uint8_t *)p, vreinterpret_u8_f16(vcvt_f16_f32(a)));
}

/* Stores four integers between -128 and 255 as bytes. */
INLINE void store_bytes(unsigned char *q, int32x4_t n) {
    const int16x4_t pairs = vmovn_s32(n);
    const int8x8_t bytes = vmovn_s16(vcombine_s16(pairs, pairs));
    const uint32_t four = vget_lane_u32(vreinterpret_u32_s8(bytes), 0);
    memcpy(q, &four, sizeof four);
}

/* Stores bytes of the nearest integers, halves rounded up, clamped to -127 and 127. */
INLINE void v_store_q8(unsigned char *q, vec a) {
    int32x4_t n = vcvtq_s32_f32(vaddq_f32(a, vdupq_n_f32(256.5f)));
    n = vsubq_s32(n, vdupq_n_s32(256));
    store_bytes(q, vmaxq_s32(vminq_s32(n, vdupq_n_s32(127)), vdupq_n_s32(-127)));
}

/* Returns the nearest integers plus 8, clamped to 0 and 15. */
INLINE int32x4_t levels_of(vec a) {
    const int32x4_t n = vcvtq_s32_f32(vaddq_f32(a, vdupq_n_f32(8.5f)));
    return vmaxq_s32(vminq_s32(n, vdupq_n_s32(15)), vdupq_n_s32(0));
}

/* Stores LANES bytes with the levels of `low` in their low nibbles. */
INLINE void v_store_q4(unsigned char *q, vec low, vec high) {
    store_bytes(q, vorrq_s32(levels_of(low), vshlq_n_s32(levels_of(high), 4)));
}

INLINE uint16_t float_to_half(float x) {
    return vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(x))), 0);
}
INLINE float half_to_float(uint16_t h) {
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0);
}

#endif
