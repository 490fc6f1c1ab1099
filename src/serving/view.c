/* SPDX-License-Identifier: Apache-2.0 */
/* Cache view: lists the positions that a session's heads retain, as runs. Made on the engine
 * thread. */
#include "cache/kv_cache.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "serving/serving_impl.h"

#include <string.h>

enum { MAX_RUNS = 1 << 20 };

/* The view and its growing arrays. */
typedef struct view_builder {
    ag_cache_view view;
    ag_cache_layer_view *layers;
    ag_cache_head_view *heads;
    ag_cache_run *runs;
    ag_ids ids;
    size_t cap;          /* capacity of runs */
    uint32_t *positions; /* positions of one head, as scratch */
} view_builder;

/* Arguments of a view job. */
typedef struct view_request {
    uint64_t id;
    const char *scope;
    view_builder *out;
} view_request;

/* ---- runs ---- */

static ag_status add_run(view_builder *b, uint32_t position, uint32_t n, ag_error *err) {
    const size_t n_runs = b->view.n_runs;
    if (n_runs == MAX_RUNS)
        return AG_FAIL(err, LIMIT,
                       "session %llu is too fragmented to view: more than %d runs of positions",
                       (unsigned long long)b->view.id, MAX_RUNS);
    AG_TRY(AG_GROW(b->runs, &b->cap, n_runs + 1, err));
    b->runs[b->view.n_runs++] = (ag_cache_run){position, n};
    return AG_OK;
}

/* Adds runs of positions[n], which ascend. */
static ag_status add_runs(view_builder *b, const uint32_t *positions, uint32_t n, ag_error *err) {
    for (uint32_t i = 0, first = 0; i < n; i++) {
        if (i + 1 < n && positions[i + 1] == positions[i] + 1) continue;
        AG_TRY(add_run(b, positions[first], i + 1 - first, err));
        first = i + 1;
    }
    return AG_OK;
}

/* Adds the runs of one head. */
static ag_status add_head(view_builder *b, const ag_kv_cache *c, uint32_t layer, uint32_t kv_head,
                          ag_error *err) {
    const uint32_t n = ag_kv_cache_n_slots(c, layer, kv_head);
    ag_cache_head_view *head = &b->heads[b->view.n_heads++];
    *head = (ag_cache_head_view){.first_run = b->view.n_runs};
    if (!n) return AG_OK;
    /* Positions ascend, so the first and the last show whether any is missing. */
    const uint32_t first = ag_kv_cache_position(c, layer, kv_head, 0);
    const uint32_t last = ag_kv_cache_position(c, layer, kv_head, n - 1);
    if (last - first == n - 1) {
        AG_TRY(add_run(b, first, n, err));
    } else {
        AG_TRY(ag_kv_cache_read_positions(c, layer, kv_head, b->positions, err));
        AG_TRY(add_runs(b, b->positions, n, err));
    }
    head->n_runs = b->view.n_runs - head->first_run;
    return AG_OK;
}

/* Lets a head share the runs of the previous head if they are equal, as most policies evict the
 * same tokens from all heads. */
static void share_runs(view_builder *b) {
    if (b->view.n_heads < 2) return;
    ag_cache_head_view *head = &b->heads[b->view.n_heads - 1];
    const ag_cache_head_view *previous = head - 1;
    if (head->n_runs != previous->n_runs ||
        memcmp(b->runs + head->first_run, b->runs + previous->first_run,
               head->n_runs * sizeof *b->runs) != 0)
        return;
    b->view.n_runs = head->first_run;
    head->first_run = previous->first_run;
}

static ag_status add_layers(view_builder *b, const ag_kv_cache *c, ag_error *err) {
    size_t n_heads = 0;
    uint32_t n_layers = 0, max_slots = 1;
    for (; ag_kv_cache_layer(c, n_layers); n_layers++) {
        const uint32_t n = ag_kv_layer_length(c, n_layers);
        if (n > max_slots) max_slots = n;
        n_heads += ag_kv_cache_layer(c, n_layers)->n_kv_heads;
    }
    b->layers = ag_calloc(n_layers + 1, sizeof *b->layers);
    b->heads = ag_calloc(n_heads + 1, sizeof *b->heads);
    b->positions = ag_calloc(max_slots, sizeof *b->positions);
    if (!b->layers || !b->heads || !b->positions)
        return AG_FAIL(err, NOMEM, "view of %zu heads", n_heads);
    for (uint32_t l = 0; l < n_layers; l++) {
        const ag_kv_layer *layer = ag_kv_cache_layer(c, l);
        b->layers[l] = (ag_cache_layer_view){b->view.n_heads, layer->n_kv_heads, layer->window};
        for (uint32_t h = 0; h < layer->n_kv_heads; h++) {
            AG_TRY(add_head(b, c, l, h, err));
            share_runs(b);
        }
    }
    b->view.n_layers = n_layers;
    return AG_OK;
}

