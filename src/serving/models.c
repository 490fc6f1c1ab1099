/* SPDX-License-Identifier: Apache-2.0 */
/* Models by name: adds and removes them, and loads their weights when a request needs them. */
#include "cache/spill.h"
#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/fail.h"
#include "models/model_impl.h"
#include "platform/clock.h"
#include "serving/serving_impl.h"
#include "session/session_impl.h"

#include <math.h>
#include <string.h>

/* ---- metadata ---- */

static ag_status copy_load_params(ag_served_model *m, const ag_model_params *p, ag_error *err) {
    m->load = *p;
    m->load.tensor_types = NULL;
    if (p->n_tensor_types) {
        ag_tensor_type *types = ag_calloc(p->n_tensor_types, sizeof *types);
        m->load.tensor_types = types;
        if (!types) return AG_FAIL(err, NOMEM, "types of tensors");
        for (size_t i = 0; i < p->n_tensor_types; i++) {
            types[i] = p->tensor_types[i];
            types[i].pattern = ag_strdup(p->tensor_types[i].pattern);
            if (!types[i].pattern) return AG_FAIL(err, NOMEM, "types of tensors");
        }
    }
    return AG_OK;
}

/* Loads tokenizer and chat template. A model without them is no error, unless `jinja` is given. */
static ag_status read_tokenizer(ag_served_model *m, const char *jinja, ag_error *err) {
    ag_error absent;
    ag_status st = ag_tokenizer_load(m->path, &m->tokenizer, &absent);
    if (st == AG_NOT_FOUND && !jinja) return AG_OK;
    if (st == AG_OK) {
        st = ag_chat_format_load(m->path, m->tokenizer, jinja, &m->format, &absent);
        if (st == AG_NOT_FOUND && !jinja) return AG_OK;
    }
    if (st != AG_OK && err) *err = absent;
    return st;
}

/* Reads everything but the weights, and checks the parameters. */
static ag_status read_metadata(ag_served_model *m, const ag_served_model_params *p, ag_error *err) {
    ag_session_plan plan;
    ag_weights_plan weights;
    m->name = ag_strdup(p->name);
    m->path = ag_strdup(p->path);
    if (!m->name || !m->path) return AG_FAIL(err, NOMEM, "name of a model");
    AG_TRY(copy_load_params(m, &p->model, err));
    AG_TRY(ag_model_plan(m->engine->backend, m->path, &m->load, &m->info, &weights, err));
    m->weight_bytes = weights.bytes;
    AG_TRY(ag_session_plan_memory(&m->info, &p->session, &plan, err));
    AG_TRY(ag_spill_check(p->session.eviction.spill, m->engine->backend, err));
    AG_TRY(read_tokenizer(m, p->chat_template, err));
    m->session = p->session;
    m->default_keep_alive_s = p->keep_alive_s > 0 ? p->keep_alive_s : INFINITY;
    m->keep_alive_s = m->default_keep_alive_s;
    m->sampling = ag_sampler_defaults();
    return ag_chat_sampling_load(m->path, &m->sampling, NULL, err);
}

/* ---- names ---- */

/* NULL as name: the first model. The caller holds the mutex. */
static ag_served_model *find_named(const ag_serving *s, const char *name) {
    ag_served_model *m = s->models.first;
    while (m && (m->is_removed || (name && !ag_served_model_has_name(m, name)))) m = m->next;
    return m;
}

/* Adds the model to the list. Its name must be free. */
static ag_status list_model(ag_serving *s, ag_served_model *m, ag_error *err) {
    ag_status st = AG_OK;
    ag_mutex_lock(&s->lock);
    ag_served_model *_Atomic *end = &s->models.first;
    const size_t n = ag_serving_n_models(s);
    if (find_named(s, m->name)) {
        st = AG_FAIL(err, INVALID, "%s: another model has this name", m->name);
    } else if (n == AG_SERVING_MAX_MODELS) {
        st = AG_FAIL(err, LIMIT, "%s: cannot add the model: %zu models is the maximum", m->name, n);
    } else {
        while (*end) end = &(*end)->next;
        *end = m;
    }
    ag_mutex_unlock(&s->lock);
    return st;
}

ag_status ag_serving_add_model(ag_serving *s, const ag_served_model_params *params,
                               ag_served_model **out, ag_error *err) {
    if (out) *out = NULL;
    if (!params->name || !*params->name || !params->path)
        return AG_FAIL(err, INVALID, "name and path of a model must be set");
    ag_served_model *m = ag_calloc(1, sizeof *m);
    if (!m) return AG_FAIL(err, NOMEM, "model");
    m->engine = s;
    ag_mutex_init(&m->vocab_lock);
    ag_status st = read_metadata(m, params, err);
    if (st == AG_OK && s->params.replay_share > 0 && m->tokenizer)
        st = ag_replay_request_make(m->tokenizer, m->format, &m->replay, err);
    if (st == AG_OK) st = list_model(s, m, err);
    if (st != AG_OK) {
        ag_served_model_destroy(m);
    } else if (out) {
        *out = m;
    }
    return st;
}

