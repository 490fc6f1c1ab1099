/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a forward pass, taken once and reused: decoding allocates nothing. */
#ifndef AG_LAYERS_WORKSPACE_H
#define AG_LAYERS_WORKSPACE_H

#include "core/kv_view.h"

#include <antigravity/backend.h>

typedef struct ag_workspace_shape {
    size_t n_rows, n_seqs; /* tokens and sequences in one pass at most */
    size_t cols;           /* columns of a program's values */
    size_t n_windows;      /* kinds of layers with a window */
    size_t dim;            /* length of an embedding */
    size_t input_dim;      /* length of the inputs of all layers */
} ag_workspace_shape;

typedef struct ag_workspace {
    ag_workspace_shape shape;
    ag_buffer *storage;  /* owned; a value at column c begins at byte c * n_rows * 4, its rows close
                            together */
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
