/* SPDX-License-Identifier: Apache-2.0 */
#include "models/llama_model.h"

#include "core/backend_ops.h"
#include "core/fail.h"

ag_workspace_shape ag_llama_workspace_shape(const ag_model_info *info, size_t n_rows) {
    return (ag_workspace_shape){
        .n_rows = n_rows,
        .dim = info->hidden_size,
        .q_dim = (size_t)info->n_heads * info->head_dim,
        .kv_dim = (size_t)info->n_kv_heads * info->head_dim,
        .ffn_dim = info->intermediate_size,
    };
}

/* Row ranges and positions of a pass, and a check that nothing can run out on the way. */
static ag_status plan_rows(ag_model *m, const ag_forward_item *items, size_t n_items,
                           ag_sequence *seqs, size_t *n_rows, ag_error *err) {
    if (n_items > AG_MAX_SEQUENCES) {
        return AG_FAIL(err, LIMIT, "%zu sequences in one pass, at most %d", n_items,
                       AG_MAX_SEQUENCES);
    }
    size_t row = 0;
    for (size_t i = 0; i < n_items; i++) {
        if (items[i].n > m->workspace.shape.n_rows - row) {
            return AG_FAIL(err, LIMIT, "%zu tokens in one pass, the workspace holds %zu",
                           row + items[i].n, m->workspace.shape.n_rows);
        }
        AG_TRY(ag_kv_cache_reserve(items[i].cache, (uint32_t)items[i].n, err));
        seqs[i] = (ag_sequence){
            .cache = items[i].cache, .row0 = row, .n_rows = items[i].n, .scores = items[i].scores};
        for (size_t t = 0; t < items[i].n; t++) {
            m->workspace.positions[row + t] = items[i].position + (uint32_t)t;
        }
        row += items[i].n;
    }
    *n_rows = row;
    return AG_OK;
}

static ag_status embed(ag_model *m, const ag_forward_item *items, size_t n_items, ag_error *err) {
    size_t dim = m->info.hidden_size, row = 0;
    for (size_t i = 0; i < n_items; i++) {
        AG_TRY(ag_embedding_lookup(&m->embedding, m->workspace.host_rows + row * dim, items[i].ids,
                                   items[i].n, err));
        row += items[i].n;
    }
    return ag_buffer_upload(m->workspace.residual.buffer, m->workspace.residual.offset,
                            m->workspace.host_rows, row * dim * sizeof(float), err);
}

static ag_status run_layers(ag_model *m, const ag_layer_pass *pass, ag_error *err) {
    ag_llama_weights *w = &m->weights;
    ag_tensor residual, normed;
    AG_TRY(ag_tensor_rows(&residual, &m->workspace.residual, 0, pass->n_rows, err));
    AG_TRY(ag_tensor_rows(&normed, &m->workspace.normed, 0, pass->n_rows, err));
    AG_TRY(ag_take_error(
        m->backend,
        ag_rms_norm(m->backend, &normed, &residual, &w->layers[0].attention_norm, pass->norm_eps),
        err));
    for (uint32_t l = 0; l < w->n_layers; l++) {
        const ag_tensor *next = l + 1 < w->n_layers ? &w->layers[l + 1].attention_norm : &w->norm;
        AG_TRY(ag_llama_layer_forward(&w->layers[l], l, pass, next, err));
    }
    return AG_OK;
}

/* The rows' embeddings are there. */
static ag_status pass_rows(ag_model *m, const ag_forward_item *items, size_t n_items,
                           const ag_sequence *seqs, size_t n_rows, ag_error *err) {
    const ag_layer_pass pass = {
        .backend = m->backend,
        .ws = &m->workspace,
        .n_rows = n_rows,
        .positions = m->workspace.positions,
        .seqs = seqs,
        .n_seqs = n_items,
        .heads = {m->info.n_heads, m->info.n_kv_heads, m->info.head_dim},
        .inv_freq = &m->inv_freq,
        .norm_eps = m->info.norm_eps,
    };
    ag_status st = run_layers(m, &pass, err);
    if (st != AG_OK) { /* some layers hold the new tokens, others do not */
        for (size_t i = 0; i < n_items; i++) {
            ag_kv_cache_truncate(items[i].cache, items[i].position, NULL);
        }
    }
    return st;
}

ag_status ag_llama_forward(ag_model *m, const ag_forward_item *items, size_t n_items,
                           ag_error *err) {
    ag_sequence seqs[AG_MAX_SEQUENCES];
    size_t n_rows = 0;
    AG_TRY(plan_rows(m, items, n_items, seqs, &n_rows, err));
    AG_TRY(embed(m, items, n_items, err));
    return pass_rows(m, items, n_items, seqs, n_rows, err);
}

ag_status ag_llama_forward_row(ag_model *m, const ag_forward_item *item, ag_error *err) {
    ag_sequence seq;
    size_t n_rows = 0;
    AG_TRY(plan_rows(m, item, 1, &seq, &n_rows, err));
    return pass_rows(m, item, 1, &seq, n_rows, err);
}

ag_status ag_llama_logits(ag_model *m, size_t row0, size_t n_rows, ag_tensor *logits,
                          ag_error *err) {
    ag_tensor hidden;
    AG_TRY(ag_tensor_rows(&hidden, &m->workspace.normed, row0, n_rows, err));
    return ag_take_error(
        m->backend, ag_matmul_transposed(m->backend, logits, &hidden, &m->weights.lm_head), err);
}