ag_status ag_serving_add_alias(ag_serving *s, ag_served_model *m, const char *name, ag_error *err) {
    if (!name || !*name) return AG_FAIL(err, INVALID, "the alias of a model is empty");
    struct ag_served_model_alias *a = ag_calloc(1, sizeof *a);
    char *copy = ag_strdup(name);
    ag_status st = a && copy ? AG_OK : AG_FAIL(err, NOMEM, "name of a model");
    ag_mutex_lock(&s->lock);
    if (st == AG_OK && find_named(s, name))
        st = AG_FAIL(err, INVALID, "%s: another model has this name", name);
    if (st == AG_OK) {
        *a = (struct ag_served_model_alias){.next = m->aliases, .name = copy};
        m->aliases = a;
    }
    ag_mutex_unlock(&s->lock);
    if (st == AG_OK) return AG_OK;
    ag_free(copy);
    ag_free(a);
    return st;
}

ag_served_model *ag_serving_model(ag_serving *s, const char *name) {
    ag_mutex_lock(&s->lock);
    ag_served_model *m = find_named(s, name);
    ag_mutex_unlock(&s->lock);
    return m;
}

size_t ag_serving_n_models(const ag_serving *s) {
    size_t n = 0;
    for (const ag_served_model *m = s->models.first; m; m = m->next) n += !m->is_removed;
    return n;
}

ag_served_model *ag_serving_model_at(ag_serving *s, size_t i) {
    ag_served_model *m = s->models.first;
    while (m && (m->is_removed || i--)) m = m->next;
    return m;
}

void ag_serving_remove_model(ag_serving *s, ag_served_model *m) {
    ag_mutex_lock(&s->lock);
    m->is_removed = true;
    ag_mutex_unlock(&s->lock);
    ag_serving_keep_alive(s, m, 0);
}

/* ---- weights ---- */

/* Reserves what the largest step needs besides the workspace, so that no step allocates. */
static ag_status reserve_steps(ag_serving *s, ag_served_model *m, ag_error *err) {
    ag_session_params p = m->session;
    ag_session *session;
    p.prefill_chunk = ag_prompt_chunk(&s->params);
    AG_TRY(ag_session_create(m->model, &p, &session, err));
    ag_status st = ag_session_reserve_rows(session, ag_prompt_chunk(&s->params), err);
    ag_session_destroy(session);
    return st;
}

/* Returns the bytes in use, without those of waiting requests and of the caller, which change
 * during a load. */
static uint64_t own_bytes(const ag_serving *s) {
    const ag_serving_params *p = &s->params;
    const uint64_t used = ag_memory_budget_used(&s->budget), wait = s->queue.waiting_bytes;
    const uint64_t others = wait + (p->caller_bytes ? p->caller_bytes(p->caller_user) : 0);
    return used > others ? used - others : 0;
}

/* Fails if the file is another one than when the model was added: requests were made for that. */
static ag_status check_info(const ag_served_model *m, const ag_model_info *loaded, ag_error *err) {
    const ag_model_info *added = &m->info;
    if (!strcmp(added->architecture, loaded->architecture) && added->n_vocab == loaded->n_vocab &&
        added->n_parameters == loaded->n_parameters && added->file_bytes == loaded->file_bytes &&
        added->max_positions == loaded->max_positions)
        return AG_OK;
    return AG_FAIL(
        err, INVALID,
        "%s: the file has changed since the server began to serve it; restart the server", m->path);
}

/* Gives the model its weights, and reserves what steps need. Then scratch_remaining is the part of
 * the planned scratch that is not resident yet. */
static ag_status use_weights(ag_serving *s, ag_served_model *m, ag_model *loaded, ag_error *err) {
    const ag_memory *mem = ag_backend_memory(s->backend);
    const uint64_t before = ag_memory_bytes_in_use(mem), used_before = own_bytes(s);
    m->model = loaded;
    ag_status st = check_info(m, &loaded->info, err);
    if (st != AG_OK) m->failed_at = INFINITY;
    if (st == AG_OK) st = reserve_steps(s, m, err);
    if (st != AG_OK) {
        ag_served_model_unload(m);
        return st;
    }
    const uint64_t workspace = ag_buffer_size(loaded->workspace.storage), used = own_bytes(s);
    const uint64_t resident = workspace + (used > used_before ? used - used_before : 0);
    m->base_bytes =
        ag_model_memory_bytes(loaded) + workspace + ag_memory_bytes_in_use(mem) - before;
    m->scratch_remaining = m->scratch_bytes > resident ? m->scratch_bytes - resident : 0;
    m->touched_rows = 0;
    m->used_at = ag_now_s();
    m->failed_at = 0;
    ag_mutex_lock(&s->lock);
    m->keep_alive_s = m->is_removed ? 0 : m->default_keep_alive_s;
    ag_mutex_unlock(&s->lock);
    atomic_store(&m->is_broken, false);
    atomic_store(&m->is_loaded, true);
    return AG_OK;
}

