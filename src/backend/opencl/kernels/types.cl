/* SPDX-License-Identifier: Apache-2.0 */
/* Element types of files and caches, and their values. Included by kernels. Rows may start at any
 * byte, so wider values are assembled from bytes. TYPE_F32, ... equal the values of ag_dtype. */
#ifndef TYPES
#define TYPES

#include "dtype_table.h"
#include "nibble_values.cl"

enum {
#define TYPE_NUMBER(name, text, block, bytes, halves, roles) TYPE_##name,
    AG_DTYPE_MAP(TYPE_NUMBER)
#undef TYPE_NUMBER
        N_TYPES,
    QK = 32,   /* elements of a block of quantised types */
    QK_K = 256 /* elements of a super-block of K-quants */
};

static inline ushort load_u16(__global const uchar *p) { return (ushort)(p[0] | p[1] << 8); }

static inline float load_f32(__global const uchar *p) {
    return as_float(p[0] | (uint)p[1] << 8 | (uint)p[2] << 16 | (uint)p[3] << 24);
}

/* Converts F16 in integer arithmetic: equal on every device, including subnormals, Inf and NaN. */
static inline float half_value(ushort h) {
    const uint sign = (uint)(h & 0x8000) << 16, magnitude = h & 0x7fff;
    if (magnitude < 0x400) return as_float(sign | as_uint((float)magnitude * 0x1p-24f));
    const uint bias = magnitude < 0x7c00 ? 112u << 23 : 224u << 23;
    const uint quiet = magnitude > 0x7c00 ? 1u << 22 : 0;
    return as_float(sign | ((magnitude << 13) + bias) | quiet);
}

/* The same by an instruction if there is one: the bits of NaN may differ. */
static inline float float_of_half(ushort h) {
#ifdef __NV_CL_C_VERSION
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
#else
    return half_value(h);
#endif
}

/* Converts to F16: to nearest even; Inf from 65520 on; NaN gives NaN. */
static inline ushort half_bits(float f) {
    const uint b = as_uint(f), sign = b >> 16 & 0x8000, magnitude = b & 0x7fffffff;
    uint h = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    /* The last bit of the sum with 0.5 is that of a subnormal F16, so the addition rounds. */
    if (magnitude < 0x38800000) h = as_uint(as_float(magnitude) + 0.5f) - as_uint(0.5f);
    if (magnitude >= 0x477ff000) h = 0x7c00;
    if (magnitude > 0x7f800000) h = 0x7e00 | (magnitude >> 13 & 0x3ff);
    return (ushort)(sign | h);
}

static inline float bfloat_value(ushort h) { return as_float((uint)h << 16); }

/* Returns the bytes of n elements, n a multiple of the type's block. */
static inline ulong row_bytes(uint type, ulong n) {
#define ROW_BYTES(name, text, block, bytes, halves, roles) \
    if (type == TYPE_##name) return n / block * bytes;
    AG_DTYPE_MAP(ROW_BYTES)
#undef ROW_BYTES
    return 0;
}

/* ---- elements of blocks; src/quant/quant.h describes the layouts ---- */

/* Returns field i of 256 fields of `width` bits, in runs of `chunk` bytes. */
static inline uint field(__global const uchar *p, uint i, uint width, uint chunk) {
    const uint each = 8 / width, run = chunk * each;
    return p[i / run * chunk + i % chunk] >> i % run / chunk * width & ((1 << width) - 1);
}

/* Returns scale n < 16 of Q4_K and Q5_K: sc of sub-block n < 8, m of sub-block n - 8. */
static inline uint scale_of_part(__global const uchar *p, uint n) {
    const uint part = n % 8, from = n / 8 * 4 + part % 4;
    if (part < 4) return p[from] & 63;
    return (p[8 + part % 4] >> n / 8 * 4 & 15) | p[from] >> 6 << 4;
}

static inline float q2_k(__global const uchar *p, uint i) {
    const uchar scales = p[i / 16];
    const float d = half_value(load_u16(p + 80)), base = half_value(load_u16(p + 82));
    const float scale = d * (float)(scales & 15);
    return scale * (float)field(p + 16, i, 2, 32) - base * (float)(scales >> 4);
}

static inline float q3_k(__global const uchar *p, uint i) {
    __global const uchar *scales = p + 96;
    const uint part = i / 16, low = scales[part % 8] >> part / 8 * 4 & 15;
    const int scale = (int)(low | (scales[8 + part % 4] >> part / 4 * 2 & 3) << 4) - 32;
    const int level = (int)(field(p + 32, i, 2, 32) | field(p, i, 1, 32) << 2) - 4;
    return half_value(load_u16(p + 108)) * (float)scale * (float)level;
}

static inline float q45_k(__global const uchar *p, uint i, bool has_qh) {
    const uint low = field(p + (has_qh ? 48 : 16), i, 4, 32);
    const uint level = has_qh ? low | field(p + 16, i, 1, 32) << 4 : low;
    const float scale = half_value(load_u16(p)) * (float)scale_of_part(p + 4, i / 32);
    return scale * (float)level -
           half_value(load_u16(p + 2)) * (float)scale_of_part(p + 4, 8 + i / 32);
}

static inline float q6_k(__global const uchar *p, uint i) {
    const int level = (int)(field(p, i, 4, 64) | field(p + 128, i, 2, 32) << 4) - 32;
    return half_value(load_u16(p + 208)) * (float)(char)p[192 + i / 16] * (float)level;
}

static inline float element_k(uint type, __global const uchar *p, uint i) {
    if (type == TYPE_Q2_K) return q2_k(p, i);
    if (type == TYPE_Q3_K) return q3_k(p, i);
    if (type == TYPE_Q6_K) return q6_k(p, i);
    return q45_k(p, i, type == TYPE_Q5_K);
}

static inline float element_of_32(uint type, __global const uchar *p, uint i) {
    const float d = half_value(load_u16(p));
    if (type == TYPE_Q8_0) return (float)(char)p[2 + i] * d;
    const bool has_qh = type == TYPE_Q5_0 || type == TYPE_Q5_1;
    const uint halves = type == TYPE_Q4_1 || type == TYPE_Q5_1 ? 4 : type == TYPE_MXFP4 ? 1 : 2;
    const uchar pair = p[halves + (has_qh ? 4 : 0) + i % 16];
    const int nibble = i < 16 ? pair & 15 : pair >> 4;
    if (type == TYPE_IQ4_NL) return d * (float)iq4_nl_values[nibble];
    if (type == TYPE_MXFP4) return mxfp4_scale(p[0]) * (float)mxfp4_values[nibble];
    const int level = has_qh ? nibble | (p[halves + i / 8] >> i % 8 & 1) << 4 : nibble;
    if (halves == 2) return (float)(level - (has_qh ? 16 : 8)) * d;
    return (float)level * d + half_value(load_u16(p + 2));
}

/* Returns element i of a row that starts at p. */
static inline float element(uint type, __global const uchar *p, ulong i) {
    if (type == TYPE_F32) return load_f32(p + 4 * i);
    if (type == TYPE_F16) return half_value(load_u16(p + 2 * i));
    if (type == TYPE_BF16) return bfloat_value(load_u16(p + 2 * i));
    if (type >= TYPE_Q2_K && type <= TYPE_Q6_K) {
        return element_k(type, p + row_bytes(type, i / QK_K * QK_K), (uint)(i % QK_K));
    }
    return element_of_32(type, p + row_bytes(type, i / QK * QK), (uint)(i % QK));
}

#endif