/* ---- sessions ---- */

static ag_status view_session(view_builder *b, ag_session *session, const ag_session_params *p,
                              ag_error *err) {
    const ag_kv_cache *c = ag_session_kv_cache(session);
    const ag_eviction_policy *policy = p->eviction.policy;
    const ag_eviction_stats *stats = ag_session_evictions(session);
    ag_cache_view *v = &b->view;
    v->n_tokens = ag_session_position(session);
    v->k_type = ag_kv_cache_params(c)->k_type;
    v->v_type = ag_kv_cache_params(c)->v_type;
    v->policy = policy ? policy->name : "none";
    v->budget = ag_session_kv_budget(session);
    v->n_protected = v->budget ? p->eviction.protected_prefix : 0;
    v->n_evictions = stats->n_evictions;
    v->n_evicted = stats->n_tokens;
    v->kv_bytes = ag_kv_cache_memory_usage_bytes(c);
    v->shared_bytes = ag_kv_cache_shared_bytes(c);
    return add_layers(b, c, err);
}

static ag_status copy_ids(view_builder *b, const int32_t *ids, size_t n, ag_error *err) {
    b->ids.data = ag_malloc((n + 1) * sizeof *ids);
    if (!b->ids.data) return AG_FAIL(err, NOMEM, "list of %zu ids", n);
    if (n) memcpy(b->ids.data, ids, n * sizeof *ids);
    b->ids.n = n;
    return AG_OK;
}

/* Views the session that reads the prompt or, after that, the one of the first open answer. */
static ag_status view_running(view_builder *b, const ag_served_request *r, ag_error *err) {
    b->view.model = r->p.model;
    b->view.is_running = true;
    if (r->session) {
        AG_TRY(copy_ids(b, r->p.prompt, ag_session_position(r->session), err));
        return view_session(b, r->session, &r->p.session, err);
    }
    for (size_t i = 0; r->answers && i < r->p.n_answers; i++) {
        const ag_answer *a = &r->answers[i];
        if (!a->session) continue;
        AG_TRY(ag_answer_tokens(a, &b->ids, err));
        return view_session(b, a->session, &r->p.session, err);
    }
    return AG_NOT_FOUND;
}

static ag_status view_entry(view_builder *b, const ag_prefix_entry *k, ag_error *err) {
    b->view.model = k->model;
    AG_TRY(copy_ids(b, k->ids.data, k->ids.n, err));
    return view_session(b, k->session, &k->params, err);
}

static ag_status view_found(const ag_serving *s, const view_request *q, ag_error *err) {
    for (const ag_served_request *r = s->queue.running; r; r = r->next) {
        if (r->id != q->id || !ag_same_text(r->p.scope, q->scope)) continue;
        const ag_status st = view_running(q->out, r, err);
        if (st != AG_NOT_FOUND) return st;
    }
    for (const ag_prefix_entry *k = s->prefixes.store.entries; k; k = k->next) {
        if (k->id == q->id && ag_same_text(k->scope, q->scope)) return view_entry(q->out, k, err);
    }
    return AG_FAIL(err, NOT_FOUND, "session %llu not found", (unsigned long long)q->id);
}

/* Runs view_found() as a job of the engine's thread; job->user is the query. */
static ag_status view_for_job(ag_serving *s, ag_serving_job *job, ag_error *err) {
    return view_found(s, job->user, err);
}

/* ---- public functions ---- */

ag_status ag_serving_view_session(ag_serving *s, uint64_t id, const char *scope,
                                  ag_cache_view **out, ag_error *err) {
    *out = NULL;
    view_builder *b = ag_calloc(1, sizeof *b);
    if (!b) return AG_FAIL(err, NOMEM, "view of a session");
    view_request q = {.id = id, .scope = scope, .out = b};
    ag_serving_job job = {.run = view_for_job, .user = &q};
    b->view.id = id;
    const ag_status st = ag_serving_run_job(s, &job, err);
    ag_free(b->positions);
    b->positions = NULL;
    b->view.layers = b->layers;
    b->view.heads = b->heads;
    b->view.runs = b->runs;
    b->view.ids = b->ids.data;
    b->view.n_ids = b->ids.n;
    if (st != AG_OK) ag_cache_view_destroy(&b->view);
    else *out = &b->view;
    return st;
}

/* The view is the first member of its builder. */
void ag_cache_view_destroy(ag_cache_view *v) {
    view_builder *b = (view_builder *)v;
    if (!b) return;
    ag_free(b->layers);
    ag_free(b->heads);
    ag_free(b->runs);
    ag_ids_free(&b->ids);
    ag_free(b);
}
