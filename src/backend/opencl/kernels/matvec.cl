/* SPDX-License-Identifier: Apache-2.0 */
/* y[m,n] = x[m,k] * w[n,k]^T with prepared weights and few rows of x, for GPUs: up to three weights
 * with the same x in one launch. LANES adjacent work-items read a row of w, 16 bytes each, for
 * X_ROWS rows of x. Every row of x starts at a multiple of 16 bytes; k is a multiple of 32 if the
 * weight has blocks, else of 8. The order of a value's sum does not depend on other values, nor on
 * X_ROWS.
 *
 * With INT_DOT, blocks of x are rounded to 8 bits and multiplied as integers; many devices multiply
 * four at a time. */
#include "arrays.cl"
#include "dot_bytes.cl"
#include "subgroup.cl"
#include "weights.cl"

#ifndef LANES
#define LANES 32    /* work-items that share a row of w */
#define TEAMS 4     /* teams of LANES work-items in a work-group */
#define TEAM_ROWS 2 /* rows of w that a team computes at a time, reading x once */
#define X_ROWS 1    /* rows of x that share a read of w */
#endif
#ifndef INT_DOT
#define INT_DOT 0
#endif
#define MATVEC_WG (LANES * TEAMS)
#define GROUP_ROWS (TEAMS * TEAM_ROWS)

static inline float dot4(float4 a, float4 b, float sum) {
    return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

/* Returns the sum over a team in its first lane. All work-items must call it. */
static inline float team_sum(float v, __local float *scratch) {
#if defined(__NV_CL_C_VERSION) && LANES == 32 && !SUBGROUPS
    for (uint n = LANES / 2; n > 0; n /= 2) v += shuffle_xor(v, n);
    return v;
#else
    return team_sum_of(v, LANES, scratch);
#endif
}

#if INT_DOT
/* x rounded to 8 bits: 16 bytes of a block in each half, and the block's step and sum. If halves of
 * a weight's block have factors, the sum is two shorts: the sums of both halves' bytes. */
typedef struct rounded {
    __local uint4 *low, *high;
    __local float2 *scale;
} rounded;

static inline uint pack4(float4 v) { return as_uint(convert_char4_sat_rte(v)); }

/* Rounds X_ROWS rows of n_blocks to steps of largest / 127. Rows past the last one are copies of
 * it. A work-item for each block. */
static inline void round_rows(rounded to, __global const float4 *rows, uint n_blocks, uint last) {
    for (uint b = get_local_id(0); b < X_ROWS * n_blocks; b += MATVEC_WG) {
        __global const float4 *x =
            rows + 8 * ((ulong)min(b / n_blocks, last) * n_blocks + b % n_blocks);
        float4 v[8], maxima = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] = x[i];
            maxima = fmax(maxima, fabs(v[i]));
        }
        const float largest = fmax(fmax(maxima.x, maxima.y), fmax(maxima.z, maxima.w));
        const float inverse = largest > 0 ? 127.0f / largest : 0.0f;
        uint q[8];
        int sums[2] = {0, 0};
        float4 total = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            total += v[i];
            q[i] = pack4(v[i] * inverse);
            sums[i / 4] = dot_bytes(q[i], 0x01010101u, sums[i / 4]);
        }
        to.low[b] = (uint4)(q[0], q[1], q[2], q[3]);
        to.high[b] = (uint4)(q[4], q[5], q[6], q[7]);
        /* NaN and Inf have no level; the block's step represents them. */
        const float all = (total.x + total.y) + (total.z + total.w);
        const float step = isfinite(all) ? largest / 127.0f : NAN;
        const float sum = step * (float)(sums[0] + sums[1]);
        const short2 halves = (short2)((short)sums[0], (short)sums[1]);
        to.scale[b] = (float2)(step, W_HALVES ? as_float(halves) : sum);
    }
}

static inline int dot_half(uint4 a, uint4 b, int sum) {
    sum = dot_bytes(a.x, b.x, sum);
    sum = dot_bytes(a.y, b.y, sum);
    sum = dot_bytes(a.z, b.z, sum);
    return dot_bytes(a.w, b.w, sum);
}

/* Returns the product of a block of the weight with one of x: 16 bytes of both halves, and scale.
 */
static inline float dot_rounded(factors f, levels q, uint4 low, uint4 high, float2 scale) {
    if (W_HALVES) {
        const int2 sums = convert_int2(as_short2(scale.y)), middle = sums * -W_MIDDLE;
        float both = (float)dot_half(q.low, low, middle.x) * f.d.x;
        both = fma((float)dot_half(q.high, high, middle.y), f.d.y, both);
        if (W_BASE) both = fma(f.base.y, (float)sums.y, fma(f.base.x, (float)sums.x, both));
        return both * scale.x;
    }
    const int sum = dot_half(q.high, high, dot_half(q.low, low, 0));
    const float product = (float)sum * scale.x;
    if (W_BASE) return fma(f.base.x, scale.y, product * f.d.x);
    return (W_MIDDLE ? fma(-(float)W_MIDDLE, scale.y, product) : product) * f.d.x;
}
#endif

