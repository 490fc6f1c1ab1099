/* SPDX-License-Identifier: Apache-2.0 */
#include "layers/layer.h"

#include "core/backend_ops.h"
#include "core/fail.h"

/* The first rows of every activation, as wide as this layer has them; nothing is copied. */
typedef struct activations {
    ag_tensor residual, normed, q, k, v, out_attn, attn_out, gate, up, down;
} activations;

static ag_status view(ag_tensor *out, const ag_tensor *t, size_t n, size_t cols, ag_error *err) {
    return ag_tensor_make(out, AG_F32, ag_shape_2d(n, cols), t->buffer, t->offset, err);
}

static ag_status view_all(const ag_layer_pass *pass, const ag_attention_layer *l, activations *a,
                          ag_error *err) {
    const ag_workspace *ws = pass->ws;
    const size_t n = pass->n_rows, dim = ws->shape.dim;
    const size_t q_dim = (size_t)l->n_heads * l->head_dim;
    const size_t kv_dim = (size_t)l->n_kv_heads * l->head_dim;
    AG_TRY(view(&a->residual, &ws->residual, n, dim, err));
    AG_TRY(view(&a->normed, &ws->normed, n, dim, err));
    AG_TRY(view(&a->q, &ws->q, n, q_dim, err));
    AG_TRY(view(&a->k, &ws->k, n, kv_dim, err));
    AG_TRY(view(&a->v, &ws->v, n, kv_dim, err));
    AG_TRY(view(&a->out_attn, &ws->out_attn, n, q_dim, err));
    AG_TRY(view(&a->attn_out, &ws->attn_out, n, dim, err));
    AG_TRY(view(&a->gate, &ws->gate, n, pass->ffn_dim, err));
    AG_TRY(view(&a->up, &ws->up, n, pass->ffn_dim, err));
    return view(&a->down, &ws->down, n, dim, err);
}

static ag_status add_bias(ag_backend *be, ag_tensor *x, const ag_tensor *bias) {
    return bias->buffer ? ag_add_bias(be, x, bias) : AG_OK;
}

/* In place, where there is such a norm. */
static ag_status norm_branch(ag_backend *be, ag_tensor *x, const ag_tensor *w, float eps) {
    return w->buffer ? ag_rms_norm(be, x, x, w, eps) : AG_OK;
}

/* As many values at a time as the norm has: every head by itself, or all of a row. */
static ag_status norm_heads(ag_backend *be, const ag_tensor *x, const ag_tensor *w, float eps) {
    ag_tensor heads;
    if (!w->buffer) return AG_OK;
    const size_t dim = w->shape.dim[0];
    const ag_shape rows = ag_shape_2d(ag_shape_numel(&x->shape) / dim, dim);
    AG_TRY(ag_tensor_reshape(&heads, x, rows, &be->err));
    return ag_rms_norm(be, &heads, &heads, w, eps);
}

/* What a branch reads. */
static const ag_tensor *input_of(const activations *a, const ag_tensor *norm) {
    return norm->buffer ? &a->normed : &a->residual;
}

/* Adds a branch to the stream, which is then normed for the next one where there is such a norm. */
static ag_status add_branch(ag_backend *be, activations *a, const ag_tensor *branch,
                            const ag_tensor *next_norm, float eps) {
    if (!next_norm->buffer) return ag_add_assign(be, &a->residual, branch);
    return ag_add_rms_norm(be, &a->normed, &a->residual, branch, next_norm, eps);
}

static ag_status project_qkv(const ag_layer *l, ag_backend *be, activations *a, float eps) {
    ag_tensor *const y[] = {&a->q, &a->k, &a->v};
    const ag_tensor *const w[] = {&l->wq, &l->wk, &l->wv};
    AG_TRY(ag_matmul_group(be, y, input_of(a, &l->attention_norm), w, 3));
    AG_TRY(add_bias(be, &a->q, &l->bq));
    AG_TRY(add_bias(be, &a->k, &l->bk));
    AG_TRY(add_bias(be, &a->v, &l->bv));
    AG_TRY(norm_heads(be, &a->q, &l->q_norm, eps));
    return norm_heads(be, &a->k, &l->k_norm, eps);
}

static ag_status project_out(const ag_layer *l, ag_backend *be, activations *a, float eps) {
    AG_TRY(ag_matmul_transposed(be, &a->attn_out, &a->out_attn, &l->wo));
    AG_TRY(add_bias(be, &a->attn_out, &l->bo));
    AG_TRY(norm_branch(be, &a->attn_out, &l->post_attention_norm, eps));
    return add_branch(be, a, &a->attn_out, &l->ffn_norm, eps);
}

static ag_status activate(ag_backend *be, ag_activation activation, activations *a) {
    if (activation == AG_ACTIVATION_GELU_TANH) return ag_gelu_mul(be, &a->gate, &a->up);
    return ag_silu_mul(be, &a->gate, &a->up);
}

static ag_status feed_forward(const ag_layer *l, ag_activation activation, ag_backend *be,
                              activations *a, const ag_tensor *next_norm, float eps) {
    ag_tensor *const y[] = {&a->gate, &a->up};
    const ag_tensor *const w[] = {&l->w_gate, &l->w_up};
    AG_TRY(ag_matmul_group(be, y, input_of(a, &l->ffn_norm), w, 2));
    AG_TRY(add_bias(be, &a->gate, &l->b_gate));
    AG_TRY(add_bias(be, &a->up, &l->b_up));
    AG_TRY(activate(be, activation, a));
    AG_TRY(ag_matmul_transposed(be, &a->down, &a->gate, &l->w_down));
    AG_TRY(add_bias(be, &a->down, &l->b_down));
    AG_TRY(norm_branch(be, &a->down, &l->post_ffn_norm, eps));
    return add_branch(be, a, &a->down, next_norm, eps);
}

ag_status ag_layer_forward(const ag_layer *layer, const ag_attention_layer *attention,
                           ag_activation activation, const ag_layer_pass *pass,
                           const ag_tensor *next_norm, ag_error *err) {
    ag_backend *be = pass->backend;
    const float eps = pass->norm_eps;
    activations a;
    AG_TRY(view_all(pass, attention, &a, err));
    AG_TRY(ag_take_error(be, project_qkv(layer, be, &a, eps), err));
    AG_TRY(ag_self_attention(be, attention, pass->seqs, pass->n_seqs, pass->ws, &a.out_attn, &a.q,
                             &a.k, &a.v, err));
    AG_TRY(ag_take_error(be, project_out(layer, be, &a, eps), err));
    return ag_take_error(be, feed_forward(layer, activation, be, &a, next_norm, eps), err);
}
