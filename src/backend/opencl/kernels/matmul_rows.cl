/* SPDX-License-Identifier: Apache-2.0 */
/* y[m,n] = x[m,k] * w[n,k]^T with a prepared weight, for processors with vector registers. x may
 * start at any float. The order of a value's sum does not depend on other values. */
#include "arrays.cl"
#include "weights.cl"

/* ---- one block of 32 values, as 4 vectors of 8 ---- */

typedef struct block {
    float8 v[4];
} block;

#if W_BLOCKS
static inline float8 eight_values(uint2 levels, float d, float base) {
    return (float8)(values_of(levels.x, d, base), values_of(levels.y, d, base));
}
#endif

/* Loads block b of the weight, counted from its first row on. */
static inline block load_block(__global const uchar *w, ulong scales_at, ulong n_blocks, ulong b) {
    block out;
#if W_F32
    __global const float *p = (__global const float *)w + b * BLOCK;
    for (int i = 0; i < 4; i++) out.v[i] = vload8(i, p);
#elif W_F16
    __global const half *p = (__global const half *)w + b * BLOCK;
    for (int i = 0; i < 4; i++) out.v[i] = vload_half8(i, p);
#elif W_BF16
    __global const ushort *p = (__global const ushort *)w + b * BLOCK;
    for (int i = 0; i < 4; i++) out.v[i] = bfloats(vload8(i, p));
#else
    const levels q = load_levels(w, n_blocks, b);
    const factors f = load_factors(w, scales_at, n_blocks, b);
    out.v[0] = eight_values(q.low.lo, f.d.x, f.base.x);
    out.v[1] = eight_values(q.low.hi, f.d.x, f.base.x);
    out.v[2] = eight_values(q.high.lo, f.d.y, f.base.y);
    out.v[3] = eight_values(q.high.hi, f.d.y, f.base.y);
#endif
    return out;
}

static inline float sum8(float8 v) {
    const float4 a = v.lo + v.hi;
    const float2 b = a.lo + a.hi;
    return b.x + b.y;
}

static inline float8 fma_block(block w, __global const float *x, float8 sum) {
    for (int i = 0; i < 4; i++) sum = fma(w.v[i], vload8(i, x), sum);
    return sum;
}

/* Adds the product of the last block of a row that ends inside it. */
static inline float8 fma_tail(block w, __global const float *x, uint n, float8 sum) {
    float values[BLOCK];
    for (uint i = 0; i < BLOCK; i++) values[i] = i < n ? x[i] : 0.0f;
    for (int i = 0; i < 4; i++) sum = fma(w.v[i], vload8(i, values), sum);
    return sum;
}

enum { WG = 1 };

/* A work-group for each row of w. Processes four rows of x at a time. */
WG_KERNEL matmul_rows(ARRAY(y), CONST_ARRAY(x), __global const uchar *w, ulong scales_at, uint m,
                      uint n, uint k) {
    const size_t column = get_group_id(0);
    const uint full = k / BLOCK, rest = k % BLOCK;
    const ulong stride = full + (rest != 0), first = column * stride, all = n * stride;
    __global const float *in = CONST_FLOATS(x);
    __global float *out = FLOATS(y) + column;
    uint i = 0;
    for (; i + 4 <= m; i += 4) {
        __global const float *p = in + (ulong)i * k;
        float8 s0 = 0, s1 = 0, s2 = 0, s3 = 0;
        for (uint b = 0; b < full; b++, p += BLOCK) {
            const block v = load_block(w, scales_at, all, first + b);
            s0 = fma_block(v, p, s0);
            s1 = fma_block(v, p + k, s1);
            s2 = fma_block(v, p + 2 * (ulong)k, s2);
            s3 = fma_block(v, p + 3 * (ulong)k, s3);
        }
        if (rest) {
            const block v = load_block(w, scales_at, all, first + full);
            s0 = fma_tail(v, p, rest, s0);
            s1 = fma_tail(v, p + k, rest, s1);
            s2 = fma_tail(v, p + 2 * (ulong)k, rest, s2);
            s3 = fma_tail(v, p + 3 * (ulong)k, rest, s3);
        }
        out[(ulong)i * n] = sum8(s0);
        out[(ulong)(i + 1) * n] = sum8(s1);
        out[(ulong)(i + 2) * n] = sum8(s2);
        out[(ulong)(i + 3) * n] = sum8(s3);
    }
    for (; i < m; i++) {
        __global const float *p = in + (ulong)i * k;
        float8 s = 0;
        for (uint b = 0; b < full; b++, p += BLOCK) {
            s = fma_block(load_block(w, scales_at, all, first + b), p, s);
        }
        if (rest) s = fma_tail(load_block(w, scales_at, all, first + full), p, rest, s);
        out[(ulong)i * n] = sum8(s);
    }
}
