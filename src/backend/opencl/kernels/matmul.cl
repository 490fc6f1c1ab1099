/* SPDX-License-Identifier: Apache-2.0 */
/* y[m,n] = x[m,k] * w[n,k]^T with a weight that was prepared (prepare.c), WTYPE being its type:
 *   F32, F16, BF16   [n][stride] elements, stride = k rounded up to 32, zeros behind k
 *   Q4_0, Q4_1       [n][k / 32] pieces of 16 bytes: byte i holds element i (low nibble) and i + 16;
 *                    at scales_at [n][k / 32] halves d; for Q4_1 as many halves m behind them
 *   Q8_0             [n][k / 32] pieces of 32 bytes; at scales_at [n][k / 32] halves d
 * The weight begins on a cache line, every row of it on a multiple of 16 bytes.
 *
 * Three kernels: matmul_rows wants nothing of x and is made for processors with vector registers;
 * matvec and matmul_tile are for GPUs and want every row of x on a multiple of 16 bytes.
 * A value of y is summed in an order that does not depend on the rows and columns beside it. */
#ifndef WTYPE
#define WTYPE 5
#endif
#define W_F32 (WTYPE == 0)
#define W_F16 (WTYPE == 1)
#define W_BF16 (WTYPE == 2)
#define W_Q4_0 (WTYPE == 5)
#define W_Q4_1 (WTYPE == 6)
#define W_Q8_0 (WTYPE == 7)
#define W_BLOCKS (W_Q4_0 || W_Q4_1 || W_Q8_0)

enum { BLOCK = 32 };

/* ---- one block of 32 values, as 4 vectors of 8 ---- */

typedef struct block {
    float8 v[4];
} block;

static inline float8 bfloats(ushort8 h) { return as_float8(convert_uint8(h) << 16); }

/* Block b of the weight, counted from its first row on. */
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
    const float d = vload_half(b, (__global const half *)(w + scales_at));
#if W_Q8_0
    __global const char *p = (__global const char *)w + b * BLOCK;
    for (int i = 0; i < 4; i++) out.v[i] = convert_float8(vload8(i, p)) * d;
#else
    const uchar16 q = vload16(b, w);
    const uchar16 low = q & (uchar)15, high = q >> (uchar)4;
    out.v[0] = convert_float8(low.lo);
    out.v[1] = convert_float8(low.hi);
    out.v[2] = convert_float8(high.lo);
    out.v[3] = convert_float8(high.hi);
#if W_Q4_0
    for (int i = 0; i < 4; i++) out.v[i] = (out.v[i] - 8.0f) * d;
#else
    const float m = vload_half(n_blocks + b, (__global const half *)(w + scales_at));
    for (int i = 0; i < 4; i++) out.v[i] = out.v[i] * d + m;
#endif
#endif
#endif
    return out;
}

static inline float sum8(float8 v) {
    const float4 a = v.lo + v.hi;
    const float2 b = a.lo + a.hi;
    return b.x + b.y;
}

/* ---- for processors ---- */

static inline float8 fma_block(block w, __global const float *x, float8 sum) {
    for (int i = 0; i < 4; i++) sum = fma(w.v[i], vload8(i, x), sum);
    return sum;
}

/* The same for the last block of a row that ends inside it. */
static inline float8 fma_tail(block w, __global const float *x, uint n, float8 sum) {
    float values[BLOCK];
    for (uint i = 0; i < BLOCK; i++) values[i] = i < n ? x[i] : 0.0f;
    for (int i = 0; i < 4; i++) sum = fma(w.v[i], vload8(i, values), sum);
    return sum;
}

