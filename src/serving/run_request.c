/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a request from its admission to its end. */
#include "constrain/constraint.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "platform/clock.h"
#include "serving/serving_impl.h"

#include <string.h>

/* ---- admission ---- */

/* Creates the session: from the prefix, or empty. */
static ag_status make_session(ag_serving *s, ag_served_request *r, ag_prefix *from, ag_error *err) {
    const size_t n = from->n;
    r->has_evicted = from->has_evicted;
    if (!from->session)
        return ag_session_create(r->p.model->model, &r->p.session, &r->session, err);
    AG_TRY(ag_prefix_acquire(&s->prefixes.store, from, &r->session, err));
    r->n_cached = r->n_read = n;
    return AG_OK;
}

static ag_status make_answers(ag_serving *s, ag_served_request *r, ag_error *err) {
    if (r->p.kind == AG_REQUEST_EMBED) return ag_embedding_begin(r, err);
    r->answers = ag_calloc(r->p.n_answers, sizeof *r->answers);
    if (!r->answers) return AG_FAIL(err, NOMEM, "list of %zu answers", r->p.n_answers);
    if (r->p.constraint)
        AG_TRY(ag_mask_group_create(&s->masks, &r->p.constraint, r->p.n_answers, &r->masks, err));
    for (size_t i = 0; i < r->p.n_answers; i++) AG_TRY(ag_answer_create(&r->answers[i], r, i, err));
    r->n_open = r->p.n_answers;
    return AG_OK;
}

static ag_status make_request(ag_serving *s, ag_served_request *r, ag_prefix *from, ag_error *err) {
    AG_TRY(make_answers(s, r, err));
    AG_TRY(make_session(s, r, from, err));
    return ag_session_begin_prompt(r->session, r->p.n_prompt - r->n_read, err);
}

/* Reserves the request's memory. The prefix must not be evicted for it. */
static ag_status reserve_memory(ag_serving *s, ag_served_request *r, ag_prefix *from,
                                ag_error *err) {
    AG_TRY(ag_memory_budget_plan_request(&s->budget, r, err));
    /* A policy copies shared blocks. Otherwise shared blocks need no memory. */
    const uint64_t shared = r->is_managed ? 0 : ag_prefix_shared_bytes(from);
    const uint64_t of_constraint =
        r->p.constraint ? r->constraint_reserved - ag_constraint_shared_bytes(r->p.constraint) : 0;
    const uint64_t bytes = r->kv_reserved + r->fixed_reserved + of_constraint;
    if (from->entry) from->entry->pinned = true;
    ag_status st = ag_memory_budget_reserve(&s->budget, bytes > shared ? bytes - shared : 0,
                                            r->p.model, "the request", err);
    if (from->entry) from->entry->pinned = false;
    return st;
}

/* Turns AG_NOMEM into AG_BUSY while other requests run: they will free memory. */
static ag_status busy_if_others_run(const ag_serving *s, ag_status st) {
    return st == AG_NOMEM && s->queue.running ? AG_BUSY : st;
}

ag_status ag_request_begin(ag_serving *s, ag_served_request *r, ag_error *err) {
    ag_served_model *m = r->p.model;
    ag_status st = ag_served_model_ensure_loaded(s, m, r->submitted_at, &r->swap_wait_s, err);
    r->awaits_load = st == AG_BUSY && s->loader.model;
    /* The load itself was tried and failed: the end of other requests changes nothing. */
    if (st != AG_OK && m->failed_at > r->submitted_at) return st;
    if (st != AG_OK) return busy_if_others_run(s, st);
    ag_prefix from;
    st = ag_prefix_find(s, r, &from, err);
    r->awaits_prefix = st == AG_BUSY;
    if (st != AG_OK) return st;
    st = reserve_memory(s, r, &from, err);
    if (st == AG_NOMEM && from.session &&
        !s->queue.running) { /* the prefix itself takes too much */
        from = (ag_prefix){0};
        st = reserve_memory(s, r, &from, err);
    }
    if (st != AG_OK) return busy_if_others_run(s, st);
    r->started_at = ag_now_s();
    st = make_request(s, r, &from, err);
    if (st != AG_OK) return st;
    r->has_begun = true;
    if (r->masks && r->p.max_tokens)
        ag_mask_group_start(r->masks, ag_memory_budget_constraint_limit(&s->budget, r));
    m->n_requests++;
    s->queue.n_answers += r->p.n_answers;
    r->client->n_answers += r->p.n_answers;
    s->now.n_prompt_tokens += r->p.n_prompt;
    s->now.n_cached_tokens += r->n_cached;
    ag_request_event e = {.kind = AG_REQUEST_STARTED, .id = -1};
    ag_request_send_event(r, &e);
    return AG_OK;
}

