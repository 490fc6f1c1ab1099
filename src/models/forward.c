/* SPDX-License-Identifier: Apache-2.0 */
/* Forward pass of all families. */
#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/fail.h"
#include "models/model_impl.h"

#include <string.h>

ag_workspace_shape ag_model_workspace_shape(const ag_model_info *info, size_t n_rows,
                                            size_t n_seqs) {
    ag_workspace_shape shape = {
        .n_rows = n_rows,
        .n_seqs = n_seqs,
        .cols = (size_t)info->workspace_columns,
        .dim = info->hidden_size,
        .input_dim = (size_t)info->n_layers * info->layer_input_size,
    };
    for (uint32_t k = 0; k < info->n_layer_kinds; k++)
        shape.n_windows += info->layer_kinds[k].window > 0;
    return shape;
}

ag_status ag_model_reserve(ag_model *m, size_t n_rows, size_t n_seqs, ag_error *err) {
    const ag_workspace_shape *current = &m->workspace.shape;
    if (n_rows <= current->n_rows && n_seqs <= current->n_seqs) return AG_OK;
    if (n_rows < current->n_rows) n_rows = current->n_rows;
    if (n_seqs < current->n_seqs) n_seqs = current->n_seqs;
    if (n_seqs > current->n_seqs || !m->sequences) {
        ag_sequence *sequences = ag_calloc(2 * n_seqs, sizeof *sequences);
        ag_kv_growth *growth = ag_calloc(n_seqs, sizeof *growth);
        if (!sequences || !growth) {
            ag_free(sequences);
            ag_free(growth);
            return AG_FAIL(err, NOMEM, "list of %zu sequences", n_seqs);
        }
        ag_free(m->sequences);
        m->sequences = sequences;
        m->selected = sequences + n_seqs;
        ag_free(m->growth);
        m->growth = growth;
    }
    const ag_workspace_shape shape = ag_model_workspace_shape(&m->info, n_rows, n_seqs);
    AG_TRY(ag_workspace_reserve(&m->workspace, m->backend, &shape, err));
    const ag_pass pass = {.program = m->program, .ws = &m->workspace, .n_rows = n_rows};
    m->stream = ag_pass_value(&pass, m->program->stream);
    m->hidden = ag_pass_value(&pass, m->program->hidden);
    return AG_OK;
}

/* Sets the position of a row, and the first position that it sees in each kind of layers with a
 * window. */
static void set_position(ag_model *m, size_t row, uint32_t position) {
    size_t at = row;
    m->workspace.positions[row] = position;
    for (uint32_t k = 0; k < m->spec.n_kinds; k++) {
        const uint32_t window = m->spec.kinds[k].window;
        if (!window) continue;
        m->workspace.visible_from[at] = position < window ? 0 : position - window + 1;
        at += m->workspace.shape.n_rows;
    }
}

/* Sets the rows of each item, and reserves memory in all caches, so that the pass cannot run out of
 * it. */
static ag_status set_ranges(ag_model *m, ag_sequence *items, size_t n_items, size_t *n_rows,
                            ag_error *err) {
    size_t row = 0;
    for (size_t i = 0; i < n_items; i++) {
        if (items[i].n > m->workspace.shape.n_rows - row) {
            return AG_FAIL(err, LIMIT, "the pass has %zu tokens, the workspace holds %zu",
                           row + items[i].n, m->workspace.shape.n_rows);
        }
        m->growth[i] = (ag_kv_growth){.cache = items[i].cache, .n = (uint32_t)items[i].n};
        items[i].row0 = row;
        row += items[i].n;
    }
    *n_rows = row;
    return ag_kv_caches_reserve(m->growth, n_items, err);
}

static ag_status set_rows(ag_model *m, ag_sequence *items, size_t n_items, size_t *n_rows,
                          ag_error *err) {
    AG_TRY(set_ranges(m, items, n_items, n_rows, err));
    for (size_t i = 0; i < n_items; i++) {
        AG_TRY(ag_layer_state_begin(items[i].state, items[i].position, items[i].n, err));
        for (size_t t = 0; t < items[i].n; t++)
            set_position(m, items[i].row0 + t, items[i].position + (uint32_t)t);
    }
    return AG_OK;
}

/* With fewer rows, the host is done before a backend would start. */
enum { MIN_CONVERTED_ROWS = 4 };

/* Returns the type in which n_rows rows of a table go to the backend, in parts of n values: that of
 * the table, or F32 if the host converts them. */
static ag_dtype sent_type(const ag_model *m, const ag_embedding *e, size_t n_rows, size_t n) {
    const bool converts = m->backend->ops->upload_rows && n_rows >= MIN_CONVERTED_ROWS;
    return converts && n % ag_dtype_block(e->type) == 0 ? e->type : AG_F32;
}

static ag_status read_rows(ag_embedding *e, ag_dtype type, void *rows, const int32_t *ids, size_t n,
                           ag_error *err) {
    return type == AG_F32 ? ag_embedding_lookup(e, rows, ids, n, err)
                          : ag_embedding_read(e, rows, ids, n, err);
}

