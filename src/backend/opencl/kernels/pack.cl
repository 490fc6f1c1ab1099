/* SPDX-License-Identifier: Apache-2.0 */
/* Converts rows of k values for matmul_mma.cl: packed rows have the type and order of its operands,
 * times a power of two for each row. pack_rows only converts; other kernels also compute the rows.
 * A work-group of WG for each row. A work-item has CHUNKS pieces of 16 values; k is a multiple of
 * 64. All tensors are F32. */
#include "reduce.cl"
#include "types.cl"
#include "weights.cl"

#ifndef CHUNKS
#define CHUNKS 1 /* WG * CHUNKS * 16 >= k */
#endif
#ifndef GELU
#define GELU 0 /* gate_pack: 1: GELU in its tanh form, 0: SiLU */
#endif
enum { STEP = 64, X_PARTS = W_BLOCKS ? 1 : 2 };
#define UNROLL _Pragma("unroll")
#define FLOATS(t, at) ((__global float *)(t + at) + (ulong)get_group_id(0) * k)
#define CONST_FLOATS(t, at) ((__global const float *)(t + at) + (ulong)get_group_id(0) * k)
/* First value of piece c of a work-item. */
#define AT(c) ((get_local_id(0) + (c)*WG) * 16)

/* Returns two numbers of the operands' type in a word, the first in the lower half. */
static inline uint pair_of(float2 v) {
#ifdef __NV_CL_C_VERSION
    uint out;
#if W_BF16
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(v.y), "f"(v.x));
#else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(v.y), "f"(v.x));
#endif
    return out;
#elif W_BF16
    const uint2 bits = as_uint2(v), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const uint2 both = isnan(v) ? (uint2)0x7fc0 : rounded;
    return both.x | both.y << 16;
#else
    return half_bits(v.x) | (uint)half_bits(v.y) << 16;
#endif
}

static inline float2 values_of_pair(uint pair) {
    if (W_BF16) return as_float2((uint2)(pair << 16, pair & 0xffff0000u));
    return (float2)(half_value((ushort)pair), half_value((ushort)(pair >> 16)));
}

/* Returns what a pair lacks of its values; 0 where they are not finite. */
static inline uint rest_of(float2 v, uint pair) {
    const float2 rest = v - values_of_pair(pair);
    return pair_of((float2)(isfinite(v.x) ? rest.x : 0, isfinite(v.y) ? rest.y : 0));
}

/* Stores 16 values in the order and type that matmul_mma.cl reads. */
static inline void store_packed(__global ushort *to, float16 v) {
    __global uint4 *out = (__global uint4 *)to;
#if W_BLOCKS
    out[0] = (uint4)(pair_of(v.s02), pair_of(v.s46), pair_of(v.s8a), pair_of(v.sce));
    out[1] = (uint4)(pair_of(v.s13), pair_of(v.s57), pair_of(v.s9b), pair_of(v.sdf));
#else
    const uint4 a = (uint4)(pair_of(v.s01), pair_of(v.s23), pair_of(v.s45), pair_of(v.s67));
    const uint4 b = (uint4)(pair_of(v.s89), pair_of(v.sab), pair_of(v.scd), pair_of(v.sef));
    out[0] = a;
    out[1] = b;
    out += STEP / 8;
    out[0] =
        (uint4)(rest_of(v.s01, a.x), rest_of(v.s23, a.y), rest_of(v.s45, a.z), rest_of(v.s67, a.w));
    out[1] =
        (uint4)(rest_of(v.s89, b.x), rest_of(v.sab, b.y), rest_of(v.scd, b.z), rest_of(v.sef, b.w));
#endif
}

static inline float16 load16(__global const float *p) {
    __global const float4 *from = (__global const float4 *)p;
    return (float16)(from[0], from[1], from[2], from[3]);
}

static inline void store16(__global float *p, float16 v) {
    __global float4 *to = (__global float4 *)p;
    to[0] = v.s0123;
    to[1] = v.s4567;
    to[2] = v.s89ab;
    to[3] = v.scdef;
}

