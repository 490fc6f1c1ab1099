/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding in one step, where the backend can: the model and the cache laid out for it. */
#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/fail.h"
#include "models/llama_model.h"

#include <math.h>

static bool has_ffn_biases(const ag_llama_layer *l) {
    return l->b_gate.buffer || l->b_up.buffer || l->b_down.buffer;
}

static const ag_tensor *if_there(const ag_tensor *t) { return t->buffer ? t : NULL; }

/* Nothing on the way is brought to the host: attention weights, copies of the protected prefix. */
static bool is_step(const ag_forward_item *item) {
    const ag_kv_params *kv = ag_kv_cache_params(item->cache);
    const bool weights_read = ag_score_sums_on_host(item->scores.sums);
    return item->n == 1 && !weights_read && item->position >= kv->n_protected;
}

/* Without what only the operations know how to do: attention weights for a policy, biases of the
 * feed-forward. */
static bool is_plain(const ag_model *m, const ag_forward_item *item) {
    if (item->scores.sums) return false;
    for (uint32_t l = 0; l < m->weights.n_layers; l++) {
        if (has_ffn_biases(&m->weights.layers[l])) return false;
    }
    return true;
}

static ag_status list_layers(ag_model *m, ag_error *err) {
    const uint32_t n = m->weights.n_layers;
    if (m->decode.layers) return AG_OK;
    m->decode.layers = ag_calloc(n, sizeof *m->decode.layers);
    m->decode.views = ag_calloc(n, sizeof *m->decode.views);
    if (!m->decode.layers || !m->decode.views) {
        ag_llama_decode_release(m);
        return AG_FAIL(err, NOMEM, "a list of %u layers", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        const ag_llama_layer *l = &m->weights.layers[i];
        m->decode.layers[i] = (ag_decode_layer){
            .attention_norm = &l->attention_norm,
            .ffn_norm = &l->ffn_norm,
            .wq = &l->wq,
            .wk = &l->wk,
            .wv = &l->wv,
            .wo = &l->wo,
            .w_gate = &l->w_gate,
            .w_up = &l->w_up,
            .w_down = &l->w_down,
            .bq = if_there(&l->bq),
            .bk = if_there(&l->bk),
            .bv = if_there(&l->bv),
            .bo = if_there(&l->bo),
        };
    }
    return AG_OK;
}

void ag_llama_decode_release(ag_model *m) {
    ag_free(m->decode.layers);
    ag_free(m->decode.views);
    m->decode.layers = NULL;
    m->decode.views = NULL;
}

/* The operations of a step, for a backend that may repeat them. */
typedef struct by_operations {
    ag_model *model;
    const ag_forward_item *item;
    ag_tensor *logits;
    ag_error *err;
    bool called; /* what went wrong is in err */
} by_operations;

static ag_status run_operations(void *user) {
    by_operations *o = user;
    o->called = true;
    AG_TRY(ag_llama_forward_row(o->model, o->item, o->err));
    return ag_llama_logits(o->model, 0, 1, o->logits, o->err);
}

static ag_status run_or_repeat(by_operations *o, const ag_decode_step *step, bool *done) {
    ag_backend *be = o->model->backend;
    ag_repeat how;
    ag_status st = ag_repeat_step(be, step, run_operations, o, &how);
    if (st != AG_OK) return o->called ? st : ag_take_error(be, st, o->err);
    *done = how != AG_REPEAT_NO;
    if (how == AG_REPEAT_REPLAYED) ag_kv_cache_appended(o->item->cache, o->item->position);
    if (!*done || !step->host_logits) return AG_OK;
    return ag_buffer_download(step->host_logits, step->logits->buffer, step->logits->offset,
                              ag_tensor_bytes(step->logits), o->err);
}

ag_status ag_llama_decode(ag_model *m, const ag_forward_item *item, ag_tensor *logits,
                          float *host_logits, ag_row_top *top, bool *done, ag_error *err) {
    const ag_backend_ops *ops = m->backend->ops;
    *done = false;
    if ((!ops->decode_step && !ops->repeat_step) || !is_step(item)) return AG_OK;
    AG_TRY(list_layers(m, err));
    AG_TRY(ag_kv_cache_own_next(item->cache, err));
    AG_TRY(ag_embedding_lookup(&m->embedding, m->workspace.host_rows, item->ids, 1, err));
    for (uint32_t l = 0; l < m->weights.n_layers; l++) {
        ag_kv_cache_get_view(item->cache, l, &m->decode.views[l]);
    }
    ag_decode_step step = {
        .layers = m->decode.layers,
        .n_layers = m->weights.n_layers,
        .n_heads = m->info.n_heads,
        .norm = &m->weights.norm,
        .lm_head = &m->weights.lm_head,
        .inv_freq = &m->inv_freq,
        .eps = m->info.norm_eps,
        .scale = 1.0f / sqrtf((float)m->info.head_dim),
        .hadamard = ag_kv_cache_params(item->cache)->hadamard,
        .embedding = m->workspace.host_rows,
        .position = item->position,
        .positions = m->workspace.positions,
        .rows = &m->workspace.residual,
        .kv = m->decode.views,
        .logits = logits,
        .host_logits = host_logits,
        .top = top,
    };
    ag_score_sums_of_step(&item->scores, &step);
    if (is_plain(m, item)) {
        AG_TRY(ag_take_error(m->backend, ag_decode_whole(m->backend, &step, done), err));
    }
    if (*done) {
        ag_kv_cache_appended(item->cache, item->position);
        return AG_OK;
    }
    by_operations o = {.model = m, .item = item, .logits = logits, .err = err};
    ag_status st = run_or_repeat(&o, &step, done);
    /* The token may have been counted before something failed. */
    if (st != AG_OK) ag_kv_cache_truncate(item->cache, item->position, NULL);
    return st;
}
