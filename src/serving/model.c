/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/model.h"

#include "constrain/vocab.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "platform/clock.h"

#include <string.h>

void ag_served_model_destroy(ag_served_model *m) {
    if (!m) return;
    ag_constraint_vocab_destroy(m->vocab);
    ag_mutex_destroy(&m->vocab_lock);
    ag_replay_request_free(&m->replay);
    ag_chat_format_destroy(m->format);
    ag_tokenizer_destroy(m->tokenizer);
    while (m->aliases) {
        struct ag_served_model_alias *a = m->aliases;
        m->aliases = a->next;
        ag_free(a->name);
        ag_free(a);
    }
    for (size_t i = 0; m->load.tensor_types && i < m->load.n_tensor_types; i++)
        ag_free((void *)(uintptr_t)m->load.tensor_types[i].pattern);
    ag_free((void *)(uintptr_t)m->load.tensor_types);
    ag_free(m->path);
    ag_free(m->name);
    ag_free(m);
}

bool ag_served_model_has_name(const ag_served_model *m, const char *name) {
    if (!strcmp(m->name, name)) return true;
    for (const struct ag_served_model_alias *a = m->aliases; a; a = a->next) {
        if (!strcmp(a->name, name)) return true;
    }
    return false;
}

void ag_served_model_unload(ag_served_model *m) {
    ag_model_destroy(m->model);
    m->model = NULL;
    m->base_bytes = 0;
    atomic_store(&m->is_loaded, false);
}

bool ag_model_needs_prompt_copies(const ag_model_info *info) {
    bool any = info->state_bytes > 0;
    for (uint32_t k = 0; k < info->n_layer_kinds; k++) any = any || info->layer_kinds[k].window;
    return any;
}

bool ag_served_model_is_loaded(const ag_served_model *m) { return atomic_load(&m->is_loaded); }

bool ag_served_model_is_broken(const ag_served_model *m) { return atomic_load(&m->is_broken); }

double ag_served_model_expires_in(const ag_served_model *m) {
    const double keep = atomic_load(&m->keep_alive_s);
    if (atomic_load(&m->n_requests)) return keep;
    const double seconds = atomic_load(&m->used_at) + keep - ag_now_s();
    return seconds > 0 ? seconds : 0;
}

const char *ag_served_model_name(const ag_served_model *m) { return m->name; }
const ag_model_info *ag_served_model_info(const ag_served_model *m) { return &m->info; }
const ag_tokenizer *ag_served_model_tokenizer(const ag_served_model *m) { return m->tokenizer; }
const ag_chat_format *ag_served_model_format(const ag_served_model *m) { return m->format; }
const ag_sampler_params *ag_served_model_sampling(const ag_served_model *m) { return &m->sampling; }
const ag_session_params *ag_served_model_session(const ag_served_model *m) { return &m->session; }

ag_status ag_served_model_vocab(ag_served_model *m, const ag_constraint_vocab **out,
                                ag_error *err) {
    const ag_json_masks *json;
    ag_status st = AG_OK;
    *out = NULL;
    if (!m->tokenizer) return AG_FAIL(err, NOT_FOUND, "%s: the model has no tokenizer", m->name);
    ag_mutex_lock(&m->vocab_lock);
    if (!m->vocab) {
        st = ag_constraint_vocab_create(m->tokenizer, m->info.n_vocab, m->info.eos_ids,
                                        m->info.n_eos, &m->vocab, err);
    }
    /* Made here, so that no request is charged for it. */
    if (st == AG_OK) st = ag_constraint_vocab_json(m->vocab, AG_JSON_NEAT, &json, err);
    *out = m->vocab;
    ag_mutex_unlock(&m->vocab_lock);
    return st;
}
