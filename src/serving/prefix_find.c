/* SPDX-License-Identifier: Apache-2.0 */
/* Prefix search: finds the session that a request can continue, in the store, among running
 * requests or in a file. */
#include "core/fail.h"
#include "serving/serving_impl.h"

static bool is_managed(const ag_session_params *p) {
    return p->eviction.policy || p->eviction.memory.threshold_bytes;
}

static size_t common_length(const int32_t *a, size_t n, const int32_t *b, size_t m) {
    size_t i = 0;
    while (i < n && i < m && a[i] == b[i]) i++;
    return i;
}

/* Returns how many of n common tokens can be used, given a session that has consumed `end`. The
 * last token of a prompt is always read: its logits are needed. */
static size_t usable_length(const ag_session *session, const ag_served_request *r, size_t n,
                            size_t end, bool has_evicted) {
    if (n >= r->p.n_prompt) n = r->p.n_prompt - 1;
    if (n == end) return n;
    if (has_evicted || ag_session_evictions(session)->n_evictions ||
        ag_prefix_accumulates_scores(&r->p.session))
        return 0;
    return n >= ag_session_oldest_reachable(session) ? n : 0;
}

static bool may_share(const ag_served_request *o, const ag_served_request *r) {
    return o->p.model == r->p.model && !o->p.no_prefix && ag_same_text(o->p.scope, r->p.scope) &&
           !is_managed(&r->p.session) && ag_prefix_same_params(&o->p.session, &r->p.session);
}

/* Rounds n down to full chunks if session o began at a chunk boundary: then the remaining prompt is
 * cut into the same chunks as without the prefix, and gets the same bits. */
static size_t full_chunks(const ag_serving *s, const ag_served_request *o, size_t n) {
    const size_t chunk = ag_prompt_chunk(&s->params);
    return o->n_cached % chunk || n < chunk ? n : n - n % chunk;
}

/* Returns whether forking n tokens saves work. A few tokens cost nothing in a pass with those that
 * follow. */
static bool is_worth_a_fork(const ag_served_request *r, size_t n) {
    enum { MIN_FORK_TOKENS = 32 };
    return n >= MIN_FORK_TOKENS || n + 1 == r->p.n_prompt;
}

/* Replaces *best by a longer prefix of a running request, if there is one. */
static void match_running(ag_serving *s, const ag_served_request *r, ag_prefix *best) {
    for (const ag_served_request *o = s->queue.running; o; o = o->next) {
        if (!may_share(o, r)) continue;
        ag_session *session = o->session;
        for (size_t i = 0; !session && i < o->p.n_answers; i++) session = o->answers[i].session;
        if (!session) continue;
        const size_t end = ag_session_position(session);
        const size_t read = end < o->p.n_prompt ? end : o->p.n_prompt;
        size_t n = common_length(r->p.prompt, r->p.n_prompt, o->p.prompt, read);
        n = usable_length(session, r, full_chunks(s, o, n), end, false);
        if (n > best->n && is_worth_a_fork(r, n)) *best = (ag_prefix){.session = session, .n = n};
    }
}

/* Replaces *best by a longer prefix in the store, if there is one. */
static void match_entries(ag_serving *s, const ag_served_request *r, ag_prefix *best) {
    for (ag_prefix_entry *k = s->prefixes.store.entries; k; k = k->next) {
        if (k->model != r->p.model || !ag_same_text(k->scope, r->p.scope) ||
            !ag_prefix_same_params(&k->params, &r->p.session))
            continue;
        size_t n = common_length(r->p.prompt, r->p.n_prompt, k->ids.data, k->ids.n);
        n = usable_length(k->session, r, n, k->ids.n, k->has_evicted);
        if (n <= best->n || (n != k->ids.n && !is_worth_a_fork(r, n))) continue;
        *best = (ag_prefix){.entry = k,
                            .session = k->session,
                            .n = n,
                            .is_full_match = n == k->ids.n,
                            .has_evicted =
                                k->has_evicted || ag_session_evictions(k->session)->n_evictions};
    }
}

/* From this many tokens on, waiting for another request to read them costs less than reading them
 * twice. */
enum { MIN_TOKENS_TO_WAIT_FOR = 256 };

/* Returns whether another request is reading a longer common prefix. Not for models whose sessions
 * cannot go back: they would have to be forked at that very token. */
static bool is_being_read(const ag_serving *s, const ag_served_request *r, size_t n_found) {
    if (ag_model_needs_prompt_copies(&r->p.model->info)) return false;
    for (const ag_served_request *o = s->queue.running; o; o = o->next) {
        if (!o->session || o->status != AG_OK || !may_share(o, r)) continue;
        size_t n = common_length(r->p.prompt, r->p.n_prompt - 1, o->p.prompt, o->p.n_prompt);
        n = full_chunks(s, o, n);
        if (n > ag_session_position(o->session) && n >= n_found + MIN_TOKENS_TO_WAIT_FOR)
            return true;
    }
    return false;
}

/* Starts to reload a session that shares clearly more tokens than better_than. AG_BUSY: a reload is
 * running that the request must wait for. AG_OK: no file helps, or one was reloaded already. */
static ag_status fetch_from_file(ag_serving *s, ag_served_request *r, size_t better_than,
                                 ag_error *err) {
    ag_prefix_files *files = &s->prefixes.files;
    if (!files->first) return AG_OK;
    ag_prefix_file *f = r->has_fetched ? NULL : ag_prefix_files_find(files, r, better_than);
    const bool is_own_fetch = files->fetch.file && files->fetch.request == r->id;
    if (is_own_fetch || (f && files->fetch.file))
        return AG_FAIL(err, BUSY, "the request must wait: a session is being reloaded from a file");
    if (!f) return AG_OK;
    const ag_status st = ag_memory_budget_reserve(&s->budget, ag_prefix_file_memory_bytes(f),
                                                  r->p.model, "the saved session", err);
    if (st == AG_BUSY) return st;
    r->has_fetched = true;
    if (st != AG_OK ||
        !ag_prefix_files_begin_fetch(files, r, f, ag_request_queue_new_id(&s->queue)))
        return AG_OK; /* the request reads the tokens itself */
    return AG_FAIL(err, BUSY, "the request must wait: a session is being reloaded from a file");
}

ag_status ag_prefix_find(ag_serving *s, ag_served_request *r, ag_prefix *out, ag_error *err) {
    *out = (ag_prefix){0};
    /* Every token of a scored prompt needs the logits of the token before it. */
    if (r->p.no_prefix || r->p.prompt_logprobs) return AG_OK;
    match_entries(s, r, out);
    match_running(s, r, out);
    const size_t n_found = out->n;
    if (out->entry) out->entry->pinned = true; /* memory for the reload must not be taken from it */
    const ag_status st = fetch_from_file(s, r, n_found, err);
    if (out->entry) out->entry->pinned = false;
    if (st != AG_OK) return st;
    if (r->may_wait_for_prefix && is_being_read(s, r, n_found))
        return AG_FAIL(err, BUSY, "the request must wait: another one is reading the same prefix");
    /* Keeps the entry in memory until the request has begun. */
    if (out->entry && out->entry->state == AG_PREFIX_QUEUED)
        ag_prefix_store_set_state(&s->prefixes.store, out->entry, AG_PREFIX_RESIDENT);
    return AG_OK;
}
