/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on independent rows or elements. All tensors are F32. */
#include "arrays.cl"
#include "reduce.cl"

#ifndef WIDTH
#define WIDTH 1 /* adjacent elements of a work-item in operations on two tensors: 1 or 4 */
#endif
#if WIDTH == 4
typedef float4 values;
#else
typedef float values;
#endif
#define VALUES(a) ((__global values *)(a + a##_at))
#define CONST_VALUES(a) ((__global const values *)(a + a##_at))

/* y[r,:] = x[r,:] / sqrt(mean of squares + eps) * w. y may be x.
 * A work-group of WG for each row. */
WG_KERNEL rms_norm(ARRAY(y), CONST_ARRAY(x), CONST_ARRAY(w), uint n, float eps) {
    __local float scratch[WG];
    const ulong row = (ulong)get_group_id(0) * n;
    __global const float *in = CONST_FLOATS(x) + row, *weight = CONST_FLOATS(w);
    __global float *out = FLOATS(y) + row;
    float squares = 0;
    for (uint i = get_local_id(0); i < n; i += WG) squares += in[i] * in[i];
    const float factor = 1.0f / sqrt(group_sum(squares, scratch) / (float)n + eps);
    for (uint i = get_local_id(0); i < n; i += WG) out[i] = in[i] * factor * weight[i];
}

/* x += add, then y = rms_norm(x). A work-group of WG for each row. */
WG_KERNEL add_rms_norm(ARRAY(y), ARRAY(x), CONST_ARRAY(add), CONST_ARRAY(w), uint n, float eps) {
    __local float scratch[WG];
    const ulong row = (ulong)get_group_id(0) * n;
    __global const float *more = CONST_FLOATS(add) + row, *weight = CONST_FLOATS(w);
    __global float *sum = FLOATS(x) + row, *out = FLOATS(y) + row;
    float squares = 0;
    for (uint i = get_local_id(0); i < n; i += WG) {
        const float v = sum[i] + more[i];
        sum[i] = v;
        squares += v * v;
    }
    const float factor = 1.0f / sqrt(group_sum(squares, scratch) / (float)n + eps);
    for (uint i = get_local_id(0); i < n; i += WG) out[i] = sum[i] * factor * weight[i];
}

/* Row-wise softmax in place. A row of only -inf becomes 0; NaN is retained. A work-group of WG for
 * each row. */
WG_KERNEL softmax(ARRAY(x), uint n) {
    __local float scratch[WG];
    __global float *v = FLOATS(x) + (ulong)get_group_id(0) * n;
    float max_value = -INFINITY;
    for (uint i = get_local_id(0); i < n; i += WG) max_value = fmax(max_value, v[i]);
    max_value = group_max(max_value, scratch);
    const bool nothing = max_value == -INFINITY;
    float sum = 0;
    for (uint i = get_local_id(0); i < n; i += WG) {
        const float e = nothing ? (isnan(v[i]) ? v[i] : 0.0f) : exp(v[i] - max_value);
        v[i] = e;
        sum += e;
    }
    sum = group_sum(sum, scratch);
    if (nothing) return;
    for (uint i = get_local_id(0); i < n; i += WG) v[i] /= sum;
}

/* x += y. A work-item for each of n groups of WIDTH elements, in groups of WG. */
WG_KERNEL add_assign(ARRAY(x), CONST_ARRAY(y), ulong n) {
    const size_t i = get_global_id(0);
    if (i < n) VALUES(x)[i] += CONST_VALUES(y)[i];
}

/* x[r,:] += bias. A work-item for each element. */
WG_KERNEL add_bias(ARRAY(x), CONST_ARRAY(bias), ulong n, uint cols) {
    const size_t i = get_global_id(0);
    if (i < n) FLOATS(x)[i] += CONST_FLOATS(bias)[i % cols];
}

/* x *= v. A work-item for each element. */
WG_KERNEL scale(ARRAY(x), ulong n, float v) {
    const size_t i = get_global_id(0);
    if (i < n) FLOATS(x)[i] *= v;
}

