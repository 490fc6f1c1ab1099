/* SPDX-License-Identifier: Apache-2.0 */
/* Every activation of a forward pass, taken once and reused: decoding allocates nothing. */
#ifndef AG_LAYERS_WORKSPACE_H
#define AG_LAYERS_WORKSPACE_H

#include "core/kv_view.h"

#include <antigravity/backend.h>

typedef struct ag_workspace_shape {
    size_t n_rows, n_seqs;              /* tokens and sequences in one pass at most */
    size_t n_windows;                   /* kinds of layers with a window */
    size_t dim, q_dim, kv_dim, ffn_dim; /* of the widest layer */
    size_t input_dim;                   /* of what all layers have for themselves */
    size_t program_cols;                /* of a program's values; 0: none is executed */
} ag_workspace_shape;

/* All F32, [n_rows, ...]; a layer that is narrower uses the beginning, its rows close together. */
typedef struct ag_workspace {
    ag_workspace_shape shape;
    ag_buffer *values;   /* owned; [program_cols][n_rows] of a program; NULL: none is executed */
    ag_buffer *storage;  /* owned; the tensors below are parts of it */
    ag_tensor residual;  /* [dim] the stream that every block adds to */
    ag_tensor normed;    /* [dim] what a block reads */
    ag_tensor q;         /* [q_dim] heads flattened */
    ag_tensor k, v;      /* [kv_dim] */
    ag_tensor out_attn;  /* [q_dim] of attention */
    ag_tensor attn_out;  /* [dim] after the output projection */
    ag_tensor gate, up;  /* [ffn_dim] */
    ag_tensor down;      /* [dim] */
    ag_tensor inputs;    /* [input_dim] of the layers one after another, each [n, ...] */
    float *host_rows;    /* owned; [n_rows, dim] embedding rows on their way in */
    float *host_inputs;  /* owned; [n_rows + 1, input_dim] the same for layers' own inputs */
    uint32_t *positions; /* owned; [n_rows] logical positions of a pass */
    /* Owned; [n_windows][n_rows] the first position that each row sees in layers with a window. */
    uint32_t *visible_from;
    ag_attention_seq *attention; /* owned; [n_seqs] of the layer at hand */
} ag_workspace;

/* Zero-initialise *ws before; keeps a workspace that is large enough already. On failure the old
 * one stands. */
ag_status ag_workspace_reserve(ag_workspace *ws, ag_backend *be, const ag_workspace_shape *shape,
                               ag_error *err);
void ag_workspace_release(ag_workspace *ws);
/* Bytes such a workspace takes. */
size_t ag_workspace_bytes(const ag_workspace_shape *shape);

#endif