void ag_models_finish_load(ag_serving *s) {
    ag_model *loaded;
    ag_error err;
    ag_mutex_lock(&s->lock);
    const bool is_done = ag_model_loader_is_done(&s->loader);
    ag_mutex_unlock(&s->lock);
    if (!is_done) return;
    ag_served_model *m = s->loader.model;
    ag_status st = ag_model_loader_finish(&s->loader, &loaded, &err);
    if (st == AG_OK) st = use_weights(s, m, loaded, &err);
    if (st != AG_OK) {
        m->failed_at = fmax(m->failed_at, ag_now_s());
        m->load_error = err;
        ag_error_prefix(&m->load_error, st, "%s", m->name);
        atomic_store(&m->is_broken, st != AG_NOMEM && st != AG_CANCELLED);
        ag_backend_log(s->backend, AG_LOG_WARN, "cannot load the model %s", m->load_error.msg);
    }
    ag_serving_publish(s, true);
}

/* ---- swaps ---- */

double ag_serving_swap_wait(const ag_serving *s) {
    const double wait = atomic_load(&s->load_times[0]) + s->params.swap_period_s - ag_now_s();
    return wait > 0 && s->params.swap_period_s > 0 ? wait : 0;
}

static void count_load(ag_serving *s) {
    atomic_store(&s->load_times[0], atomic_load(&s->load_times[1]));
    atomic_store(&s->load_times[1], ag_now_s());
}

static bool has_other_weights(const ag_serving *s) {
    for (const ag_served_model *m = s->models.first; m; m = m->next)
        if (m->model) return true;
    return false;
}

/* Reserves memory for the weights. Frees those of other models, unless *swap_wait_s becomes
 * positive. */
static ag_status reserve_weights(ag_serving *s, ag_served_model *m, double *swap_wait_s,
                                 ag_error *err) {
    const double wait = ag_serving_swap_wait(s);
    s->budget.keeps_weights = wait > 0;
    const ag_status st = ag_memory_budget_reserve_weights(&s->budget, m, err);
    s->budget.keeps_weights = false;
    if (st != AG_NOMEM || wait <= 0 || !has_other_weights(s)) return st;
    *swap_wait_s = wait;
    return AG_FAIL(err, BUSY,
                   "%s: the model does not fit beside those in memory, and %d models were loaded "
                   "in the last %g s; retry in %.0f s, or raise the memory limit",
                   m->name, AG_SERVING_MAX_LOADS, s->params.swap_period_s, ceil(wait));
}

ag_status ag_served_model_ensure_loaded(ag_serving *s, ag_served_model *m, double since,
                                        double *swap_wait_s, ag_error *err) {
    *swap_wait_s = 0;
    if (m->model) return AG_OK;
    if (m->failed_at > since) {
        if (err) *err = m->load_error;
        return m->load_error.status;
    }
    if (s->loader.model) return AG_FAIL(err, BUSY, "%s: a model is being loaded", m->name);
    m->scratch_bytes = ag_memory_budget_scratch(&s->budget, m, err);
    if (!m->scratch_bytes) return AG_INVALID;
    AG_TRY(reserve_weights(s, m, swap_wait_s, err));
    count_load(s);
    AG_TRY(ag_model_loader_start(&s->loader, m, m->weight_bytes, err));
    ag_models_finish_load(s);
    if (m->model) return AG_OK;
    return AG_FAIL(err, BUSY, "%s: the model is being loaded", m->name);
}

static ag_status load_for_job(ag_serving *s, ag_serving_job *job, ag_error *err) {
    double swap_wait_s;
    ag_status st = ag_served_model_ensure_loaded(s, job->model, job->since, &swap_wait_s, err);
    job->must_retry = st == AG_BUSY && swap_wait_s <= 0;
    return st;
}

ag_status ag_serving_load_model(ag_serving *s, ag_served_model *m, ag_error *err) {
    ag_serving_job job = {.run = load_for_job, .model = m, .since = ag_now_s()};
    if (m->engine != s) return AG_FAIL(err, INVALID, "model belongs to another ag_serving");
    if (m->is_removed) return AG_FAIL(err, NOT_FOUND, "%s: the model was removed", m->name);
    return ag_serving_run_job(s, &job, err);
}

/* ---- keep-alive ---- */

void ag_serving_keep_alive(ag_serving *s, ag_served_model *m, double seconds) {
    ag_mutex_lock(&s->lock);
    m->keep_alive_s = seconds > 0 ? seconds : 0;
    s->has_new_keep_alive = true;
    ag_condition_broadcast(&s->work);
    ag_mutex_unlock(&s->lock);
}

double ag_models_expiry(const ag_serving *s) {
    double first = INFINITY;
    for (const ag_served_model *m = s->models.first; m; m = m->next) {
        if (m->model && !m->n_requests) first = fmin(first, m->used_at + m->keep_alive_s);
    }
    return first;
}

void ag_models_unload_expired(ag_serving *s) {
    const double now = ag_now_s();
    for (ag_served_model *m = s->models.first; m; m = m->next) {
        if (!m->model || m->n_requests || now < m->used_at + m->keep_alive_s) continue;
        if (!ag_prefix_cache_evict_model(&s->prefixes, m))
            continue; /* sessions are being written */
        ag_served_model_unload(m);
        ag_serving_publish(s, true);
    }
}
