/* SPDX-License-Identifier: Apache-2.0 */
/* Values as the cache's types keep them, to the byte as src/quant rounds them. What has no value in
 * the type (NaN, Inf, a scale beyond halves) is kept as NaN, so that everything computed from it is
 * NaN too and nobody takes it for text. Included by kernels. */
#include "types.cl"

/* A product and a sum stay two roundings. */
#pragma OPENCL FP_CONTRACT OFF

enum { KV_BLOCK = 128, HALF_NAN = 0x7e00 };

/* a / b, correctly rounded whatever division the device has; 0 < |b| < Inf. */
static inline float quotient(float a, float b) {
    const float q = a / b;
    const float r = fma(-q, b, a);
    return isfinite(r) ? q + r / b : q;
}

static inline void store_u16(__global uchar *p, ushort v) {
    p[0] = (uchar)v;
    p[1] = (uchar)(v >> 8);
}

/* A whole block from x[0..32): d = signed extreme / -8, halves round up. */
static inline void write_q4_0(__global uchar *p, const float *x, float lowest, float highest, bool bad) {
    const float extreme = highest > -lowest ? highest : lowest;
    const float d = extreme * -0.125f;
    const ushort stored = half_bits(d);
    bad = bad || (stored & 0x7c00) == 0x7c00;
    const float inverse = stored & 0x7fff ? quotient(1.0f, d) : 0.0f;
    store_u16(p, bad ? HALF_NAN : stored);
    for (int i = 0; i < QK / 2; i++) {
        const int low = clamp((int)(x[i] * inverse + 8.5f), 0, 15);
        const int high = clamp((int)(x[i + QK / 2] * inverse + 8.5f), 0, 15);
        p[2 + i] = (uchar)(low | high << 4);
    }
}

/* d = largest / 127 as a half, levels to nearest with that half. */
static inline void write_q8_0(__global uchar *p, const float *x, float lowest, float highest, bool bad) {
    const float largest = highest > -lowest ? highest : -lowest;
    const ushort stored = half_bits(quotient(largest, 127.0f));
    bad = bad || (stored & 0x7c00) == 0x7c00;
    const float d = half_value(stored), inverse = d > 0 && !bad ? quotient(1.0f, d) : 0.0f;
    store_u16(p, bad ? HALF_NAN : stored);
    for (int i = 0; i < QK; i++) {
        const int q = (int)(x[i] * inverse + 256.5f) - 256;
        p[2 + i] = (uchar)(char)clamp(q, -127, 127);
    }
}

/* The n values x, up to 32, as elements of a row from element `at` on. */
static inline void write_values(uint type, __global uchar *row, const float *x, uint at, uint n) {
    float lowest = INFINITY, highest = -INFINITY;
    bool bad = false;
    for (uint i = 0; i < n; i++) {
        bad = bad || !isfinite(x[i]);
        lowest = fmin(lowest, x[i]);
        highest = fmax(highest, x[i]);
    }
    if (type == TYPE_F32) {
        for (uint i = 0; i < n; i++) ((__global float *)row)[at + i] = isfinite(x[i]) ? x[i] : NAN;
    } else if (type == TYPE_F16) {
        for (uint i = 0; i < n; i++) {
            const ushort h = half_bits(x[i]);
            store_u16(row + 2 * (at + i), (h & 0x7fff) == 0x7c00 ? HALF_NAN : h);
        }
    } else if (type == TYPE_Q4_0) {
        write_q4_0(row + at / QK * 18, x, lowest, highest, bad);
    } else {
        write_q8_0(row + at / QK * 34, x, lowest, highest, bad);
    }
}
