/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics and the list of sessions: the engine thread publishes copies for other threads. */
#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/buffer_ops.h"
#include "platform/clock.h"
#include "platform/process_memory.h"
#include "serving/serving_impl.h"

#include <antigravity/kv_cache.h>
#include <antigravity/process.h>
#include <string.h>

/* Minimum interval while requests run. */
static const double PUBLISH_EVERY_S = 0.02;

struct ag_session_list {
    size_t n_users; /* references by the engine and by readers; guarded by the engine's mutex */
    size_t n, cap;
    ag_resident_session *sessions; /* [n]; scopes are owned copies */
};

void ag_session_list_release(ag_serving *s, ag_session_list *list) {
    if (!list) return;
    ag_mutex_lock(&s->lock);
    const bool last = --list->n_users == 0;
    ag_mutex_unlock(&s->lock);
    if (!last) return;
    for (size_t i = 0; i < list->n; i++) ag_free((void *)(uintptr_t)list->sessions[i].scope);
    ag_free(list->sessions);
    ag_free(list);
}

/* ---- sessions ---- */

static ag_resident_session *add_session(ag_session_list *list, const ag_resident_session *h,
                                        const char *scope) {
    ag_resident_session *to = &list->sessions[list->n++];
    *to = *h;
    to->scope = scope ? ag_strdup(scope) : NULL;
    return to;
}

static void add_running(ag_session_list *list, ag_session *session, const ag_served_request *r) {
    if (!session || list->n == list->cap) return;
    const ag_resident_session h = ag_resident_session_of(session, r->id, r->p.model, &r->p.session);
    add_session(list, &h, r->p.scope)->is_running = true;
}

/* Returns NULL if out of memory. */
static ag_session_list *list_sessions(ag_serving *s) {
    const double now = ag_now_s();
    ag_session_list *list = ag_calloc(1, sizeof *list);
    if (!list) return NULL;
    list->n_users = 1;
    list->cap = s->queue.n_answers + s->prefixes.store.n_entries;
    list->sessions = ag_calloc(list->cap + 1, sizeof *list->sessions);
    if (!list->sessions) list->cap = 0;
    for (const ag_served_request *r = s->queue.running; r; r = r->next) {
        add_running(list, r->session, r);
        for (size_t i = 0; i < r->p.n_answers; i++) add_running(list, r->answers[i].session, r);
    }
    for (const ag_prefix_entry *k = s->prefixes.store.entries; k && list->n < list->cap;
         k = k->next)
        add_session(list, &k->resident, k->scope)->idle_s = now - k->used_at;
    return list;
}

/* ---- statistics ---- */

static void count_requests(ag_serving *s) {
    ag_serving_stats *now = &s->now;
    now->n_running = 0;
    now->kv_bytes = 0;
    for (const ag_served_request *r = s->queue.running; r; r = r->next) now->n_running++;
    now->n_prefix_entries = (uint32_t)s->prefixes.store.n_entries;
    now->prefix_bytes = ag_prefix_cache_bytes(&s->prefixes);
    now->n_prefix_written = s->prefixes.files.n_written;
    now->n_prefix_read = s->prefixes.files.n_read;
    now->n_prefix_failed = s->prefixes.files.n_failed;
}

/* Updates the bytes of weights, caches, workspaces and the process. */
static void count_memory(ag_serving *s) {
    ag_serving_stats *now = &s->now;
    const ag_memory *mem = ag_backend_memory(s->backend);
    const uint64_t in_use = ag_memory_bytes_in_use(mem);
    ag_memory_usage usage;
    now->weight_bytes = now->workspace_bytes = 0;
    for (const ag_served_model *m = s->models.first; m; m = m->next) {
        if (!m->model) continue;
        now->weight_bytes += ag_model_memory_bytes(m->model);
        now->workspace_bytes += m->base_bytes - ag_model_memory_bytes(m->model);
    }
    now->weight_bytes += ag_model_loader_resident(&s->loader);
    const uint64_t base = now->weight_bytes + now->workspace_bytes;
    now->kv_bytes = in_use > base ? in_use - base : 0;
    now->device_bytes = mem->ops->available ? in_use : 0;
    now->memory_limit = s->params.memory_limit;
    now->memory_used = ag_memory_budget_used(&s->budget);
    if (now->memory_used > now->memory_peak) now->memory_peak = now->memory_used;
    now->caller_bytes = s->params.caller_bytes ? s->params.caller_bytes(s->params.caller_user) : 0;
    now->file_bytes = ag_process_memory(&usage) == AG_OK ? usage.file : 0;
}

void ag_serving_publish(ag_serving *s, bool always) {
    const double now = ag_now_s();
    if (!always && now - s->published_at < PUBLISH_EVERY_S) return;
    s->published_at = now;
    count_requests(s);
    count_memory(s);
    ag_session_list *list = list_sessions(s), *old;
    ag_mutex_lock(&s->lock);
    s->stats = s->now;
    old = s->sessions;
    s->sessions = list;
    ag_mutex_unlock(&s->lock);
    ag_session_list_release(s, old);
}

/* Updates memory figures to now: the process also grows and shrinks while the engine sleeps. */
static void refresh_memory(ag_serving *s, ag_serving_stats *out) {
    ag_memory_usage usage;
    if (ag_process_memory(&usage) != AG_OK) return;
    out->memory_used = usage.anonymous + ag_process_shared_bytes();
    if (!s->params.backend.zero_copy) out->memory_used += out->device_bytes;
    out->file_bytes = usage.file;
    if (s->max_published < out->memory_peak) s->max_published = out->memory_peak;
    if (s->max_published < out->memory_used) s->max_published = out->memory_used;
    out->memory_peak = s->max_published;
}

void ag_serving_get_stats(ag_serving *s, ag_serving_stats *out) {
    ag_mutex_lock(&s->lock);
    *out = s->stats;
    refresh_memory(s, out);
    out->n_waiting = s->queue.n_waiting;
    out->n_requests = s->queue.n_submitted;
    out->n_refused += s->queue.n_rejected;
    ag_mutex_unlock(&s->lock);
    out->n_models_loaded = 0;
    for (const ag_served_model *m = s->models.first; m; m = m->next)
        out->n_models_loaded += ag_served_model_is_loaded(m);
}

void ag_serving_each_session(ag_serving *s, bool (*each)(void *user, const ag_resident_session *h),
                             void *user) {
    ag_mutex_lock(&s->lock);
    ag_session_list *list = s->sessions;
    if (list) list->n_users++;
    ag_mutex_unlock(&s->lock);
    for (size_t i = 0; list && i < list->n && each(user, &list->sessions[i]); i++) {}
    ag_session_list_release(s, list);
}
