/* SPDX-License-Identifier: Apache-2.0 */
#include "layers/workspace.h"

#include "core/alloc.h"
#include "core/fail.h"

static size_t value_bytes(const ag_workspace_shape *s) {
    return s->n_rows * s->cols * sizeof(float);
}

size_t ag_workspace_bytes(const ag_workspace_shape *s) {
    return value_bytes(s) +
           s->n_rows * (s->dim * sizeof(float) + (1 + s->n_windows) * sizeof(uint32_t)) +
           (s->n_rows + 1) * s->input_dim * sizeof(float) + s->n_seqs * sizeof(ag_attention_seq);
}

static bool is_large_enough(const ag_workspace_shape *current, const ag_workspace_shape *needed) {
    return current->n_rows >= needed->n_rows && current->n_seqs >= needed->n_seqs &&
           current->n_windows == needed->n_windows && current->dim == needed->dim &&
           current->cols == needed->cols && current->input_dim == needed->input_dim;
}

ag_status ag_workspace_reserve(ag_workspace *ws, ag_backend *be, const ag_workspace_shape *shape,
                               ag_error *err) {
    if (ws->storage && is_large_enough(&ws->shape, shape)) return AG_OK;
    ag_workspace next = {.shape = *shape};
    ag_status st = ag_memory_alloc(ag_backend_memory(be), value_bytes(shape), AG_USAGE_SCRATCH,
                                   &next.storage, err);
    if (st == AG_OK) {
        next.host_rows = ag_malloc(shape->n_rows * shape->dim * sizeof *next.host_rows);
        next.host_inputs = ag_calloc(shape->n_rows + 1, shape->input_dim * sizeof(float) + 1);
        next.positions = ag_malloc(shape->n_rows * sizeof *next.positions);
        next.visible_from = ag_calloc(shape->n_windows * shape->n_rows + 1, sizeof(uint32_t));
        next.attention = ag_calloc(shape->n_seqs, sizeof *next.attention);
        if (!next.host_rows || !next.host_inputs || !next.positions || !next.visible_from ||
            !next.attention) {
            st = AG_FAIL(err, NOMEM, "workspace of %zu rows", shape->n_rows);
        }
    }
    if (st != AG_OK) {
        ag_workspace_release(&next);
        return st;
    }
    ag_workspace_release(ws);
    *ws = next;
    return AG_OK;
}

void ag_workspace_release(ag_workspace *ws) {
    ag_buffer_release(&ws->storage);
    ag_free(ws->host_rows);
    ag_free(ws->host_inputs);
    ag_free(ws->positions);
    ag_free(ws->visible_from);
    ag_free(ws->attention);
    *ws = (ag_workspace){0};
}
