/* SPDX-License-Identifier: Apache-2.0 */
/* y[m,n] = x[m,k] * w[n,k]^T with a prepared weight of blocks and many rows of x, for GPUs that are
 * faster in F16. Products of a block of 32 (16 for Q6_K) are summed in F16, blocks in floats. Each
 * row of x is first scaled by a power of two, so that its largest value is below 1 and the sum of a
 * block is in the range of F16. Levels of weights are exact in F16. Every row of x starts at a
 * multiple of 16 bytes. */
#include "types.cl"
#include "weights.cl"

#ifndef HALF
#define HALF 2 /* 1: cl_khr_fp16; 2: emulated in floats with equal rounding, for tests */
#endif
#ifndef TILE_M
#define TILE_M 64 /* rows of x and columns of y that a work-group computes */
#endif
#ifndef TILE_N
#define TILE_N 64
#endif
enum { EACH_M = 4, EACH_N = 4, TILE_WG = TILE_M / EACH_M * (TILE_N / EACH_N) };
enum { RUN = W_HALVES ? 16 : BLOCK };  /* elements of a block that share a factor */
enum { ROW_ITEMS = TILE_WG / TILE_M }; /* work-items that find the largest value of a row */

#if HALF == 1
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
typedef half value;
typedef half4 value4;
static inline value to_half(float v) { return (half)v; }
static inline value4 fma_half(value a, value4 b, value4 sum) { return fma((half4)a, b, sum); }
static inline value4 add_half(value4 a, value4 b) { return a + b; }
static inline float4 to_floats(value4 v) { return convert_float4(v); }
#else
typedef float value;
typedef float4 value4;
static inline value to_half(float v) { return half_value(half_bits(v)); }
static inline value4 to_half4(float4 v) {
    return (float4)(to_half(v.x), to_half(v.y), to_half(v.z), to_half(v.w));
}
static inline value4 fma_half(value a, value4 b, value4 sum) {
    return to_half4(fma((float4)a, b, sum));
}
static inline value4 add_half(value4 a, value4 b) { return to_half4(a + b); }
static inline float4 to_floats(value4 v) { return v; }
#endif

/* Loads levels 4 p .. 4 p + 3 of block b. */
static inline float4 four_levels(__global const uchar *w, ulong all_blocks, ulong b, uint p) {
#if W_Q8_0
    return floats_less(((__global const uint *)w)[b * 8 + p], 0);
#elif W_TWO
    const uint2 both = ((__global const uint2 *)w)[b], above = load_high(w, all_blocks, b);
    return floats_less(p < 4 ? two_bits_with_high(both.x, above.x, p)
                             : two_bits_with_high(both.y, above.y, p % 4),
                       W_MIDDLE);
#else
    const uint both = ((__global const uint *)w)[b * 4 + p % 4];
    const uint2 above = load_high(w, all_blocks, b);
    const uint nibbles = (p < 4 ? both : both >> 4) & 0x0f0f0f0fu;
    return floats_less(with_high(nibbles, p < 4 ? above.x : above.y, p % 4), W_MIDDLE);
#endif
}

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

/* Stores four values with the given stride. */
static inline void put_down(__local value *to, uint stride, float4 v) {
    to[0] = to_half(v.x);
    to[stride] = to_half(v.y);
    to[2 * stride] = to_half(v.z);
    to[3 * stride] = to_half(v.w);
}

/* Computes a tile of y in each work-group of TILE_WG: dimension 0 is columns, 1 rows. k is a
 * multiple of 32. */
__kernel __attribute__((reqd_work_group_size(TILE_WG, 1, 1))) void
matmul_half(__global uchar *y, ulong y_at, __global const uchar *x, ulong x_at,
            __global const uchar *w, ulong scales_at, uint m, uint n, uint k) {
    __local value4 xs[BLOCK][TILE_M / EACH_M], ws[BLOCK][TILE_N / EACH_N];
    __local float scales[BLOCK / RUN][TILE_N], x_factors[TILE_M], largest[TILE_WG];
#if W_BASE
    __local float bases[BLOCK / RUN][TILE_N];
#endif
    const uint lid = get_local_id(0);
    const uint tx = lid % (TILE_N / EACH_N), ty = lid / (TILE_N / EACH_N);
    const size_t row0 = get_group_id(1) * TILE_M, column0 = get_group_id(0) * TILE_N;
    const uint per_row = k / BLOCK;
    __global const float *in = (__global const float *)(x + x_at);

    find_factors(x_factors, largest, in, row0, m, k);
    float4 sums[EACH_M];
    for (int i = 0; i < EACH_M; i++) sums[i] = 0;
    for (uint b = 0; b < per_row; b++) {
        for (uint i = lid; i < TILE_N * 8; i += TILE_WG) {
            const uint column = i / 8, at = i % 8 * 4;
            const ulong from = min(column0 + column, (size_t)n - 1) * per_row + b;
            const float4 q = four_levels(w, (ulong)n * per_row, from, i % 8);
            put_down((__local value *)ws[at] + column, TILE_N, q);
        }
        for (uint i = lid; i < TILE_N; i += TILE_WG) {
            const ulong from = min(column0 + i, (size_t)n - 1) * per_row + b;
            const factors f = load_factors(w, scales_at, (ulong)n * per_row, from);
            scales[0][i] = f.d.x;
#if W_HALVES
            scales[1][i] = f.d.y;
#endif
#if W_BASE
            bases[0][i] = f.base.x;
            if (W_HALVES) bases[BLOCK / RUN - 1][i] = f.base.y;
#endif
        }
        for (uint i = lid; i < TILE_M * 8; i += TILE_WG) {
            const uint row = i / 8, at = i % 8 * 4;
            const ulong from = min(row0 + row, (size_t)m - 1) * k + b * BLOCK + at;
            const float4 v = *(__global const float4 *)(in + from) * x_factors[row];
            put_down((__local value *)xs[at] + row, TILE_M, v);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint run = 0; run < BLOCK / RUN; run++) {
            value4 part[EACH_M];
            for (int i = 0; i < EACH_M; i++) part[i] = 0;
#if W_BASE
            value4 x_sum = 0;
#endif
            for (uint i = run * RUN; i < (run + 1) * RUN; i++) {
                const value4 a = xs[i][ty], v = ws[i][tx];
                part[0] = fma_half(a.x, v, part[0]);
                part[1] = fma_half(a.y, v, part[1]);
                part[2] = fma_half(a.z, v, part[2]);
                part[3] = fma_half(a.w, v, part[3]);
#if W_BASE
                x_sum = add_half(x_sum, a);
#endif
            }
            const float4 scale = vload4(tx, scales[run]);
            for (int i = 0; i < EACH_M; i++) sums[i] = fma(to_floats(part[i]), scale, sums[i]);
#if W_BASE
            const float4 base = vload4(tx, bases[run]), total = to_floats(x_sum);
            sums[0] = fma((float4)total.x, base, sums[0]);
            sums[1] = fma((float4)total.y, base, sums[1]);
            sums[2] = fma((float4)total.z, base, sums[2]);
            sums[3] = fma((float4)total.w, base, sums[3]);
#endif
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (uint i = 0; i < EACH_M; i++) {
        const size_t row = row0 + ty * EACH_M + i, column = column0 + tx * EACH_N;
        if (row >= m) return;
        const float4 v = sums[i] / x_factors[ty * EACH_M + i];
        __global float *out = (__global float *)(y + y_at) + row * n + column;
        const float each[EACH_N] = {v.x, v.y, v.z, v.w};
        for (uint j = 0; j < EACH_N; j++) {
            if (column + j < n) out[j] = each[j];
        }
    }
}