/* ---- answers ---- */

/* Copies the first n ids of the prompt; empty if out of memory. */
static ag_ids prompt_ids(const ag_served_request *r, size_t n) {
    ag_ids ids = {.data = ag_malloc(n * sizeof *ids.data), .n = n, .cap = n};
    if (!ids.data) return (ag_ids){0};
    memcpy(ids.data, r->p.prompt, n * sizeof *ids.data);
    return ids;
}

/* Caches a copy of the session at the end of the prompt if the session cannot go back there: the
 * next turn may render the answer with other tokens. */
static void cache_prompt(ag_serving *s, ag_served_request *r) {
    ag_session *fork;
    if (r->p.no_prefix || r->has_evicted || r->is_managed) return;
    if (ag_session_oldest_reachable(r->session) == 0) return;
    if (ag_session_fork(r->session, &fork, NULL) != AG_OK) return;
    ag_ids ids = prompt_ids(r, r->p.n_prompt);
    ag_prefix_cache_add(&s->prefixes, r, fork, &ids);
}

ag_status ag_request_prompt_read(ag_serving *s, ag_served_request *r, ag_error *err) {
    r->read_at = ag_now_s();
    if (r->pooled) {
        ag_session_destroy(r->session);
        r->session = NULL;
        return ag_embedding_end(r, err);
    }
    cache_prompt(s, r);
    r->fixed_reserved = 0;
    for (size_t i = 1; i < r->p.n_answers; i++)
        AG_TRY(ag_session_fork(r->session, &r->answers[i].session, err));
    r->answers[0].session = r->session;
    r->session = NULL;
    for (size_t i = 0; i < r->p.n_answers; i++) {
        ag_answer *a = &r->answers[i];
        for (size_t k = 0; k < r->p.n_prompt; k++)
            ag_sampler_accept_prompt(a->sampler, r->p.prompt[k]);
        if (r->p.max_tokens) AG_TRY(ag_answer_choose_or_wait(s, a, err));
        else AG_TRY(ag_answer_end(s, a, AG_FINISH_MAX_TOKENS, err));
    }
    return AG_OK;
}

/* ---- end ---- */

static void count_end(ag_serving *s, ag_status st) {
    if (st == AG_CANCELLED) s->now.n_cancelled++;
    else if (st == AG_NOMEM || st == AG_BUSY) s->now.n_refused++;
    else if (st != AG_OK) s->now.n_failed++;
}

/* Caches the part of the prompt that has been read. */
static void cache_partial_prompt(ag_serving *s, ag_served_request *r) {
    ag_session *session = r->session;
    ag_ids ids = {0};
    if (!r->p.no_prefix && r->has_begun) ids = prompt_ids(r, ag_session_position(session));
    r->session = NULL; /* stops counting as a running session */
    ag_prefix_cache_add(&s->prefixes, r, session, &ids);
}

void ag_request_end(ag_serving *s, ag_served_request *r, ag_status st, const ag_error *err) {
    ag_request_event e = {.kind = AG_REQUEST_ENDED, .id = -1, .status = st};
    e.swap_wait_s = r->swap_wait_s;
    ag_error error = {0};
    if (r->has_begun) {
        r->p.model->n_requests--;
        r->p.model->used_at = ag_now_s();
        s->queue.n_answers -= r->p.n_answers;
        r->client->n_answers -= r->p.n_answers;
    }
    if (r->session) cache_partial_prompt(s, r);
    for (size_t i = 0; r->has_begun && i < r->p.n_answers; i++) {
        if (!r->answers[i].ended) ag_answer_end(s, &r->answers[i], AG_FINISH_CANCELLED, NULL);
    }
    if (st != AG_OK && err) {
        error = *err;
        e.error = &error;
    }
    count_end(s, st);
    ag_serving_publish(s, true); /* a caller that gets the last event finds it in the statistics */
    ag_request_send_event(r, &e);
    ag_mutex_lock(&s->lock);
    ag_client_release(&s->queue, r->client);
    ag_mutex_unlock(&s->lock);
    ag_served_request_destroy(r);
}
