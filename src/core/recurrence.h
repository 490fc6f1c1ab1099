/* SPDX-License-Identifier: Apache-2.0 */
/* Host implementation of ag_causal_conv() and ag_delta_rule(): loops over rows and heads, around a
 * kernel for one row of channels or one token of a head. All values are F32 in host memory. */
#ifndef AG_CORE_RECURRENCE_H
#define AG_CORE_RECURRENCE_H

#include <antigravity/operations.h>

/* Sets y[c] = sum over j of w[j * stride + c] * taps[j][c] for c < n, then applies SiLU if `silu`.
 */
typedef void ag_conv_row_fn(float *y, const float *const taps[], size_t n_taps, const float *w,
                            size_t stride, size_t n, bool silu);

typedef struct ag_conv_job {
    float *y, *state;
    const float *x, *w;
    size_t n_rows, n_taps, channels;
    bool silu;
    ag_conv_row_fn *row;
} ag_conv_job;

/* Computes all rows of channels [begin, end) and updates their state. */
void ag_conv_channels(const ag_conv_job *job, size_t begin, size_t end);

/* One token of one head. decay and beta are factors, after exp and sigmoid. */
typedef struct ag_delta_token {
    const float *q, *k, *v;
    float decay, beta, eps;
    size_t k_dim, v_dim;
} ag_delta_token;

/* Computes one token of one head. scratch: [2 * k_dim] floats, for normalised q and k. */
typedef void ag_delta_token_fn(float *out, float *state, const ag_delta_token *t, float *scratch);

typedef struct ag_delta_job {
    float *out, *state;
    const float *qkv, *a, *b, *decay, *dt_bias;
    size_t n_rows;
    ag_delta_params params;
    ag_delta_token_fn *token;
} ag_delta_job;

/* Computes all rows of one value head. scratch: [2 * k_dim] floats. */
void ag_delta_head(const ag_delta_job *job, size_t head, float *scratch);

/* Reference kernels, which sum in double. */
ag_conv_row_fn ag_conv_row_reference;
ag_delta_token_fn ag_delta_token_reference;

#endif
