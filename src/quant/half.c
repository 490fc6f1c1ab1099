/* SPDX-License-Identifier: Apache-2.0 */
/* Half floats without branches. All results are computed and one is selected, so that the row
 * loops vectorise. Formats: IEEE 754 binary16, and the upper half of binary32. */
#include "quant/blocks.h"

#include <string.h>

static inline uint32_t bits_of(float f) {
    uint32_t b;
    memcpy(&b, &f, sizeof b);
    return b;
}

static inline float float_of(uint32_t b) {
    float f;
    memcpy(&f, &b, sizeof f);
    return f;
}

static inline float f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, abs = h & 0x7fff;
    uint32_t normal = (abs << 13) + (112u << 23);
    uint32_t subnormal = bits_of((float)(int32_t)abs * 0x1p-24f);
    /* Infinity and NaN move to the top of the wider exponent range; a NaN becomes quiet. */
    uint32_t special = normal + (112u << 23);
    special |= abs > 0x7c00 ? 1u << 22 : 0;
    uint32_t b = abs < 0x400 ? subnormal : normal;
    b = abs >= 0x7c00 ? special : b;
    return float_of(sign | b);
}

static inline uint16_t f32_to_f16(float f) {
    uint32_t b = bits_of(f), sign = b >> 16 & 0x8000, abs = b & 0x7fffffff;
    /* Rounds to nearest even: adds half of the last place, minus one if that place is even. */
    uint32_t normal = (abs - (112u << 23) + 0xfff + (abs >> 13 & 1)) >> 13;
    /* The sum with 0.5 has the last place of a subnormal half, so the addition rounds. */
    uint32_t subnormal = bits_of(float_of(abs) + 0.5f) - bits_of(0.5f);
    uint32_t nan = 0x7e00 | (abs >> 13 & 0x3ff);
    uint32_t h = abs < 0x38800000 ? subnormal : normal;
    h = abs >= 0x477ff000 ? 0x7c00 : h; /* from 65520 on */
    h = abs > 0x7f800000 ? nan : h;
    return (uint16_t)(sign | h);
}

static inline float bf16_to_f32(uint16_t h) { return float_of((uint32_t)h << 16); }

static inline uint16_t f32_to_bf16(float f) {
    uint32_t b = bits_of(f);
    uint32_t rounded = (b + 0x7fff + (b >> 16 & 1)) >> 16;
    uint32_t nan = b >> 16 | 0x40;
    return (uint16_t)((b & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

float ag_f16_to_f32(uint16_t h) { return f16_to_f32(h); }
uint16_t ag_f32_to_f16(float f) { return f32_to_f16(f); }
float ag_bf16_to_f32(uint16_t h) { return bf16_to_f32(h); }
uint16_t ag_f32_to_bf16(float f) { return f32_to_bf16(f); }

static inline uint16_t load_u16(const unsigned char *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void store_u16(unsigned char *p, uint16_t v) { memcpy(p, &v, sizeof v); }

void ag_f16_to_f32_row(float *dst, const void *src, size_t n) {
    const unsigned char *p = src;
    for (size_t i = 0; i < n; i++) dst[i] = f16_to_f32(load_u16(p + 2 * i));
}

void ag_bf16_to_f32_row(float *dst, const void *src, size_t n) {
    const unsigned char *p = src;
    for (size_t i = 0; i < n; i++) dst[i] = bf16_to_f32(load_u16(p + 2 * i));
}

void ag_f32_to_f16_row(void *dst, const float *src, size_t n) {
    unsigned char *p = dst;
    for (size_t i = 0; i < n; i++) store_u16(p + 2 * i, f32_to_f16(src[i]));
}

void ag_f32_to_bf16_row(void *dst, const float *src, size_t n) {
    unsigned char *p = dst;
    for (size_t i = 0; i < n; i++) store_u16(p + 2 * i, f32_to_bf16(src[i]));
}
