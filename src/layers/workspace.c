/* SPDX-License-Identifier: Apache-2.0 */
#include "layers/workspace.h"

#include "core/alloc.h"
#include "core/fail.h"

enum { ALIGNMENT = 64, N_PARTS = 11 };

typedef struct part {
    ag_tensor *tensor;
    size_t cols;
} part;

static void list_parts(ag_workspace *ws, const ag_workspace_shape *s, part parts[N_PARTS]) {
    const part all[N_PARTS] = {
        {&ws->residual, s->dim}, {&ws->normed, s->dim},       {&ws->q, s->q_dim},
        {&ws->k, s->kv_dim},     {&ws->v, s->kv_dim},         {&ws->out_attn, s->q_dim},
        {&ws->attn_out, s->dim}, {&ws->gate, s->ffn_dim},     {&ws->up, s->ffn_dim},
        {&ws->down, s->dim},     {&ws->inputs, s->input_dim},
    };
    for (int i = 0; i < N_PARTS; i++) parts[i] = all[i];
}

static size_t part_bytes(size_t n_rows, size_t cols) {
    size_t bytes = n_rows * cols * sizeof(float);
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

size_t ag_workspace_bytes(const ag_workspace_shape *s) {
    ag_workspace none;
    part parts[N_PARTS];
    list_parts(&none, s, parts);
    size_t total = s->n_rows * (s->dim * sizeof(float) + (1 + s->n_windows) * sizeof(uint32_t)) +
                   (s->n_rows + 1) * s->input_dim * sizeof(float) +
                   s->n_seqs * sizeof(ag_attention_seq);
    for (int i = 0; i < N_PARTS; i++) total += part_bytes(s->n_rows, parts[i].cols);
    return total;
}

static bool fits(const ag_workspace_shape *have, const ag_workspace_shape *want) {
    return have->n_rows >= want->n_rows && have->n_seqs >= want->n_seqs &&
           have->n_windows == want->n_windows && have->dim == want->dim &&
           have->q_dim == want->q_dim && have->kv_dim == want->kv_dim &&
           have->ffn_dim == want->ffn_dim && have->input_dim == want->input_dim &&
           have->program_cols == want->program_cols;
}

ag_status ag_workspace_reserve(ag_workspace *ws, ag_backend *be, const ag_workspace_shape *shape,
                               ag_error *err) {
    if (ws->storage && fits(&ws->shape, shape)) return AG_OK;
    ag_workspace next = {.shape = *shape};
    part parts[N_PARTS];
    list_parts(&next, shape, parts);
    size_t total = 0;
    for (int i = 0; i < N_PARTS; i++) total += part_bytes(shape->n_rows, parts[i].cols);
    ag_status st =
        ag_memory_alloc(ag_backend_memory(be), total, AG_USAGE_SCRATCH, &next.storage, err);
    if (st == AG_OK && shape->program_cols) {
        st = ag_memory_alloc(ag_backend_memory(be),
                             shape->n_rows * shape->program_cols * sizeof(float), AG_USAGE_SCRATCH,
                             &next.values, err);
    }
    size_t offset = 0;
    for (int i = 0; i < N_PARTS && st == AG_OK; i++) {
        if (!parts[i].cols) continue;
        st = ag_tensor_make(parts[i].tensor, AG_F32, ag_shape_2d(shape->n_rows, parts[i].cols),
                            next.storage, offset, err);
        offset += part_bytes(shape->n_rows, parts[i].cols);
    }
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
    ag_buffer_release(&ws->values);
    ag_buffer_release(&ws->storage);
    ag_free(ws->host_rows);
    ag_free(ws->host_inputs);
    ag_free(ws->positions);
    ag_free(ws->visible_from);
    ag_free(ws->attention);
    *ws = (ag_workspace){0};
}
