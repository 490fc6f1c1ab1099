/* SPDX-License-Identifier: Apache-2.0 */
/* One transformer block, as its description says. */
#ifndef AG_LAYERS_LAYER_H
#define AG_LAYERS_LAYER_H

#include "core/decode_step.h"
#include "core/layer_tensors.h"
#include "layers/attention.h"
#include "layers/mixers.h"
#include "layers/workspace.h"

#include <antigravity/model.h>
#include <antigravity/operations.h>

enum { AG_MIXER_INPUTS = 4 };

/* Weights in the backend's layout, [rows, cols] of models/tensors.c; norms, biases and convolutions
 * [taps, channels] F32. What the layer lacks has no buffer. All borrow the model's buffers. */
typedef struct ag_layer {
    ag_tensor of[AG_LAYER_PLACES];
} ag_layer;

/* What a layer is besides its weights. */
typedef struct ag_layer_facts {
    ag_mixer mixer;
    ag_attention_layer attention; /* of that mixer */
    uint32_t state;               /* of another one: its number in the sequences' states */
    ag_delta_params delta;        /* of a delta net */
    ag_activation activation;
    size_t ffn_dim;
    const ag_tensor *input; /* [n_rows, n] the layer's own, overwritten; NULL: none */
    float out_scale;        /* of the stream behind the layer; 1: none */
} ag_layer_facts;

/* What a pass is about, the same for every layer. */
typedef struct ag_layer_pass {
    ag_backend *backend;
    ag_workspace *ws;
    size_t n_rows;
    const ag_sequence *seqs;
    size_t n_seqs;
    float norm_eps;
} ag_layer_pass;

/* The first n rows of an activation as wide as a layer has them, close together. */
ag_status ag_layer_view(const ag_layer_pass *pass, const ag_tensor *t, size_t cols, ag_tensor *out,
                        ag_error *err);
/* RMSNorm of as many values at a time as w has, in place: every head by itself, or all of a row. w
 * without a buffer: nothing. */
ag_status ag_norm_heads(ag_backend *be, const ag_tensor *x, const ag_tensor *w, float eps);

/* On entry ws->residual holds the stream and ws->normed what the mixer reads: the stream normed
 * with this layer's attention_norm, if it has one. On return the stream has passed the layer and
 * ws->normed is the stream normed with next_norm: the next layer's attention_norm, or the model's
 * last norm; it is undefined if that has no buffer. */
ag_status ag_layer_forward(const ag_layer *layer, const ag_layer_facts *facts,
                           const ag_layer_pass *pass, const ag_tensor *next_norm, ag_error *err);

#endif
