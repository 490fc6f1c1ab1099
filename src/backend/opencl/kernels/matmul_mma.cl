/* SPDX-License-Identifier: Apache-2.0 */
/* y[m,n] = x[m,k] * w[n,k]^T with a prepared weight of blocks and many rows of x, both rounded to
 * bfloat16 and summed in float, for NVIDIA's tensor cores (compute capability 8 and above). Other
 * devices emulate the same steps, slowly. Every row of x starts at a multiple of 16 bytes.
 *
 * A work-group computes a tile of TILE_M x TILE_N, a block of 32 along k at a time. Local memory
 * has two copies of both inputs as pairs of bfloat16: one block is written while the other is read.
 * The stride of rows is 20 words, so that the 8 rows that a warp reads at a time use all 32 banks.
 */
#include "weights.cl"

enum { TILE_M = 64, TILE_N = 128, TILE_WG = 256, WARP = 32, PAIRS = BLOCK / 2, PITCH = PAIRS + 4 };
/* Each of the 2 x 4 warps computes 32 x 32 values: 2 x 4 tiles of 16 x 8. */
enum { WARPS_M = 2, TILES_M = 2, TILES_N = 4 };

static inline uint bfloat_bits(float f) {
    const uint b = as_uint(f);
    return isnan(f) ? b >> 16 | 0x40 : (b + 0x7fff + (b >> 16 & 1)) >> 16;
}

/* Returns two values in a word, the first in the lower half. */
static inline uint pair_of(float low, float high) {
#ifdef __NV_CL_C_VERSION
    uint out;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
#else
    return bfloat_bits(low) | bfloat_bits(high) << 16;
#endif
}

/* Adds a product of 16 x 16 and 16 x 8. With lane = 4 g + t, c[0..1] are columns 2 t and 2 t + 1 of
 * row g, and c[2..3] of row g + 8. a and b are the first rows of the tiles of x and w, at the
 * step's first pair. */
static inline void multiply_add(float *c, __local const uint *a, __local const uint *b, uint lane) {
    const uint g = lane / 4, t = lane % 4;
#ifdef __NV_CL_C_VERSION
    a += g * PITCH + t;
    b += g * PITCH + t;
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[8 * PITCH]), "r"(a[4]), "r"(a[8 * PITCH + 4]), "r"(b[0]),
                   "r"(b[4]));
#else
    for (uint i = 0; i < 4; i++) {
        __local const uint *row = a + (g + i / 2 * 8) * PITCH,
                           *column = b + (2 * t + i % 2) * PITCH;
        for (uint p = 0; p < 8; p++) {
            c[i] = fma(as_float(row[p] << 16), as_float(column[p] << 16), c[i]);
            c[i] = fma(as_float(row[p] & 0xffff0000u), as_float(column[p] & 0xffff0000u), c[i]);
        }
    }
#endif
}

/* Half a block of a row of w, loaded before it is stored to local memory. */
typedef struct half_block {
    uint4 quants; /* Q8_0: 16 bytes; nibbles: 8 bytes in x and y; two bits: the whole block */
    uint2 above;  /* further bits of the whole block */
    factors f;
} half_block;

static inline half_block load_half(__global const uchar *w, ulong scales_at, ulong all_blocks,
                                   ulong b, uint which) {
    half_block out;
    out.f = load_factors(w, scales_at, all_blocks, b);
#if W_Q8_0
    out.quants = ((__global const uint4 *)w)[2 * b + which];
    out.above = 0;
#else
    out.quants = (uint4)(((__global const uint2 *)w)[W_TWO ? b : 2 * b + which], 0, 0);
    out.above = load_high(w, all_blocks, b);
#endif
    return out;
}

static inline void store_four(__local uint *to, float4 v) {
    to[0] = pair_of(v.x, v.y);
    to[1] = pair_of(v.z, v.w);
}

