/* SPDX-License-Identifier: Apache-2.0 */
/* New tokens into the blocks of a cache, in its types, to the byte as src/quant rounds them. What
 * has no value in the type (NaN, Inf, a scale beyond halves) is kept as NaN, so that everything
 * computed from it is NaN too and nobody takes it for text. */
#include "types.cl"

/* A product and a sum stay two roundings. */
#pragma OPENCL FP_CONTRACT OFF

#ifndef WG
#define WG 32
#endif

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

/* Up to 32 elements of a row from element `at` on. */
static inline void write_values(uint type, __global uchar *row, __global const float *from, uint at,
                         uint n) {
    float x[QK], lowest = INFINITY, highest = -INFINITY;
    bool bad = false;
    for (uint i = 0; i < n; i++) {
        const float v = from[at + i];
        bad = bad || !isfinite(v);
        lowest = fmin(lowest, v);
        highest = fmax(highest, v);
        x[i] = v;
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

/* Row r of k and v [n, heads, d] into slot held[h] + r of KV head h, for the slots that lie in
 * blocks [block0, block0 + n_blocks) of the cache: these follow one another in one buffer, `stride`
 * bytes apart, from cache_at on. held: [heads].
 * Dimension 0: pieces of 32 elements of all heads of all rows, in groups of WG; 1: keys, values. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
kv_write(__global uchar *cache, ulong cache_at, ulong stride, ulong v_at, ulong p_at, uint block0,
         uint n_blocks, __global const uchar *k, ulong k_at, __global const uchar *v, ulong new_v_at,
         __global const uchar *positions, ulong positions_at, __global const uchar *held,
         ulong held_at, uint k_type, uint v_type, uint heads, uint d, uint n) {
    const uint pieces = (d + QK - 1) / QK, is_value = get_global_id(1);
    const uint at = get_global_id(0) % pieces * QK;
    const size_t item = get_global_id(0) / pieces; /* row * heads + head */
    if (item >= (size_t)n * heads) return;
    const uint row = (uint)(item / heads), head = (uint)(item % heads);
    const uint slot = ((__global const uint *)(held + held_at))[head] + row;
    const uint block = slot / KV_BLOCK - block0; /* a slot before them wraps around */
    if (block >= n_blocks) return;
    __global uchar *base = cache + cache_at + block * stride;
    const ulong place = (ulong)head * KV_BLOCK + slot % KV_BLOCK;
    if (!is_value && at == 0) {
        ((__global uint *)(base + p_at))[place] =
            ((__global const uint *)(positions + positions_at))[row];
    }
    const uint type = is_value ? v_type : k_type;
    __global const float *from =
        (__global const float *)(is_value ? v + new_v_at : k + k_at) + item * d;
    __global uchar *to = base + (is_value ? v_at : 0) + place * row_bytes(type, d);
    write_values(type, to, from, at, min(d - at, (uint)QK));
}
