/* SPDX-License-Identifier: Apache-2.0 */
/* Writes values to rows of a cache, in its types. Included by kernels. */
#include "kv_rounding.cl"
#include "kv_table.cl"

/* Products and sums are rounded separately. */
#pragma OPENCL FP_CONTRACT OFF

static inline void store_u16(__global uchar *p, ushort v) {
    p[0] = (uchar)v;
    p[1] = (uchar)(v >> 8);
}

static inline void write_q4_0(__global uchar *p, const float *x, kept_scale s) {
    store_u16(p, s.stored);
    for (int i = 0; i < QK / 2; i++)
        p[2 + i] = (uchar)(level_q4_0(x[i], s) | level_q4_0(x[i + QK / 2], s) << 4);
}

static inline void write_q8_0(__global uchar *p, const float *x, kept_scale s) {
    store_u16(p, s.stored);
    for (int i = 0; i < QK; i++) p[2 + i] = (uchar)(char)level_q8_0(x[i], s);
}

/* Writes n values, at most 32, as elements of a row from element `at` on. */
static inline void write_values(uint type, __global uchar *row, const float *x, uint at, uint n) {
    float lowest = INFINITY, highest = -INFINITY;
    bool bad = false;
    for (uint i = 0; i < n; i++) {
        bad = bad || !isfinite(x[i]);
        lowest = fmin(lowest, x[i]);
        highest = fmax(highest, x[i]);
    }
    if (type == TYPE_F32) {
        for (uint i = 0; i < n; i++) ((__global float *)row)[at + i] = kept_f32(x[i]);
    } else if (type == TYPE_F16) {
        __global ushort *to = (__global ushort *)row + at;
        if (n == 4 && (size_t)to % sizeof(ushort4) == 0) {
            *(__global ushort4 *)to =
                (ushort4)(kept_f16(x[0]), kept_f16(x[1]), kept_f16(x[2]), kept_f16(x[3]));
        } else {
            for (uint i = 0; i < n; i++) to[i] = kept_f16(x[i]);
        }
    } else if (type == TYPE_Q4_0) {
        write_q4_0(row + at / QK * 18, x, kept_q4_0(lowest, highest, bad));
    } else {
        write_q8_0(row + at / QK * 34, x, kept_q8_0(lowest, highest, bad));
    }
}