/* Stores half a block. row: the pairs of the whole block. */
static inline void store_half(__local uint *row, half_block h, uint which) {
    const float2 d = h.f.d, base = h.f.base;
#if W_Q8_0
    row += which * 8;
    store_four(row, values_of(h.quants.x, d.x, base.x));
    store_four(row + 2, values_of(h.quants.y, d.x, base.x));
    store_four(row + 4, values_of(h.quants.z, d.x, base.x));
    store_four(row + 6, values_of(h.quants.w, d.x, base.x));
#else
    const uint p = 2 * which;
#if W_TWO
    const uint2 two = h.quants.xy >> 2 * p;
    const uint2 low = (uint2)(two.x, two.x >> 2) & 0x03030303u;
    const uint2 high = (uint2)(two.y, two.y >> 2) & 0x03030303u;
#else
    const uint2 low = h.quants.xy & 0x0f0f0f0fu, high = h.quants.xy >> 4 & 0x0f0f0f0fu;
#endif
    row += which * 4;
    store_four(row, values_of(with_high(low.x, h.above.x, p), d.x, base.x));
    store_four(row + 2, values_of(with_high(low.y, h.above.x, p + 1), d.x, base.x));
    store_four(row + 8, values_of(with_high(high.x, h.above.y, p), d.y, base.y));
    store_four(row + 10, values_of(with_high(high.y, h.above.y, p + 1), d.y, base.y));
#endif
}

/* Work-groups of TILE_WG: dimension 0 is tiles by columns, 1 by rows. */
__kernel __attribute__((reqd_work_group_size(TILE_WG, 1, 1))) void
matmul_mma(__global uchar *y, ulong y_at, __global const uchar *x, ulong x_at,
           __global const uchar *w, ulong scales_at, uint m, uint n, uint k) {
    __local uint xs[2][TILE_M * PITCH], ws[2][TILE_N * PITCH];
    const uint lid = get_local_id(0), lane = lid % WARP, warp = lid / WARP;
    const uint warp_row = warp % WARPS_M * 16 * TILES_M, warp_column = warp / WARPS_M * 8 * TILES_N;
    const size_t row0 = get_group_id(1) * TILE_M, column0 = get_group_id(0) * TILE_N;
    const uint n_blocks = k / BLOCK;
    const ulong all_blocks = (ulong)n * n_blocks;

    /* A work-item loads two quads of x, 32 rows apart, and half a block of w. */
    const uint x_row = lid / 8, x_quad = lid % 8, w_row = lid / 2, w_half = lid % 2;
    __global const float *in = (__global const float *)(x + x_at) + 4 * x_quad;
    __global const float *in0 = in + min(row0 + x_row, (size_t)m - 1) * k;
    __global const float *in1 = in + min(row0 + x_row + 32, (size_t)m - 1) * k;
    const ulong w_block = min(column0 + w_row, (size_t)n - 1) * n_blocks;

    float c[TILES_M][TILES_N][4];
#pragma unroll
    for (uint i = 0; i < TILES_M; i++) {
#pragma unroll
        for (uint j = 0; j < TILES_N; j++) {
            c[i][j][0] = c[i][j][1] = c[i][j][2] = c[i][j][3] = 0;
        }
    }
    float4 x0 = *(__global const float4 *)in0, x1 = *(__global const float4 *)in1;
    half_block h = load_half(w, scales_at, all_blocks, w_block, w_half);
    for (uint b = 0; b < n_blocks; b++) {
        __local uint *xb = xs[b % 2], *wb = ws[b % 2];
        store_four(xb + x_row * PITCH + 2 * x_quad, x0);
        store_four(xb + (x_row + 32) * PITCH + 2 * x_quad, x1);
        store_half(wb + w_row * PITCH, h, w_half);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (b + 1 < n_blocks) {
            x0 = *(__global const float4 *)(in0 + (b + 1) * BLOCK);
            x1 = *(__global const float4 *)(in1 + (b + 1) * BLOCK);
            h = load_half(w, scales_at, all_blocks, w_block + b + 1, w_half);
        }
#pragma unroll
        for (uint step = 0; step < PAIRS; step += 8) {
#pragma unroll
            for (uint i = 0; i < TILES_M; i++) {
#pragma unroll
                for (uint j = 0; j < TILES_N; j++) {
                    multiply_add(c[i][j], xb + (warp_row + 16 * i) * PITCH + step,
                                 wb + (warp_column + 8 * j) * PITCH + step, lane);
                }
            }
        }
    }

    __global float *out = (__global float *)(y + y_at);
#pragma unroll
    for (uint i = 0; i < TILES_M; i++) {
#pragma unroll
        for (uint j = 0; j < TILES_N; j++) {
#pragma unroll
            for (uint l = 0; l < 4; l++) {
                const size_t row = row0 + warp_row + 16 * i + lane / 4 + l / 2 * 8;
                const size_t column = column0 + warp_column + 8 * j + lane % 4 * 2 + l % 2;
                if (row < m && column < n) out[row * n + column] = c[i][j][l];
            }
        }
    }
}
