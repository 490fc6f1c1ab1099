/* SPDX-License-Identifier: Apache-2.0 */
/* Workspace: the memory of a forward pass, allocated once and reused. Decoding allocates
 * nothing. */
#ifndef AG_LAYERS_WORKSPACE_H
#define AG_LAYERS_WORKSPACE_H

#include "core/kv_view.h"

#include <antigravity/backend.h>

typedef struct ag_workspace_shape {
    size_t n_rows, n_seqs; /* maximum tokens and sequences of a pass */
    size_t cols;           /* columns of all values of a program */
    size_t n_windows;      /* distinct windows of layers */
    size_t dim;            /* length of an embedding */
    size_t input_dim;      /* length of the per-layer inputs of all layers */
} ag_workspace_shape;

typedef struct ag_workspace {
    ag_workspace_shape shape;
    ag_buffer *storage;  /* owned; column c begins at byte c * n_rows * 4, rows contiguous */
    float *host_rows;    /* owned; [n_rows, dim] staging of embedding rows */
    float *host_inputs;  /* owned; [n_rows + 1, input_dim] staging of per-layer inputs */
    uint32_t *positions; /* owned; [n_rows] logical positions of a pass */
    /* Owned; [n_windows][n_rows] the first position that each row sees in layers of that window. */
    uint32_t *visible_from;
    ag_attention_seq *attention; /* owned; [n_seqs] of the current layer */
} ag_workspace;

/* Makes *ws, which starts zeroed, at least as large as `shape`. Keeps a workspace that is large
 * enough. A failure leaves *ws unchanged. */
ag_status ag_workspace_reserve(ag_workspace *ws, ag_backend *be, const ag_workspace_shape *shape,
                               ag_error *err);
void ag_workspace_release(ag_workspace *ws);
/* Returns the bytes of such a workspace. */
size_t ag_workspace_bytes(const ag_workspace_shape *shape);

#endif
