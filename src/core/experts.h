/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of mixtures of experts. A router chooses n_used of n_experts experts for each row. The
 * chosen pairs of row and expert are the picked rows: n_rows * n_used of them, in order of expert,
 * then of row. Results of a row depend neither on other rows nor on the number of threads. */
#ifndef AG_CORE_EXPERTS_H
#define AG_CORE_EXPERTS_H

#include <antigravity/operations.h>

enum {
    AG_EXPERTS_MAX = 1024,
    AG_PICKED_MAX = 1 << 24, /* picked rows are numbered in F32, which is exact up to it */
};

/* Source of the scores that are compared and of the weights of the chosen experts. */
typedef enum ag_scoring {
    AG_SCORING_SOFTMAX, /* softmax of the logits of all experts */
    AG_SCORING_SIGMOID, /* sigmoid of each logit */
    AG_SCORING_CHOSEN,  /* the logits; weights are the softmax of the chosen logits */
} ag_scoring;

typedef struct ag_route_params {
    uint32_t n_experts, n_used; /* 1 <= n_used <= n_experts <= AG_EXPERTS_MAX */
    ag_scoring scoring;
    bool normalise; /* divides weights by their sum + sum_eps */
    float sum_eps;
    float factor; /* multiplies all weights */
} ag_route_params;

/* Columns of a row of routes: the numbers of the chosen experts in ascending order, then their
 * weights, then the numbers of the picked rows. All are F32, which holds these integers exactly. */
static inline size_t ag_route_cols(uint32_t n_used) { return 3 * (size_t)n_used; }

/* Chooses the experts with the highest scores, and computes their weights. The lower
 * expert number wins a tie.
 *   routes  [n, ag_route_cols()] F32      logits  [n, n_experts] F32
 *   bias    [n_experts] F32, added to the scores that are compared, not to weights; may be NULL
 *   scale   [n_experts] F32, multiplies the weights; may be NULL */
ag_status ag_route(ag_backend *be, ag_tensor *routes, const ag_tensor *logits,
                   const ag_tensor *bias, const ag_tensor *scale, const ag_route_params *params);

/* Products of picked rows with the weights of their experts. */
typedef struct ag_expert_call {
    ag_tensor *const *y;       /* [n] of [n_rows * n_used, rows of w[i]] F32, by picked row */
    const ag_tensor *x;        /* F32: [n_rows, k], or with `picked` [n_rows * n_used, k] */
    const ag_tensor *const *w; /* [n][n_experts] weights of one type, layout and shape for each i */
    size_t n;                  /* at most AG_MATMUL_GROUP_MAX */
    const ag_tensor *routes;   /* from ag_route() */
    uint32_t n_experts, n_used;
    bool picked; /* rows of x are picked rows */
} ag_expert_call;

/* y[i] = x * w[i][expert of the row]^T. Experts that no row chose are not read. Kernels are chosen
 * by n_rows: see ag_matmul_transposed() for their rounding. */
ag_status ag_matmul_experts(ag_backend *be, const ag_expert_call *call);

/* y[p,:] += bias[expert of p,:] for every picked row p.
 *   y  [n_rows * n_used, cols] F32      bias  [n_experts * cols] F32 */
ag_status ag_add_expert_bias(ag_backend *be, ag_tensor *y, const ag_tensor *bias,
                             const ag_tensor *routes);

/* out[r,:] = sum of weight * y[p,:] over the picked rows p of row r, in order of expert.
 *   out  [n_rows, cols] F32      y  [n_rows * n_used, cols] F32 */
ag_status ag_combine_experts(ag_backend *be, ag_tensor *out, const ag_tensor *y,
                             const ag_tensor *routes);

/* x[r,:] *= sigmoid(gate[r]).   x [n, cols] F32      gate [n, 1] F32 */
ag_status ag_gate_rows(ag_backend *be, ag_tensor *x, const ag_tensor *gate);

/* a = min(a, limit) * sigmoid(1.702 min(a, limit)) * (1 + b clamped to [-limit, limit]). The gate
 * of gpt-oss.   a, b F32 of one shape */
ag_status ag_swiglu_clamped(ag_backend *be, ag_tensor *a, const ag_tensor *b, float limit);

/* ---- for backends ---- */

/* Lists the picked rows of each expert: picked[first[e] .. first[e + 1]) are the rows of expert e.
 *   routes  the values of ag_expert_call.routes      first  [n_experts + 1]
 *   picked  [n_rows * n_used] the row of each picked row
 * Returns false if a value is no result of ag_route(). */
bool ag_list_picked(const float *routes, size_t n_rows, uint32_t n_experts, uint32_t n_used,
                    uint32_t *first, uint32_t *picked);

#endif