/* A work-item for each row of w, one to a work-group; rows of x four at a time. */
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
matmul_rows(__global uchar *y, ulong y_at, __global const uchar *x, ulong x_at,
            __global const uchar *w, ulong scales_at, uint m, uint n, uint k) {
    const size_t column = get_group_id(0);
    const uint full = k / BLOCK, rest = k % BLOCK;
    const ulong stride = full + (rest != 0), first = column * stride, all = n * stride;
    __global const float *in = (__global const float *)(x + x_at);
    __global float *out = (__global float *)(y + y_at) + column;
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

/* ---- for GPUs: few rows of x ---- */

#ifndef LANES
#define LANES 32 /* work-items that share a row of w */
#endif
#ifndef TEAMS
#define TEAMS 4 /* of LANES in a work-group */
#endif
#ifndef TEAM_ROWS
#define TEAM_ROWS 2 /* rows of w that a team computes together, reading x once */
#endif
#define MATVEC_WG (LANES * TEAMS)

static inline float dot4(float4 a, float4 b, float sum) {
    return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

#if W_BLOCKS
/* A lane takes whole blocks: 16 or 32 bytes of the weight at once. */
enum { LANE_STEP = BLOCK };

/* The block's share of the product with x[0..32), of which x_sum is the sum. */
static inline float dot_block(__global const uchar *w, ulong scales_at, ulong n_blocks, ulong b,
                       const float4 *x, float x_sum) {
    const float d = vload_half(b, (__global const half *)(w + scales_at));
    float sum = 0;
#if W_Q8_0
    __global const uint4 *p = (__global const uint4 *)w + 2 * b;
    for (int i = 0; i < 2; i++) {
        const uint4 q = p[i];
        sum = dot4(convert_float4(as_char4(q.x)), x[4 * i], sum);
        sum = dot4(convert_float4(as_char4(q.y)), x[4 * i + 1], sum);
        sum = dot4(convert_float4(as_char4(q.z)), x[4 * i + 2], sum);
        sum = dot4(convert_float4(as_char4(q.w)), x[4 * i + 3], sum);
    }
    return sum * d;
#else
    const uint4 q = ((__global const uint4 *)w)[b];
    const uint4 low = q & 0x0f0f0f0fu, high = q >> 4 & 0x0f0f0f0fu;
    sum = dot4(convert_float4(as_uchar4(low.x)), x[0], sum);
    sum = dot4(convert_float4(as_uchar4(low.y)), x[1], sum);
    sum = dot4(convert_float4(as_uchar4(low.z)), x[2], sum);
    sum = dot4(convert_float4(as_uchar4(low.w)), x[3], sum);
    sum = dot4(convert_float4(as_uchar4(high.x)), x[4], sum);
    sum = dot4(convert_float4(as_uchar4(high.y)), x[5], sum);
    sum = dot4(convert_float4(as_uchar4(high.z)), x[6], sum);
    sum = dot4(convert_float4(as_uchar4(high.w)), x[7], sum);
#if W_Q4_0
    return fma(-8.0f, x_sum, sum) * d;
#else
    const float m = vload_half(n_blocks + b, (__global const half *)(w + scales_at));
    return fma(m, x_sum, sum * d);
#endif
#endif
}
#else
/* A lane takes 8 values: 16 or 32 bytes. */
enum { LANE_STEP = 8 };
#endif

/* The share of row `row` in the LANE_STEP values from element `at` on, times x. */
static inline float dot_step(__global const uchar *w, ulong scales_at, uint n, ulong stride, ulong row,
                      uint at, const float4 *x, float x_sum) {
#if W_BLOCKS
    const ulong per_row = stride / BLOCK;
    return dot_block(w, scales_at, n * per_row, row * per_row + at / BLOCK, x, x_sum);
#elif W_F32
    __global const float4 *p = (__global const float4 *)((__global const float *)w + row * stride + at);
    return dot4(p[1], x[1], dot4(p[0], x[0], 0.0f));
#elif W_F16
    __global const half *p = (__global const half *)w + row * stride + at;
    return dot4(vloada_half4(1, p), x[1], dot4(vloada_half4(0, p), x[0], 0.0f));
#else
    const uint4 q = *(__global const uint4 *)((__global const ushort *)w + row * stride + at);
    const float4 low = as_float4((uint4)(q.x << 16, q.x & 0xffff0000u, q.y << 16, q.y & 0xffff0000u));
    const float4 high = as_float4((uint4)(q.z << 16, q.z & 0xffff0000u, q.w << 16, q.w & 0xffff0000u));
    return dot4(high, x[1], dot4(low, x[0], 0.0f));
#endif
}

/* Work-groups of MATVEC_WG in dimension 0, each for TEAMS * TEAM_ROWS rows of w; dimension 1: the
 * rows of x. k is a multiple of LANE_STEP. */
__kernel __attribute__((reqd_work_group_size(MATVEC_WG, 1, 1))) void
matvec(__global uchar *y, ulong y_at, __global const uchar *x, ulong x_at, __global const uchar *w,
       ulong scales_at, uint m, uint n, uint k) {
    __local float part[TEAM_ROWS][MATVEC_WG];
    const uint lid = get_local_id(0), lane = lid % LANES;
    const size_t row0 = (get_group_id(0) * TEAMS + lid / LANES) * TEAM_ROWS;
    const ulong stride = (k + BLOCK - 1) / BLOCK * BLOCK;
    __global const float4 *in =
        (__global const float4 *)((__global const float *)(x + x_at) + get_global_id(1) * (ulong)k);
    float sums[TEAM_ROWS];
    for (int r = 0; r < TEAM_ROWS; r++) sums[r] = 0;
    for (uint at = lane * LANE_STEP; at < k; at += LANES * LANE_STEP) {
        float4 values[LANE_STEP / 4], total = 0;
        for (int i = 0; i < LANE_STEP / 4; i++) {
            values[i] = in[at / 4 + i];
            total += values[i];
        }
        const float x_sum = (total.x + total.y) + (total.z + total.w);
        for (int r = 0; r < TEAM_ROWS; r++) {
            const size_t row = min(row0 + r, (size_t)n - 1);
            sums[r] += dot_step(w, scales_at, n, stride, row, at, values, x_sum);
        }
    }
    for (int r = 0; r < TEAM_ROWS; r++) part[r][lid] = sums[r];
    for (uint half_lanes = LANES / 2; half_lanes > 0; half_lanes /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < half_lanes) {
            for (int r = 0; r < TEAM_ROWS; r++) part[r][lid] += part[r][lid + half_lanes];
        }
    }
    if (lane != 0) return;
    __global float *out = (__global float *)(y + y_at) + get_global_id(1) * (ulong)n;
    for (int r = 0; r < TEAM_ROWS; r++) {
        if (row0 + r < n) out[row0 + r] = part[r][lid];
    }
}

/* ---- for GPUs: many rows of x ---- */

#ifndef TILE_M
#define TILE_M 64 /* rows of x and columns of y that a work-group computes */
#endif
#ifndef TILE_N
#define TILE_N 64
#endif
enum { EACH_M = 4, EACH_N = 4, TILE_WG = TILE_M / EACH_M * (TILE_N / EACH_N) };

/* Part p (0..3) of block b: 8 of its values and where in the block they stand. */
static inline void load_part(__global const uchar *w, ulong scales_at, ulong n_blocks, ulong b, uint p,
                      float4 *low, float4 *high, uint *low_at, uint *high_at) {
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
    const float d = vload_half(b, (__global const half *)(w + scales_at));
#if W_Q8_0
    const uint2 q = ((__global const uint2 *)w)[b * 4 + p];
    *low = convert_float4(as_char4(q.x)) * d;
    *high = convert_float4(as_char4(q.y)) * d;
#else
    const uint q = ((__global const uint *)w)[b * 4 + p];
    *low_at = 4 * p;
    *high_at = 16 + 4 * p;
    *low = convert_float4(as_uchar4(q & 0x0f0f0f0fu));
    *high = convert_float4(as_uchar4(q >> 4 & 0x0f0f0f0fu));
#if W_Q4_0
    *low = (*low - 8.0f) * d;
    *high = (*high - 8.0f) * d;
#else
    const float base = vload_half(n_blocks + b, (__global const half *)(w + scales_at));
    *low = *low * d + base;
    *high = *high * d + base;
#endif
#endif
#endif
}

/* A tile of y for each work-group of TILE_WG: dimension 0 by columns, 1 by rows. Both inputs go
 * through local memory, transposed, a block of 32 along k at a time. k is a multiple of 4. */
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
            load_part(w, scales_at, (ulong)n * per_row, from, i % 4, &low, &high, &low_at, &high_at);
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