#if W_BLOCKS
enum { LANE_STEP = BLOCK };

static inline float dot_floats(uint4 levels, const float4 *x, float middle, float sum) {
    sum = dot4(floats_less(levels.x, middle), x[0], sum);
    sum = dot4(floats_less(levels.y, middle), x[1], sum);
    sum = dot4(floats_less(levels.z, middle), x[2], sum);
    return dot4(floats_less(levels.w, middle), x[3], sum);
}

/* Returns the product of a block with x[0..32) in floats, whose sum is x_sum. */
static inline float dot_block(factors f, levels q, const float4 *x, float x_sum) {
    if (W_HALVES) {
        const float first = dot_floats(q.low, x, W_MIDDLE, 0) * f.d.x;
        const float both = fma(dot_floats(q.high, x + 4, W_MIDDLE, 0), f.d.y, first);
        const float4 total = (x[0] + x[1]) + (x[2] + x[3]);
        const float low_sum = (total.x + total.y) + (total.z + total.w);
        return W_BASE ? fma(f.base.y, x_sum - low_sum, fma(f.base.x, low_sum, both)) : both;
    }
    const float sum = dot_floats(q.high, x + 4, 0, dot_floats(q.low, x, 0, 0));
    if (W_BASE) return fma(f.base.x, x_sum, sum * f.d.x);
    return (W_MIDDLE ? fma(-(float)W_MIDDLE, x_sum, sum) : sum) * f.d.x;
}
#else
enum { LANE_STEP = 8 };

/* Loads eight values of the weight. */
static inline void load_eight(float4 *to, __global const uchar *w, ulong first) {
#if W_F32
    __global const float4 *p = (__global const float4 *)((__global const float *)w + first);
    to[0] = p[0];
    to[1] = p[1];
#elif W_F16
    __global const half *p = (__global const half *)w + first;
    to[0] = vloada_half4(0, p);
    to[1] = vloada_half4(1, p);
#else
    const uint4 q = *(__global const uint4 *)((__global const ushort *)w + first);
    to[0] = as_float4((uint4)(q.x << 16, q.x & 0xffff0000u, q.y << 16, q.y & 0xffff0000u));
    to[1] = as_float4((uint4)(q.z << 16, q.z & 0xffff0000u, q.w << 16, q.w & 0xffff0000u));
#endif
}
#endif

#if INT_DOT
/* sums[i][r] += this lane's part of row row0 + r of w [n,k] times row i of x. Rows past the end are
 * copies of the last one. */
static inline void multiply(float (*sums)[TEAM_ROWS], __global const uchar *w, ulong scales_at,
                            uint n, uint k, ulong row0, uint lane, rounded x) {
    const uint n_blocks = k / BLOCK;
    for (uint b = lane; b < n_blocks; b += LANES) {
        factors f[TEAM_ROWS];
        levels q[TEAM_ROWS];
#pragma unroll
        for (int r = 0; r < TEAM_ROWS; r++) {
            const ulong block = min(row0 + r, (ulong)n - 1) * n_blocks + b;
            f[r] = load_factors(w, scales_at, (ulong)n * n_blocks, block);
            q[r] = load_levels(w, (ulong)n * n_blocks, block);
        }
#pragma unroll
        for (int i = 0; i < X_ROWS; i++) {
            const uint at = i * n_blocks + b;
            const uint4 low = x.low[at], high = x.high[at];
            const float2 scale = x.scale[at];
#pragma unroll
            for (int r = 0; r < TEAM_ROWS; r++) {
                sums[i][r] += dot_rounded(f[r], q[r], low, high, scale);
            }
        }
    }
}
#else
/* The same for rows of x in floats, of which there are last + 1. */
static inline void multiply(float (*sums)[TEAM_ROWS], __global const uchar *w, ulong scales_at,
                            uint n, uint k, ulong row0, uint lane, __global const float *x,
                            uint last) {
    const ulong stride = (k + BLOCK - 1) / BLOCK * BLOCK;
    for (uint at = lane * LANE_STEP; at < k; at += LANES * LANE_STEP) {
#if W_BLOCKS
        factors f[TEAM_ROWS];
        levels q[TEAM_ROWS];
#else
        float4 values[TEAM_ROWS][2];
#endif
#pragma unroll
        for (int r = 0; r < TEAM_ROWS; r++) {
            const ulong first = min(row0 + r, (ulong)n - 1) * stride + at;
#if W_BLOCKS
            f[r] = load_factors(w, scales_at, n * (stride / BLOCK), first / BLOCK);
            q[r] = load_levels(w, n * (stride / BLOCK), first / BLOCK);
#else
            load_eight(values[r], w, first);
#endif
        }
#pragma unroll
        for (int i = 0; i < X_ROWS; i++) {
            __global const float4 *from =
                (__global const float4 *)(x + (ulong)min((uint)i, last) * k + at);
            float4 in[LANE_STEP / 4];
            for (int j = 0; j < LANE_STEP / 4; j++) in[j] = from[j];
#if W_BLOCKS
            float4 total = 0;
            for (int j = 0; j < LANE_STEP / 4; j++) total += in[j];
            const float x_sum = (total.x + total.y) + (total.z + total.w);
#pragma unroll
            for (int r = 0; r < TEAM_ROWS; r++) sums[i][r] += dot_block(f[r], q[r], in, x_sum);
#else
#pragma unroll
            for (int r = 0; r < TEAM_ROWS; r++) {
                sums[i][r] += dot4(values[r][1], in[1], dot4(values[r][0], in[0], 0.0f));
            }
#endif
        }
    }
}
#endif

