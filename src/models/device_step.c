/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the entire program for one token, on backends that can. */
#include "cache/eviction/score_sums.h"
#include "core/backend_ops.h"
#include "core/fail.h"
#include "models/model_impl.h"

/* Returns whether the host needs no result between operations: no attention of chunks, no reloaded
 * blocks, no copies of protected keys. */
static bool is_step(const ag_sequence *item) {
    const ag_attention_scores *scores = &item->scores;
    return item->n == 1 && !scores->chunks && !scores->reloader &&
           item->position >= ag_kv_cache_params(item->cache)->n_protected;
}

ag_status ag_model_device_step(ag_model *m, ag_sequence *item, ag_tensor *logits,
                               float *host_logits, ag_top_k *top, bool *done, ag_error *err) {
    *done = false;
    if (!m->step_seqs || !is_step(item)) return AG_OK;
    AG_TRY(ag_kv_cache_own_next(item->cache, err));
    AG_TRY(ag_embedding_lookup(&m->embedding, m->workspace.host_rows, item->ids, 1, err));
    for (uint32_t i = 0; i < m->program->n_attend; i++) {
        ag_attention_seq *seq = &m->step_seqs[i];
        *seq = (ag_attention_seq){.n_rows = 1};
        ag_kv_cache_get_view(item->cache, i, &seq->kv);
        ag_score_sums_set_layer(&item->scores, i, seq);
        if (seq->scores) return AG_OK; /* the host adds them */
    }
    const ag_step step = {
        .program = m->program,
        .weights = m->bound,
        .inv_freq = m->inv_freq,
        .seqs = m->step_seqs,
        .embedding = m->workspace.host_rows,
        .position = item->position,
        .is_long = item->is_long,
        .hadamard = ag_kv_cache_params(item->cache)->hadamard,
        .logits = logits,
        .host_logits = host_logits,
        .top = top,
    };
    const ag_status st = m->backend->ops->run_program(m->backend, &step, done);
    if (*done) ag_kv_cache_appended(item->cache, item->position);
    return ag_take_error(m->backend, st, err);
}
