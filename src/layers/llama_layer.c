/* SPDX-License-Identifier: Apache-2.0 */
#include "layers/llama_layer.h"

#include "core/backend_ops.h"
#include "core/fail.h"

/* The first n_rows rows of every activation; nothing is copied. */
typedef struct activations {
    ag_tensor residual, normed, q, k, v, out_attn, attn_out, gate, up, down;
} activations;

static ag_status take_rows(const ag_workspace *ws, size_t n, activations *a, ag_error *err) {
    AG_TRY(ag_tensor_rows(&a->residual, &ws->residual, 0, n, err));
    AG_TRY(ag_tensor_rows(&a->normed, &ws->normed, 0, n, err));
    AG_TRY(ag_tensor_rows(&a->q, &ws->q, 0, n, err));
    AG_TRY(ag_tensor_rows(&a->k, &ws->k, 0, n, err));
    AG_TRY(ag_tensor_rows(&a->v, &ws->v, 0, n, err));
    AG_TRY(ag_tensor_rows(&a->out_attn, &ws->out_attn, 0, n, err));
    AG_TRY(ag_tensor_rows(&a->attn_out, &ws->attn_out, 0, n, err));
    AG_TRY(ag_tensor_rows(&a->gate, &ws->gate, 0, n, err));
    AG_TRY(ag_tensor_rows(&a->up, &ws->up, 0, n, err));
    return ag_tensor_rows(&a->down, &ws->down, 0, n, err);
}

static ag_status add_bias(ag_backend *be, ag_tensor *x, const ag_tensor *bias) {
    return bias->buffer ? ag_add_bias(be, x, bias) : AG_OK;
}

static ag_status project_qkv(const ag_llama_layer *l, ag_backend *be, activations *a) {
    ag_tensor *const y[] = {&a->q, &a->k, &a->v};
    const ag_tensor *const w[] = {&l->wq, &l->wk, &l->wv};
    AG_TRY(ag_matmul_group(be, y, &a->normed, w, 3));
    AG_TRY(add_bias(be, &a->q, &l->bq));
    AG_TRY(add_bias(be, &a->k, &l->bk));
    return add_bias(be, &a->v, &l->bv);
}

static ag_status project_out(const ag_llama_layer *l, ag_backend *be, activations *a, float eps) {
    AG_TRY(ag_matmul_transposed(be, &a->attn_out, &a->out_attn, &l->wo));
    AG_TRY(add_bias(be, &a->attn_out, &l->bo));
    return ag_add_rms_norm(be, &a->normed, &a->residual, &a->attn_out, &l->ffn_norm, eps);
}

static ag_status feed_forward(const ag_llama_layer *l, ag_backend *be, activations *a,
                              const ag_tensor *next_norm, float eps) {
    ag_tensor *const y[] = {&a->gate, &a->up};
    const ag_tensor *const w[] = {&l->w_gate, &l->w_up};
    AG_TRY(ag_matmul_group(be, y, &a->normed, w, 2));
    AG_TRY(add_bias(be, &a->gate, &l->b_gate));
    AG_TRY(add_bias(be, &a->up, &l->b_up));
    AG_TRY(ag_silu_mul(be, &a->gate, &a->up));
    AG_TRY(ag_matmul_transposed(be, &a->down, &a->gate, &l->w_down));
    AG_TRY(add_bias(be, &a->down, &l->b_down));
    return ag_add_rms_norm(be, &a->normed, &a->residual, &a->down, next_norm, eps);
}

ag_status ag_llama_layer_forward(const ag_llama_layer *layer, uint32_t index,
                                 const ag_layer_pass *pass, const ag_tensor *next_norm,
                                 ag_error *err) {
    ag_backend *be = pass->backend;
    activations a;
    AG_TRY(take_rows(pass->ws, pass->n_rows, &a, err));
    AG_TRY(ag_take_error(be, project_qkv(layer, be, &a), err));
    AG_TRY(ag_self_attention(be, &pass->heads, index, pass->seqs, pass->n_seqs, pass->positions,
                             pass->inv_freq, &a.out_attn, &a.q, &a.k, &a.v, err));
    AG_TRY(ag_take_error(be, project_out(layer, be, &a, pass->norm_eps), err));
    return ag_take_error(be, feed_forward(layer, be, &a, next_norm, pass->norm_eps), err);
}
