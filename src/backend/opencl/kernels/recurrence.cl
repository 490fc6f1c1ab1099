/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent operations on the rows of one sequence: the short convolution and the gated delta rule.
 * All tensors are F32. */
#include "arrays.cl"

enum { WG = 64 };

enum { MAX_TAPS = 8 }; /* AG_CONV_TAPS_MAX */

/* y[t] = sum over j of w[j] * x[t - (n_taps - 1) + j]. The state has the rows before the first, and
 * the newest rows afterwards. A work-item for each channel, with rows in order. */
WG_KERNEL causal_conv(ARRAY(y), CONST_ARRAY(x), CONST_ARRAY(w), ARRAY(state), uint n_rows,
                      uint n_taps, uint channels, uint silu) {
    const size_t c = get_global_id(0);
    if (c >= channels) return;
    __global float *out = FLOATS(y) + c, *kept = FLOATS(state) + c;
    __global const float *in = CONST_FLOATS(x) + c, *weight = CONST_FLOATS(w) + c;
    float taps[MAX_TAPS], factors[MAX_TAPS];
    for (uint j = 0; j < n_taps; j++) factors[j] = weight[(size_t)j * channels];
    for (uint j = 0; j + 1 < n_taps; j++) taps[j] = kept[(size_t)j * channels];
    for (uint t = 0; t < n_rows; t++) {
        float sum = 0;
        taps[n_taps - 1] = in[(size_t)t * channels];
        for (uint j = 0; j < n_taps; j++) sum += factors[j] * taps[j];
        out[(size_t)t * channels] = silu ? sum / (1.0f + exp(-sum)) : sum;
        for (uint j = 0; j + 1 < n_taps; j++) taps[j] = taps[j + 1];
    }
    for (uint j = 0; j + 1 < n_taps; j++) kept[(size_t)j * channels] = taps[j];
}

/* Computes ag_delta_rule(). A work-item for each column of each head's matrix: dimension 0 is
 * columns, 1 heads; rows in order. Columns are independent, so each computes the lengths of queries
 * and keys. */
WG_KERNEL delta_rule(ARRAY(out), ARRAY(state), CONST_ARRAY(qkv), CONST_ARRAY(a), CONST_ARRAY(b),
                     CONST_ARRAY(decay), CONST_ARRAY(dt_bias), uint n_rows, uint n_k_heads,
                     uint n_v_heads, uint k_dim, uint v_dim, uint tiled, float eps) {
    const uint head = (uint)get_global_id(1), j = (uint)get_global_id(0);
    if (j >= v_dim) return;
    const uint k_head = tiled ? head % n_k_heads : head / (n_v_heads / n_k_heads);
    const size_t keys = (size_t)n_k_heads * k_dim, values = (size_t)n_v_heads * v_dim;
    __global float *s = FLOATS(state) + (size_t)head * k_dim * v_dim + j;
    for (uint t = 0; t < n_rows; t++) {
        __global const float *row = CONST_FLOATS(qkv) + t * (2 * keys + values);
        __global const float *q = row + (size_t)k_head * k_dim, *k = q + keys;
        const size_t gate = (size_t)t * n_v_heads + head;
        const float u = CONST_FLOATS(a)[gate] + CONST_FLOATS(dt_bias)[head];
        const float dt = u > 20.0f ? u : log1p(exp(u));
        const float g = exp(CONST_FLOATS(decay)[head] * dt);
        const float beta = 1.0f / (1.0f + exp(-CONST_FLOATS(b)[gate]));
        float known = 0, q_squares = 0, k_squares = 0, sum = 0;
        for (uint i = 0; i < k_dim; i++) {
            q_squares += q[i] * q[i];
            k_squares += k[i] * k[i];
            known += k[i] * s[(size_t)i * v_dim];
        }
        const float k_factor = 1.0f / sqrt(k_squares + eps);
        const float q_factor = 1.0f / (sqrt(q_squares + eps) * sqrt((float)k_dim));
        const float value = row[2 * keys + (size_t)head * v_dim + j];
        const float delta = (value - known * k_factor * g) * beta * k_factor;
        for (uint i = 0; i < k_dim; i++) {
            const float now = s[(size_t)i * v_dim] * g + k[i] * delta;
            s[(size_t)i * v_dim] = now;
            sum += q[i] * now;
        }
        FLOATS(out)[t * values + (size_t)head * v_dim + j] = sum * q_factor;
    }
}