/* Returns the largest magnitude of finite values. */
static inline float largest_of(float16 v) {
    const float16 finite = isfinite(v) ? fabs(v) : (float16)0;
    const float8 a = fmax(finite.lo, finite.hi);
    const float4 b = fmax(a.lo, a.hi);
    return fmax(fmax(b.x, b.y), fmax(b.z, b.w));
}

/* Packs a row: values times a power of two that makes the largest finite one nearly 2^14, and the
 * inverse of that factor. Pieces past the row are not read. */
static inline void pack(__global uchar *out, ulong factors_at, const float16 *v, uint k,
                        __local float *scratch) {
    const uint row = get_group_id(0);
    float mine = 0;
    UNROLL for (uint c = 0; c < CHUNKS; c++) {
        if (AT(c) < k) mine = fmax(mine, largest_of(v[c]));
    }
    const float max_value = group_max(mine, scratch);
    const int exponent = max_value > 0x1p-100f ? 13 - ilogb(max_value) : 0;
    const float factor = ldexp(1.0f, exponent);
    if (get_local_id(0) == 0) {
        ((__global float *)(out + factors_at))[row] = ldexp(1.0f, -exponent);
    }
    __global ushort *to = (__global ushort *)out + (ulong)row * k * X_PARTS;
    UNROLL for (uint c = 0; c < CHUNKS; c++) {
        const uint i = AT(c);
        if (i < k) store_packed(to + i / STEP * (STEP * X_PARTS) + i % STEP, v[c] * factor);
    }
}

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
pack_rows(__global uchar *out, ulong factors_at, __global const uchar *x, ulong x_at, uint k) {
    __local float scratch[WG];
    float16 v[CHUNKS];
    UNROLL for (uint c = 0; c < CHUNKS; c++) {
        if (AT(c) < k) v[c] = load16(CONST_FLOATS(x, x_at) + AT(c));
    }
    pack(out, factors_at, v, k, scratch);
}

/* x += add, then y = rms_norm(x) times w, which is packed too. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
add_rms_norm_pack(__global uchar *out, ulong factors_at, __global uchar *y, ulong y_at,
                  __global uchar *x, ulong x_at, __global const uchar *add, ulong add_at,
                  __global const uchar *w, ulong w_at, uint k, float eps) {
    __local float scratch[WG];
    float16 v[CHUNKS];
    float squares = 0;
    UNROLL for (uint c = 0; c < CHUNKS; c++) {
        if (AT(c) >= k) continue;
        v[c] = load16(CONST_FLOATS(x, x_at) + AT(c)) + load16(CONST_FLOATS(add, add_at) + AT(c));
        store16(FLOATS(x, x_at) + AT(c), v[c]);
        const float16 s = v[c] * v[c];
        const float8 t = s.lo + s.hi;
        const float4 u = t.lo + t.hi;
        squares += (u.x + u.y) + (u.z + u.w);
    }
    const float factor = 1.0f / sqrt(group_sum(squares, scratch) / (float)k + eps);
    __global const float *weight = (__global const float *)(w + w_at);
    UNROLL for (uint c = 0; c < CHUNKS; c++) {
        if (AT(c) >= k) continue;
        v[c] = v[c] * factor * load16(weight + AT(c));
        store16(FLOATS(y, y_at) + AT(c), v[c]);
    }
    pack(out, factors_at, v, k, scratch);
}

/* a = f(a) * b, which is packed too. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
gate_pack(__global uchar *out, ulong factors_at, __global uchar *a, ulong a_at,
          __global const uchar *b, ulong b_at, uint k) {
    __local float scratch[WG];
    float16 v[CHUNKS];
    UNROLL for (uint c = 0; c < CHUNKS; c++) {
        if (AT(c) >= k) continue;
        const float16 x = load16(CONST_FLOATS(a, a_at) + AT(c));
        const float16 u = GELU ? 1.59576912f * (x + 0.044715f * x * x * x) : x;
        v[c] = x / (1.0f + exp(-u)) * load16(CONST_FLOATS(b, b_at) + AT(c));
        store16(FLOATS(a, a_at) + AT(c), v[c]);
    }
    pack(out, factors_at, v, k, scratch);
}
