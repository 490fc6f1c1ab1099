/* SPDX-License-Identifier: Apache-2.0 */
/* One transformer block of the Llama family. */
#ifndef AG_LAYERS_LLAMA_LAYER_H
#define AG_LAYERS_LLAMA_LAYER_H

#include "layers/attention.h"
#include "layers/workspace.h"

/* Weights in the backend's layout, norms and biases F32; a bias that the model lacks has no buffer.
 * All borrow the model's buffers. */
typedef struct ag_llama_layer {
    ag_tensor attention_norm, ffn_norm; /* [dim] */
    ag_tensor wq, wk, wv, wo;           /* [q_dim,dim] [kv_dim,dim] [kv_dim,dim] [dim,q_dim] */
    ag_tensor w_gate, w_up, w_down;     /* [ffn,dim] [ffn,dim] [dim,ffn] */
    ag_tensor bq, bk, bv, bo;           /* one value per output row */
    ag_tensor b_gate, b_up, b_down;
} ag_llama_layer;

/* What a pass is about, the same for every layer. */
typedef struct ag_layer_pass {
    ag_backend *backend;
    ag_workspace *ws;
    size_t n_rows;
    const uint32_t *positions; /* [n_rows] */
    const ag_sequence *seqs;
    size_t n_seqs;
    ag_attention_shape heads;
    const ag_tensor *inv_freq;
    float norm_eps;
} ag_layer_pass;

/* On entry ws->residual holds the stream and ws->normed what attention reads: the stream normed
 * with this layer's attention_norm. On return the stream has passed the layer and ws->normed is the
 * stream normed with next_norm: the next layer's attention_norm, or the model's last norm. */
ag_status ag_llama_layer_forward(const ag_llama_layer *layer, uint32_t index,
                                 const ag_layer_pass *pass, const ag_tensor *next_norm,
                                 ag_error *err);

#endif