/* Sends rows that read_rows() has read. */
static ag_status send_rows(ag_model *m, const ag_embedding *e, ag_tensor *dst, ag_dtype type,
                           const void *rows, ag_error *err) {
    if (type == AG_F32)
        return ag_buffer_upload(dst->buffer, dst->offset, rows, ag_tensor_bytes(dst), err);
    return ag_take_error(m->backend,
                         m->backend->ops->upload_rows(m->backend, dst, type, rows, e->scale), err);
}

static ag_status embed(ag_model *m, const ag_sequence *items, size_t n_items, size_t n_rows,
                       ag_error *err) {
    const ag_dtype type = sent_type(m, &m->embedding, n_rows, m->embedding.dim);
    const size_t bytes = ag_dtype_row_bytes(type, m->embedding.dim);
    unsigned char *rows = (unsigned char *)m->workspace.host_rows;
    ag_tensor stream;
    for (size_t i = 0; i < n_items; i++) {
        AG_TRY(read_rows(&m->embedding, type, rows + items[i].row0 * bytes, items[i].ids,
                         items[i].n, err));
    }
    AG_TRY(ag_tensor_rows(&stream, &m->stream, 0, n_rows, err));
    return send_rows(m, &m->embedding, &stream, type, rows, err);
}

/* Reads the layer inputs of each token. A row of the table has the values for all layers; the
 * workspace has one value for each layer. */
static ag_status look_up_inputs(ag_model *m, const ag_pass *pass, ag_error *err) {
    const ag_workspace *ws = &m->workspace;
    const size_t n_layers = m->spec.n_layers;
    if (!m->program->layer_inputs) return AG_OK;
    const ag_dtype type = sent_type(m, &m->layer_inputs, pass->n_rows, m->spec.layer_input);
    const size_t bytes = ag_dtype_row_bytes(type, m->spec.layer_input);
    unsigned char *row = (unsigned char *)ws->host_inputs, *all = row + n_layers * bytes;
    for (size_t i = 0; i < pass->n_seqs; i++) {
        const ag_sequence *s = &pass->seqs[i];
        for (size_t t = 0; t < s->n; t++) {
            AG_TRY(read_rows(&m->layer_inputs, type, row, &s->ids[t], 1, err));
            for (size_t l = 0; l < n_layers; l++)
                memcpy(all + (l * pass->n_rows + s->row0 + t) * bytes, row + l * bytes, bytes);
        }
    }
    for (size_t l = 0; l < n_layers; l++) {
        ag_tensor input = ag_pass_value(pass, m->program->layer_inputs[l]);
        AG_TRY(send_rows(m, &m->layer_inputs, &input, type, all + l * pass->n_rows * bytes, err));
    }
    return AG_OK;
}

/* Sets the first row of each item's results: all its rows have results, or only its output rows. */
static void find_results(const ag_pass *pass, ag_sequence *items, size_t n_items, size_t n_rows) {
    const bool all = pass->n_rows == n_rows;
    size_t row = 0;
    for (size_t i = 0; i < n_items; i++) {
        ag_sequence *s = &items[i];
        s->first_result = all ? 0 : s->n_without_output;
        s->result_row = row;
        row += s->n - s->first_result;
    }
}

ag_status ag_model_forward(ag_model *m, ag_sequence *items, size_t n_items, ag_error *err) {
    size_t n_rows = 0;
    AG_TRY(set_rows(m, items, n_items, &n_rows, err));
    AG_TRY(embed(m, items, n_items, n_rows, err));
    ag_pass pass = {.backend = m->backend,
                    .program = m->program,
                    .weights = m->bound,
                    .inv_freq = m->inv_freq,
                    .ws = &m->workspace,
                    .n_rows = n_rows,
                    .seqs = items,
                    .n_seqs = n_items,
                    .selected = m->selected,
                    .hook = m->hook,
                    .chosen = m->chosen,
                    .chosen_user = m->chosen_user};
    ag_status st = look_up_inputs(m, &pass, err);
    if (st == AG_OK) st = ag_run_program(&pass, err);
    if (st == AG_OK) find_results(&pass, items, n_items, n_rows);
    for (size_t i = 0; i < n_items; i++) {
        if (st == AG_OK) {
            ag_layer_state_commit(items[i].state);
        } else { /* only some layers have the new tokens */
            ag_layer_state_abandon(items[i].state);
            ag_kv_cache_truncate(items[i].cache, items[i].position, NULL);
        }
    }
    return st;
}

ag_status ag_model_logits(ag_model *m, const ag_tensor *hidden, size_t row0, size_t n_rows,
                          ag_tensor *logits, ag_error *err) {
    const ag_pass pass = {
        .backend = m->backend, .program = m->program, .weights = m->bound, .hook = m->hook};
    ag_tensor rows;
    AG_TRY(ag_tensor_rows(&rows, hidden, row0, n_rows, err));
    return ag_run_head(&pass, &rows, logits, err);
}
