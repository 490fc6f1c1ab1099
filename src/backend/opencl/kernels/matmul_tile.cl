/* SPDX-License-Identifier: Apache-2.0 */
/* y[m,n] = x[m,k] * w[n,k]^T with a prepared weight and many rows of x, through local memory, for
 * GPUs. Every row of x starts at a multiple of 16 bytes.
 *
 * HALF is for GPUs that are faster in F16, and weights of blocks. Products of a block of 32 (16 if
 * its halves have factors) are summed in F16, blocks in floats. Each row of x is first scaled by a
 * power of two, so that its largest value is below 1 and the sum of a block is in the range of F16.
 * Levels of weights are exact in F16. */
#include "arrays.cl"
#include "types.cl"
#include "weights.cl"

#ifndef HALF
#define HALF 0 /* 1: cl_khr_fp16; 2: emulated in floats with equal rounding, for tests; 0: off */
#endif
#ifndef TILE_M
#define TILE_M 64 /* rows of x and columns of y that a work-group computes */
#define TILE_N 64
#endif
enum { EACH = 4, TILE_WG = TILE_M / EACH * (TILE_N / EACH) }; /* rows and columns of a work-item */
/* Rows of tiles in local memory. The padding spreads elements with the same index over the banks.
 */
enum { X_PITCH = TILE_M / EACH + 1, W_PITCH = TILE_N / EACH + 1 };
enum { RUN = HALF && W_HALVES ? 16 : BLOCK }; /* elements along k that are summed at a time */

#if HALF == 1
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
typedef half value;
typedef half4 value4;
static inline value4 rounded(value4 v) { return v; }
static inline value4 to_values(float4 v) { return convert_half4(v); }
static inline float4 to_floats(value4 v) { return convert_float4(v); }
#else
typedef float value;
typedef float4 value4;
static inline value4 rounded(value4 v) {
    if (!HALF) return v;
    return (float4)(half_value(half_bits(v.x)), half_value(half_bits(v.y)),
                    half_value(half_bits(v.z)), half_value(half_bits(v.w)));
}
static inline value4 to_values(float4 v) { return rounded(v); }
static inline float4 to_floats(value4 v) { return v; }
#endif

/* Returns elements 4 p to 4 p + 3 of block b: values, or with HALF levels minus W_MIDDLE. */
static inline float4 load_weights(__global const uchar *w, ulong scales_at, ulong all_blocks,
                                  ulong b, uint p) {
#if W_F32
    return ((__global const float4 *)w)[b * 8 + p];
#elif W_F16
    return vloada_half4(b * 8 + p, (__global const half *)w);
#elif W_BF16
    return as_float4(convert_uint4(((__global const ushort4 *)w)[b * 8 + p]) << 16);
#else
#if W_Q8_0
    const uint levels = ((__global const uint *)w)[b * 8 + p];
#elif W_TWO
    const uint2 two = ((__global const uint2 *)w)[b], above = load_high(w, all_blocks, b);
    const uint levels = two_bits_with_high(p < 4 ? two.x : two.y, p < 4 ? above.x : above.y, p % 4);
#else
    const uint both = ((__global const uint *)w)[b * 4 + p % 4];
    const uint2 above = load_high(w, all_blocks, b);
    const uint levels =
        with_high((p < 4 ? both : both >> 4) & 0x0f0f0f0fu, p < 4 ? above.x : above.y, p % 4);
#endif
    if (HALF) return floats_less(levels, W_MIDDLE);
    const factors f = load_factors(w, scales_at, all_blocks, b);
    return values_of(levels, p < 4 ? f.d.x : f.d.y, p < 4 ? f.base.x : f.base.y);
#endif
}

#if HALF
enum { ROW_ITEMS = TILE_WG / TILE_M }; /* work-items that find the largest value of a row */

/* Returns the power of two that scales `largest` below 1; NaN if there is none. */
static inline float factor_for(float largest) {
    if (!isfinite(largest)) return NAN;
    return largest > 0x1p-100f ? ldexp(1.0f, -1 - ilogb(largest)) : 1.0f;
}

