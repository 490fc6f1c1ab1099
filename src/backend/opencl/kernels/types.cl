/* SPDX-License-Identifier: Apache-2.0 */
/* Element types as they lie in files and caches, and their values. Included by kernels. Rows may
 * begin at any byte: what is wider than a byte is put together from bytes. The numbers, TYPE_F32
 * and so on, are those of ag_dtype. */
#include "dtype_table.h"

enum {
#define TYPE_NUMBER(name, text, block, bytes, halves, roles) TYPE_##name,
    AG_DTYPE_MAP(TYPE_NUMBER)
#undef TYPE_NUMBER
        N_TYPES,
    QK = 32 /* elements in a block of every quantised type */
};

static inline ushort load_u16(__global const uchar *p) { return (ushort)(p[0] | p[1] << 8); }

static inline float load_f32(__global const uchar *p) {
    return as_float(p[0] | (uint)p[1] << 8 | (uint)p[2] << 16 | (uint)p[3] << 24);
}

/* Halves by integer arithmetic: the same on every device, subnormals, Inf and NaN included. */
static inline float half_value(ushort h) {
    const uint sign = (uint)(h & 0x8000) << 16, magnitude = h & 0x7fff;
    if (magnitude < 0x400) return as_float(sign | as_uint((float)magnitude * 0x1p-24f));
    const uint bias = magnitude < 0x7c00 ? 112u << 23 : 224u << 23;
    const uint quiet = magnitude > 0x7c00 ? 1u << 22 : 0;
    return as_float(sign | ((magnitude << 13) + bias) | quiet);
}

/* To nearest even; from 65520 on Inf, NaN stays NaN. */
static inline ushort half_bits(float f) {
    const uint b = as_uint(f), sign = b >> 16 & 0x8000, magnitude = b & 0x7fffffff;
    uint h = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    /* The sum with 0.5 has the last place of a subnormal half, so the addition rounds. */
    if (magnitude < 0x38800000) h = as_uint(as_float(magnitude) + 0.5f) - as_uint(0.5f);
    if (magnitude >= 0x477ff000) h = 0x7c00;
    if (magnitude > 0x7f800000) h = 0x7e00 | (magnitude >> 13 & 0x3ff);
    return (ushort)(sign | h);
}

static inline float bfloat_value(ushort h) { return as_float((uint)h << 16); }

/* Bytes of n elements, n a multiple of the type's block. */
static inline ulong row_bytes(uint type, ulong n) {
#define ROW_BYTES(name, text, block, bytes, halves, roles) \
    if (type == TYPE_##name) return n / block * bytes;
    AG_DTYPE_MAP(ROW_BYTES)
#undef ROW_BYTES
    return 0;
}

/* Element i of a row that begins at p. */
static inline float element(uint type, __global const uchar *p, ulong i) {
    if (type == TYPE_F32) return load_f32(p + 4 * i);
    if (type == TYPE_F16) return half_value(load_u16(p + 2 * i));
    if (type == TYPE_BF16) return bfloat_value(load_u16(p + 2 * i));
    p += row_bytes(type, i / QK * QK);
    const uint at = (uint)(i % QK);
    const float d = half_value(load_u16(p));
    if (type == TYPE_Q8_0) return (float)(char)p[2 + at] * d;
    const uchar pair = p[(type == TYPE_Q4_0 ? 2 : 4) + at % 16];
    const int level = at < 16 ? pair & 15 : pair >> 4;
    if (type == TYPE_Q4_0) return (float)(level - 8) * d;
    return (float)level * d + half_value(load_u16(p + 2));
}
