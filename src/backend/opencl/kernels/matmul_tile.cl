/* SPDX-License-Identifier: Apache-2.0 */
/* y[m,n] = x[m,k] * w[n,k]^T with a prepared weight and many rows of x, in floats through local
 * memory, for GPUs. Every row of x starts at a multiple of 16 bytes. */
#include "weights.cl"

#ifndef TILE_M
#define TILE_M 64 /* rows of x and columns of y that a work-group computes */
#endif
#ifndef TILE_N
#define TILE_N 64
#endif
enum { EACH_M = 4, EACH_N = 4, TILE_WG = TILE_M / EACH_M * (TILE_N / EACH_N) };

/* Loads part p (0..3) of block b: 8 values and their indices in the block. */
static inline void load_part(__global const uchar *w, ulong scales_at, ulong n_blocks, ulong b,
                             uint p, float4 *low, float4 *high, uint *low_at, uint *high_at) {
    *low_at = 8 * p;
    *high_at = 8 * p + 4;
#if W_F32
    __global const float4 *from = (__global const float4 *)w + b * 8 + 2 * p;
    *low = from[0];
    *high = from[1];
#elif W_F16
    __global const half *from = (__global const half *)w + b * BLOCK + 8 * p;
    *low = vloada_half4(0, from);
    *high = vloada_half4(1, from);
#elif W_BF16
    const float8 v = bfloats(vload8(b * 4 + p, (__global const ushort *)w));
    *low = v.lo;
    *high = v.hi;
#else
    const factors f = load_factors(w, scales_at, n_blocks, b);
#if W_Q8_0
    const uint2 q = ((__global const uint2 *)w)[b * 4 + p];
    *low = values_of(q.x, f.d.x, f.base.x);
    *high = values_of(q.y, f.d.x, f.base.x);
#else
    const uint2 above = load_high(w, n_blocks, b);
    *low_at = 4 * p;
    *high_at = 16 + 4 * p;
#if W_TWO
    const uint2 q = ((__global const uint2 *)w)[b];
    *low = values_of(two_bits_with_high(q.x, above.x, p), f.d.x, f.base.x);
    *high = values_of(two_bits_with_high(q.y, above.y, p), f.d.y, f.base.y);
#else
    const uint q = ((__global const uint *)w)[b * 4 + p];
    *low = values_of(with_high(q & 0x0f0f0f0fu, above.x, p), f.d.x, f.base.x);
    *high = values_of(with_high(q >> 4 & 0x0f0f0f0fu, above.y, p), f.d.y, f.base.y);
#endif
#endif
#endif
}

/* Computes a tile of y in each work-group of TILE_WG: dimension 0 is columns, 1 rows. Both inputs
 * are transposed in local memory, a block of 32 along k at a time. k is a multiple of 4. */
__kernel __attribute__((reqd_work_group_size(TILE_WG, 1, 1))) void
matmul_tile(__global uchar *y, ulong y_at, __global const uchar *x, ulong x_at,
            __global const uchar *w, ulong scales_at, uint m, uint n, uint k) {
    __local float xs[BLOCK][TILE_M + 4] __attribute__((aligned(16)));
    __local float ws[BLOCK][TILE_N + 4] __attribute__((aligned(16)));
    const uint lid = get_local_id(0);
    const uint tx = lid % (TILE_N / EACH_N) * EACH_N, ty = lid / (TILE_N / EACH_N) * EACH_M;
    const size_t row0 = get_group_id(1) * TILE_M, column0 = get_group_id(0) * TILE_N;
    const uint per_row = (k + BLOCK - 1) / BLOCK;
    __global const float *in = (__global const float *)(x + x_at);
    float4 sums[EACH_M];
    for (int i = 0; i < EACH_M; i++) sums[i] = 0;
    for (uint b = 0; b < per_row; b++) {
        for (uint i = lid; i < TILE_N * 4; i += TILE_WG) {
            const uint column = i / 4;
            const ulong from = min(column0 + column, (size_t)n - 1) * per_row + b;
            float4 low, high;
            uint low_at, high_at;
            load_part(w, scales_at, (ulong)n * per_row, from, i % 4, &low, &high, &low_at,
                      &high_at);
            ws[low_at][column] = low.x;
            ws[low_at + 1][column] = low.y;
            ws[low_at + 2][column] = low.z;
            ws[low_at + 3][column] = low.w;
            ws[high_at][column] = high.x;
            ws[high_at + 1][column] = high.y;
            ws[high_at + 2][column] = high.z;
            ws[high_at + 3][column] = high.w;
        }
        for (uint i = lid; i < TILE_M * 8; i += TILE_WG) {
            const uint row = i / 8, at = i % 8 * 4;
            const ulong from = min(row0 + row, (size_t)m - 1) * k + b * BLOCK + at;
            const float4 v = b * BLOCK + at < k ? *(__global const float4 *)(in + from) : (float4)0;
            xs[at][row] = v.x;
            xs[at + 1][row] = v.y;
            xs[at + 2][row] = v.z;
            xs[at + 3][row] = v.w;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint i = 0; i < BLOCK; i++) {
            const float4 a = *(__local const float4 *)&xs[i][ty];
            const float4 v = *(__local const float4 *)&ws[i][tx];
            sums[0] = fma((float4)a.x, v, sums[0]);
            sums[1] = fma((float4)a.y, v, sums[1]);
            sums[2] = fma((float4)a.z, v, sums[2]);
            sums[3] = fma((float4)a.w, v, sums[3]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (uint i = 0; i < EACH_M; i++) {
        if (row0 + ty + i >= m) return;
        __global float *out = (__global float *)(y + y_at) + (row0 + ty + i) * n + column0 + tx;
        const float each[EACH_N] = {sums[i].x, sums[i].y, sums[i].z, sums[i].w};
        for (uint j = 0; j < EACH_N; j++) {
            if (column0 + tx + j < n) out[j] = each[j];
        }
    }
}