/* a = a * sigmoid(a) * b. Work-items as in add_assign(). */
WG_KERNEL silu_mul(ARRAY(a), CONST_ARRAY(b), ulong n) {
    const size_t i = get_global_id(0);
    if (i >= n) return;
    const values v = VALUES(a)[i];
    VALUES(a)[i] = v / (1.0f + exp(-v)) * CONST_VALUES(b)[i];
}

/* a = gelu(a) * b in its tanh form. Work-items as in add_assign(). */
WG_KERNEL gelu_mul(ARRAY(a), CONST_ARRAY(b), ulong n) {
    const size_t i = get_global_id(0);
    if (i >= n) return;
    const values v = VALUES(a)[i], u = 0.79788456f * (v + 0.044715f * v * v * v);
    VALUES(a)[i] = v / (1.0f + exp(-2.0f * u)) * CONST_VALUES(b)[i];
}

/* a *= b. Work-items as in add_assign(). */
WG_KERNEL multiply(ARRAY(a), CONST_ARRAY(b), ulong n) {
    const size_t i = get_global_id(0);
    if (i < n) VALUES(a)[i] *= CONST_VALUES(b)[i];
}

/* a = sigmoid(a) * b. Work-items as in add_assign(). */
WG_KERNEL sigmoid_mul(ARRAY(a), CONST_ARRAY(b), ulong n) {
    const size_t i = get_global_id(0);
    if (i < n) VALUES(a)[i] = CONST_VALUES(b)[i] / (1.0f + exp(-VALUES(a)[i]));
}

/* x = cap * tanh(x / cap). A work-item for each element. */
WG_KERNEL softcap(ARRAY(x), ulong n, float cap) {
    const size_t i = get_global_id(0);
    if (i < n) FLOATS(x)[i] = cap * tanh(FLOATS(x)[i] / cap);
}

/* Rotates the pairs (i, i + half_dim) of every head of x [rows, heads, dim] and k [rows, more, dim]
 * by positions[row] * inv_freq[i], and multiplies them by factor. The angle is rounded to float
 * before its sine is computed, as in the reference. A work-item for each pair: dimension 0 is pairs
 * of all heads of a row of x, then of k; 1 is rows. */
WG_KERNEL rope(ARRAY(x), ARRAY(k), CONST_ARRAY(positions), CONST_ARRAY(inv_freq), uint heads,
               uint more, uint half_dim, uint dim, float factor) {
    const uint pair = get_global_id(0), row = get_global_id(1);
    if (pair >= (heads + more) * half_dim) return;
    const uint head = pair / half_dim, i = pair % half_dim;
    const uint position = CONST_UINTS(positions)[row];
    const float angle = (float)position * CONST_FLOATS(inv_freq)[i];
    float c;
    const float s = sincos(angle, &c);
    __global float *p = head < heads ? FLOATS(x) + ((ulong)row * heads + head) * dim
                                     : FLOATS(k) + ((ulong)row * more + head - heads) * dim;
    p += i;
    const float a = p[0], b = p[half_dim];
    p[0] = factor * (a * c - b * s);
    p[half_dim] = factor * (b * c + a * s);
}

/* Hadamard rotation of pieces of `piece` values, a power of two up to WG, in place, times v. A
 * work-item for each element; a work-group has complete pieces. */
WG_KERNEL hadamard(ARRAY(x), ulong n, uint piece, float v) {
    __local float values[WG];
    const uint lid = get_local_id(0);
    const size_t i = get_global_id(0);
    float mine = i < n ? FLOATS(x)[i] : 0.0f;
    for (uint apart = 1; apart < piece; apart *= 2) {
        barrier(CLK_LOCAL_MEM_FENCE); /* all reads of the last step are done */
        values[lid] = mine;
        barrier(CLK_LOCAL_MEM_FENCE);
        const float other = values[lid ^ apart];
        mine = lid & apart ? other - mine : mine + other;
    }
    if (i < n) FLOATS(x)[i] = mine * v;
}
