/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding in one step, where the backend can: the model and the cache laid out for it. */
#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/fail.h"
#include "models/model_impl.h"

static const ag_tensor *if_there(const ag_tensor *t) { return t->buffer ? t : NULL; }

/* Nothing on the way is brought to the host: attention weights, copies of the protected prefix. */
static bool is_step(ag_sequence *item) {
    const ag_kv_params *kv = ag_kv_cache_params(item->cache);
    const bool weights_read = ag_score_sums_on_host(item->scores.sums) || item->scores.chunks;
    return item->n == 1 && !weights_read && !item->scores.recall &&
           item->position >= kv->n_protected;
}

/* A step's description knows layers of attention with keys and values of their own. */
static bool has_step_layers(const ag_model *m) {
    for (uint32_t k = 0; k < m->spec.n_kinds; k++) {
        const ag_layer_spec *l = &m->spec.kinds[k];
        if (l->mixer != AG_MIXER_ATTENTION || l->shares_kv || l->v_norm || l->out_gate)
            return false;
    }
    return !m->spec.layer_input && !m->spec.out_scale;
}

static ag_status list_layers(ag_model *m, ag_error *err) {
    const uint32_t n = m->weights.n_layers;
    if (m->decode.layers) return AG_OK;
    m->decode.layers = ag_calloc(n, sizeof *m->decode.layers);
    m->decode.views = ag_calloc(n, sizeof *m->decode.views);
    if (!m->decode.layers || !m->decode.views) {
        ag_model_device_step_release(m);
        return AG_FAIL(err, NOMEM, "a list of %u layers", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        const ag_layer *l = &m->weights.layers[i];
        const ag_layer_spec *kind = ag_spec_layer(&m->spec, i);
        m->decode.layers[i] = (ag_decode_layer){
            .attention_norm = if_there(&l->of[AG_LT_ATTENTION_NORM]),
            .ffn_norm = if_there(&l->of[AG_LT_FFN_NORM]),
            .wq = &l->of[AG_LT_WQ],
            .wk = &l->of[AG_LT_WK],
            .wv = &l->of[AG_LT_WV],
            .wo = &l->of[AG_LT_WO],
            .w_gate = &l->of[AG_LT_GATE],
            .w_up = &l->of[AG_LT_UP],
            .w_down = &l->of[AG_LT_DOWN],
            .bq = if_there(&l->of[AG_LT_BQ]),
            .bk = if_there(&l->of[AG_LT_BK]),
            .bv = if_there(&l->of[AG_LT_BV]),
            .bo = if_there(&l->of[AG_LT_BO]),
            .b_gate = if_there(&l->of[AG_LT_BIAS_GATE]),
            .b_up = if_there(&l->of[AG_LT_BIAS_UP]),
            .b_down = if_there(&l->of[AG_LT_BIAS_DOWN]),
            .q_norm = if_there(&l->of[AG_LT_Q_NORM]),
            .k_norm = if_there(&l->of[AG_LT_K_NORM]),
            .post_attention_norm = if_there(&l->of[AG_LT_POST_ATTENTION_NORM]),
            .post_ffn_norm = if_there(&l->of[AG_LT_POST_FFN_NORM]),
            .n_heads = kind->n_heads,
            .scale = kind->scale,
            .softcap = kind->softcap,
            .window = kind->window,
            .activation = kind->activation,
        };
    }
    return AG_OK;
}

void ag_model_device_step_release(ag_model *m) {
    ag_free(m->decode.layers);
    ag_free(m->decode.views);
    m->decode.layers = NULL;
    m->decode.views = NULL;
}

ag_status ag_model_device_step(ag_model *m, ag_sequence *item, ag_tensor *logits,
                               float *host_logits, ag_top_k *top, bool *done, ag_error *err) {
    *done = false;
    if (!m->backend->ops->decode_step || !is_step(item) || !has_step_layers(m)) return AG_OK;
    AG_TRY(list_layers(m, err));
    AG_TRY(ag_kv_cache_own_next(item->cache, err));
    AG_TRY(ag_embedding_lookup(&m->embedding, m->workspace.host_rows, item->ids, 1, err));
    for (uint32_t l = 0; l < m->weights.n_layers; l++) {
        ag_decode_layer *layer = &m->decode.layers[l];
        layer->inv_freq = ag_model_rope(m, l, item->is_long, &layer->rope_factor);
        /* The workspace moves when it grows. */
        layer->visible_from = ag_model_visible_from(m, m->spec.kind_of[l]);
        ag_kv_cache_get_view(item->cache, l, &m->decode.views[l]);
    }
    ag_decode_step step = {
        .layers = m->decode.layers,
        .n_layers = m->weights.n_layers,
        .norm = &m->weights.norm,
        .lm_head = &m->weights.lm_head,
        .eps = ag_spec_eps(&m->spec),
        .logit_softcap = m->spec.logit_softcap,
        .query_periods = m->spec.query_beta != 0 ? item->position / m->spec.query_period : 0,
        .hadamard = ag_kv_cache_params(item->cache)->hadamard,
        .embedding = m->workspace.host_rows,
        .position = item->position,
        .positions = m->workspace.positions,
        .rows = &m->stream,
        .kv = m->decode.views,
        .logits = logits,
        .host_logits = host_logits,
        .top = top,
    };
    ag_score_sums_of_step(&item->scores, &step);
    AG_TRY(ag_take_error(m->backend, ag_try_decode_step(m->backend, &step, done), err));
    if (*done) ag_kv_cache_appended(item->cache, item->position);
    return AG_OK;
}