/* Finds the scale of each row of the tile. */
static inline void find_factors(__local float *factors, __local float *largest,
                                __global const float *in, size_t row0, uint m, uint k) {
    const uint lid = get_local_id(0);
    float4 maxima = 0;
    const ulong mine = min(row0 + lid / ROW_ITEMS, (size_t)m - 1) * k;
    for (uint i = lid % ROW_ITEMS * 4; i < k; i += ROW_ITEMS * 4) {
        maxima = fmax(maxima, fabs(*(__global const float4 *)(in + mine + i)));
    }
    largest[lid] = fmax(fmax(maxima.x, maxima.y), fmax(maxima.z, maxima.w));
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lid < TILE_M) {
        float all = 0;
        for (uint i = 0; i < ROW_ITEMS; i++) all = fmax(all, largest[lid * ROW_ITEMS + i]);
        factors[lid] = factor_for(all);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
#endif

/* Adds the products of RUN elements along k. rows, columns: of the work-item, at the first one. */
static inline void add_products(value4 sums[EACH], __local const value4 *rows,
                                __local const value4 *columns) {
    for (uint i = 0; i < RUN; i++) {
        const value4 a = rows[i * X_PITCH], v = columns[i * W_PITCH];
        sums[0] = rounded(fma((value4)a.x, v, sums[0]));
        sums[1] = rounded(fma((value4)a.y, v, sums[1]));
        sums[2] = rounded(fma((value4)a.z, v, sums[2]));
        sums[3] = rounded(fma((value4)a.w, v, sums[3]));
    }
}

/* Stores four values with the given stride. */
static inline void put_down(__local value *to, uint stride, float4 v) {
    const value4 stored = to_values(v);
    to[0] = stored.x;
    to[stride] = stored.y;
    to[2 * stride] = stored.z;
    to[3 * stride] = stored.w;
}

/* Computes a tile of y in each work-group of TILE_WG: dimension 0 is columns, 1 rows. Both inputs
 * are transposed in local memory, a block of 32 along k at a time. k is a multiple of 4, with HALF
 * of 32. */
__kernel __attribute__((reqd_work_group_size(TILE_WG, 1, 1))) void
matmul_tile(ARRAY(y), CONST_ARRAY(x), __global const uchar *w, ulong scales_at, uint m, uint n,
            uint k) {
    __local value4 xs[BLOCK][X_PITCH], ws[BLOCK][W_PITCH];
    const uint lid = get_local_id(0), tx = lid % (TILE_N / EACH), ty = lid / (TILE_N / EACH);
    const size_t row0 = get_group_id(1) * TILE_M, column0 = get_group_id(0) * TILE_N;
    const uint per_row = (k + BLOCK - 1) / BLOCK;
    __global const float *in = CONST_FLOATS(x);
#if HALF
    __local float scales[BLOCK / RUN][TILE_N], bases[BLOCK / RUN][TILE_N];
    __local float x_factors[TILE_M], largest[TILE_WG];
    find_factors(x_factors, largest, in, row0, m, k);
#endif
    float4 sums[EACH];
    for (int i = 0; i < EACH; i++) sums[i] = 0;
    for (uint b = 0; b < per_row; b++) {
        for (uint i = lid; i < TILE_N * 8; i += TILE_WG) {
            const uint column = i / 8, at = i % 8 * 4;
            const ulong from = min(column0 + column, (size_t)n - 1) * per_row + b;
            put_down((__local value *)ws[at] + column, EACH * W_PITCH,
                     load_weights(w, scales_at, (ulong)n * per_row, from, i % 8));
        }
        for (uint i = lid; i < TILE_M * 8; i += TILE_WG) {
            const uint row = i / 8, at = i % 8 * 4;
            const ulong from = min(row0 + row, (size_t)m - 1) * k + b * BLOCK + at;
            float4 v = b * BLOCK + at < k ? *(__global const float4 *)(in + from) : (float4)0;
#if HALF
            v *= x_factors[row];
#endif
            put_down((__local value *)xs[at] + row, EACH * X_PITCH, v);
        }
#if HALF
        for (uint i = lid; i < TILE_N; i += TILE_WG) {
            const ulong from = min(column0 + i, (size_t)n - 1) * per_row + b;
            const factors f = load_factors(w, scales_at, (ulong)n * per_row, from);
            scales[0][i] = f.d.x;
            scales[BLOCK / RUN - 1][i] = f.d.y;
            bases[0][i] = f.base.x;
            bases[BLOCK / RUN - 1][i] = f.base.y;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint run = 0; run < BLOCK / RUN; run++) {
            value4 part[EACH] = {0, 0, 0, 0}, x_sum = 0;
            add_products(part, &xs[run * RUN][ty], &ws[run * RUN][tx]);
            const float4 scale = vload4(tx, scales[run]), base = vload4(tx, bases[run]);
            for (uint i = run * RUN; W_BASE && i < (run + 1) * RUN; i++) {
                x_sum = rounded(x_sum + xs[i][ty]);
            }
            const float4 total = to_floats(x_sum);
            const float of_rows[EACH] = {total.x, total.y, total.z, total.w};
            for (int i = 0; i < EACH; i++) {
                sums[i] = fma(to_floats(part[i]), scale, sums[i]);
                if (W_BASE) sums[i] = fma((float4)of_rows[i], base, sums[i]);
            }
        }
#else
        barrier(CLK_LOCAL_MEM_FENCE);
        add_products(sums, &xs[0][ty], &ws[0][tx]);
#endif
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (uint i = 0; i < EACH; i++) {
        const size_t row = row0 + ty * EACH + i, column = column0 + tx * EACH;
        if (row >= m) return;
#if HALF
        sums[i] /= x_factors[ty * EACH + i];
#endif
        __global float *out = FLOATS(y) + row * n + column;
        const float each[EACH] = {sums[i].x, sums[i].y, sums[i].z, sums[i].w};
        for (uint j = 0; j < EACH; j++) {
            if (column + j < n) out[j] = each[j];
        }
    }
}
