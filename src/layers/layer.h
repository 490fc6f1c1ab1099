/* SPDX-License-Identifier: Apache-2.0 */
/* One transformer block, as its description says. */
#ifndef AG_LAYERS_LAYER_H
#define AG_LAYERS_LAYER_H

#include "core/decode_step.h"
#include "layers/attention.h"
#include "layers/workspace.h"

/* Weights in the backend's layout, norms and biases F32; what the layer lacks has no buffer. All
 * borrow the model's buffers. */
typedef struct ag_layer {
    ag_tensor attention_norm, ffn_norm; /* [dim] */
    ag_tensor wq, wk, wv, wo;           /* [q_dim,dim] [kv_dim,dim] [kv_dim,dim] [dim,q_dim] */
    ag_tensor w_gate, w_up, w_down;     /* [ffn,dim] [ffn,dim] [dim,ffn] */
    ag_tensor bq, bk, bv, bo;           /* one value per output row */
    ag_tensor b_gate, b_up, b_down;
    ag_tensor q_norm, k_norm; /* before they turn: [head_dim] of every head, or [q_dim], [kv_dim] */
    ag_tensor post_attention_norm, post_ffn_norm; /* [dim] of a branch, before it is added */
} ag_layer;

/* What a pass is about, the same for every layer. */
typedef struct ag_layer_pass {
    ag_backend *backend;
    ag_workspace *ws;
    size_t n_rows;
    const ag_sequence *seqs;
    size_t n_seqs;
    size_t ffn_dim;
    float norm_eps;
} ag_layer_pass;

/* On entry ws->residual holds the stream and ws->normed what attention reads: the stream normed
 * with this layer's attention_norm, if it has one. On return the stream has passed the layer and
 * ws->normed is the stream normed with next_norm: the next layer's attention_norm, or the model's
 * last norm; it is undefined if that has no buffer. */
ag_status ag_layer_forward(const ag_layer *layer, const ag_attention_layer *attention,
                           ag_activation activation, const ag_layer_pass *pass,
                           const ag_tensor *next_norm, ag_error *err);

#endif