/* A weight and its product; n 0: none. */
#define WEIGHT_PARAMS(i) ARRAY(y##i), __global const uchar *w##i, ulong scales##i##_at, uint n##i

/* Work-groups of MATVEC_WG in dimension 0 share the rows of all weights in turns of GROUP_ROWS
 * rows; dimension 1 is the m rows of x, X_ROWS at a time. INT_DOT needs local memory for X_ROWS * k
 * bytes of x and X_ROWS * k / 32 pairs of floats. */
__kernel SUBGROUP_KERNEL __attribute__((reqd_work_group_size(MATVEC_WG, 1, 1))) void
matvec(CONST_ARRAY(x), uint k, uint m,
#if INT_DOT
       __local uint4 *x_bytes, __local float2 *x_scales,
#endif
       WEIGHT_PARAMS(0), WEIGHT_PARAMS(1), WEIGHT_PARAMS(2)) {
    __local float scratch[MATVEC_WG];
    const uint place = group_place(), lane = place % LANES;
    const uint x_row = get_global_id(1) * X_ROWS, last = m - 1 - x_row;
    __global const float *in = CONST_FLOATS(x) + (ulong)x_row * k;
#if INT_DOT
    const uint n_blocks = k / BLOCK;
    const rounded q = {x_bytes, x_bytes + X_ROWS * n_blocks, x_scales};
    round_rows(q, (__global const float4 *)in, n_blocks, last);
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    const uint groups0 = (n0 + GROUP_ROWS - 1) / GROUP_ROWS;
    const uint groups1 = groups0 + (n1 + GROUP_ROWS - 1) / GROUP_ROWS;
    const uint groups2 = groups1 + (n2 + GROUP_ROWS - 1) / GROUP_ROWS;
    for (uint group = get_group_id(0); group < groups2; group += get_num_groups(0)) {
        const uint which = (group >= groups0) + (group >= groups1);
        __global const uchar *w = which == 0 ? w0 : which == 1 ? w1 : w2;
        __global uchar *y = which == 0 ? y0 + y0_at : which == 1 ? y1 + y1_at : y2 + y2_at;
        const ulong scales_at = which == 0 ? scales0_at : which == 1 ? scales1_at : scales2_at;
        const uint n = which == 0 ? n0 : which == 1 ? n1 : n2;
        const uint before = which == 0 ? 0 : which == 1 ? groups0 : groups1;
        const ulong row0 = (ulong)(group - before) * GROUP_ROWS + place / LANES * TEAM_ROWS;
        float sums[X_ROWS][TEAM_ROWS];
#pragma unroll
        for (int i = 0; i < X_ROWS; i++) {
#pragma unroll
            for (int r = 0; r < TEAM_ROWS; r++) sums[i][r] = 0;
        }
#if INT_DOT
        multiply(sums, w, scales_at, n, k, row0, lane, q);
#else
        multiply(sums, w, scales_at, n, k, row0, lane, in, last);
#endif
#pragma unroll
        for (uint i = 0; i < X_ROWS; i++) {
            __global float *out = (__global float *)y + (ulong)(x_row + i) * n;
#pragma unroll
            for (int r = 0; r < TEAM_ROWS; r++) {
                const float sum = team_sum(sums[i][r], scratch);
                if (lane == 0 && row0 + r < n && i <= last) out[row0 + r] = sum;
            }
        }
    }
}
