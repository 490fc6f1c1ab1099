/* SPDX-License-Identifier: Apache-2.0 */
/* Converts rows of k values for matmul_mma.cl: packed rows have the type and order of its operands,
 * times a power of two for each row. pack_rows only converts; other kernels also compute the rows.
 * A work-group of WG for each row. A work-item has CHUNKS pieces of 4 values; k is a multiple
 * of 64. All tensors are F32. */
#include "arrays.cl"
#include "reduce.cl"
#include "types.cl"
#include "weights.cl"

#ifndef CHUNKS
#define CHUNKS 1 /* WG * CHUNKS * 4 >= k */
#endif
#ifndef GELU
#define GELU 0 /* gate_pack: 1: GELU in its tanh form, 0: SiLU */
#endif
enum { STEP = 64, X_PARTS = W_BLOCKS ? 1 : 2 };
#define UNROLL _Pragma("unroll")
#define ROW(a) (FLOATS(a) + (ulong)get_group_id(0) * k)
#define CONST_ROW(a) (CONST_FLOATS(a) + (ulong)get_group_id(0) * k)
/* First value of piece c of a work-item. */
#define AT(c) ((get_local_id(0) + (c)*WG) * 4)

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

/* Stores values i to i + 3 of a row in the order and type that matmul_mma.cl reads. All rows of a
 * step are side by side. Pieces of 16 bytes are exchanged among the banks of local memory. */
static inline void store_packed(__global uint *out, uint i, float4 v) {
    enum { WORDS = STEP / 2 };
    const uint row = get_group_id(0), rows = get_num_groups(0), bank = row % 8 * 4;
    out += ((ulong)(i / STEP) * (X_PARTS * rows) + row) * WORDS;
#if W_BLOCKS
    const uint at = i % STEP / 16 * 8 + i % 16 / 4;
    out[at ^ bank] = pair_of(v.s02);
    out[at + 4 ^ bank] = pair_of(v.s13);
#else
    const uint2 first = (uint2)(pair_of(v.s01), pair_of(v.s23));
    __global uint2 *to = (__global uint2 *)(out + (i % STEP / 2 ^ bank));
    to[0] = first;
    to[(ulong)rows * (WORDS / 2)] = (uint2)(rest_of(v.s01, first.x), rest_of(v.s23, first.y));
#endif
}

static inline float4 load4(__global const float *p) { return *(__global const float4 *)p; }
static inline void store4(__global float *p, float4 v) { *(__global float4 *)p = v; }

/* Returns the largest magnitude of finite values. */
static inline float largest_of(float4 v) {
    const float4 a = isfinite(v) ? fabs(v) : (float4)0;
    return fmax(fmax(a.x, a.y), fmax(a.z, a.w));
}

/* Packs a row: values times a power of two that makes the largest finite one nearly 2^14, and the
 * inverse of that factor. Pieces past the row are not read. */
static inline void pack(__global uchar *out, ulong factors_at, const float4 *v, uint k,
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
    UNROLL for (uint c = 0; c < CHUNKS; c++) {
        if (AT(c) < k) store_packed((__global uint *)out, AT(c), v[c] * factor);
    }
}

WG_KERNEL pack_rows(__global uchar *out, ulong factors_at, CONST_ARRAY(x), uint k) {
    __local float scratch[WG];
    float4 v[CHUNKS];
    UNROLL for (uint c = 0; c < CHUNKS; c++) {
        if (AT(c) < k) v[c] = load4(CONST_ROW(x) + AT(c));
    }
    pack(out, factors_at, v, k, scratch);
}

/* x += add, then y = rms_norm(x) times w, which is packed too. */
WG_KERNEL add_rms_norm_pack(__global uchar *out, ulong factors_at, ARRAY(y), ARRAY(x),
                            CONST_ARRAY(add), CONST_ARRAY(w), uint k, float eps) {
    __local float scratch[WG];
    float4 v[CHUNKS];
    float squares = 0;
    UNROLL for (uint c = 0; c < CHUNKS; c++) {
        if (AT(c) >= k) continue;
        v[c] = load4(CONST_ROW(x) + AT(c)) + load4(CONST_ROW(add) + AT(c));
        store4(ROW(x) + AT(c), v[c]);
        squares += dot(v[c], v[c]);
    }
    const float factor = 1.0f / sqrt(group_sum(squares, scratch) / (float)k + eps);
    __global const float *weight = CONST_FLOATS(w);
    UNROLL for (uint c = 0; c < CHUNKS; c++) {
        if (AT(c) >= k) continue;
        v[c] = v[c] * factor * load4(weight + AT(c));
        store4(ROW(y) + AT(c), v[c]);
    }
    pack(out, factors_at, v, k, scratch);
}

/* a = f(a) * b, which is packed too. */
WG_KERNEL gate_pack(__global uchar *out, ulong factors_at, ARRAY(a), CONST_ARRAY(b), uint k) {
    __local float scratch[WG];
    float4 v[CHUNKS];
    UNROLL for (uint c = 0; c < CHUNKS; c++) {
        if (AT(c) >= k) continue;
        const float4 x = load4(CONST_ROW(a) + AT(c));
        const float4 u = GELU ? 1.59576912f * (x + 0.044715f * x * x * x) : x;
        v[c] = x / (1.0f + exp(-u)) * load4(CONST_ROW(b) + AT(c));
        store4(ROW(a) + AT(c), v[c]);
    }
    pack(out, factors_at, v, k, scratch);
}
