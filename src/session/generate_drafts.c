/* SPDX-License-Identifier: Apache-2.0 */
/* Speculative decoding: feeds a draft with the chosen token, and samples from every row as in
 * one-by-one decoding. Tokens after the first difference are truncated. */
#include "core/backend_ops.h"
#include "core/fail.h"
#include "platform/clock.h"
#include "session/generation.h"
#include "text/sampler_filter.h"

enum { DEFAULT_DRAFT = 7 }; /* 8 rows with the chosen token: kernels work on groups of 4 */
enum { MAX_LOOKUP_TOKENS = 1 << 16, MIN_LOOKUP_TOKENS = 1 << 12 };

/* ---- preparation ---- */

/* Returns the tokens that the n-gram lookup stores. With evictions the text outgrows the cache. */
static size_t lookup_tokens(const ag_session_params *p) {
    const size_t n = p->max_seq_len;
    if (n > MAX_LOOKUP_TOKENS) return MAX_LOOKUP_TOKENS;
    return ag_eviction_is_managed(&p->eviction) && n < MIN_LOOKUP_TOKENS ? MIN_LOOKUP_TOKENS : n;
}

size_t ag_draft_tables_bytes(const ag_session_params *params) {
    return ag_speculation_bytes(lookup_tokens(params));
}

static size_t draft_limit(const ag_generate_params *p) {
    const size_t max = AG_SPECULATE_ROWS - 1;
    if (!p->draft_max) return DEFAULT_DRAFT;
    return p->draft_max < max ? p->draft_max : max;
}

/* Sets the draft model. It is kept for the next generation, as it has read the text. */
static ag_status use_draft_model(ag_speculation *sp, const ag_session *s, ag_session *draft,
                                 ag_error *err) {
    if (draft == s)
        return AG_FAIL(err, INVALID, "draft is the session itself: it must be another session");
    if (sp->model && draft && ag_draft_model_is_of(sp->model, draft->serial)) return AG_OK;
    ag_draft_model_destroy(sp->model);
    sp->model = NULL;
    if (!draft) return AG_OK;
    return ag_draft_model_create(draft, draft->serial, draft->params.prefill_chunk,
                                 s->model->info.n_vocab, &sp->model, err);
}

ag_status ag_generation_begin_drafts(ag_generation *g, const int32_t *prompt, size_t n,
                                     ag_error *err) {
    const ag_generate_params *p = g->params;
    ag_session *s = g->session;
    const size_t rows = draft_limit(p) + 1;
    /* On devices the size of a step changes the last bits of logits: measured times would change
     * the text. */
    const bool measures = p->speculate == AG_SPECULATE_AUTO;
    if (p->speculate == AG_SPECULATE_OFF || p->on_logits ||
        (measures && ag_batch_invariant_rows(s->model->backend) < 2))
        return AG_OK;
    if (!s->speculation) {
        AG_TRY(ag_speculation_create(lookup_tokens(&s->params), s->state != NULL, &s->speculation,
                                     err));
    }
    g->speculation = s->speculation;
    AG_TRY(use_draft_model(g->speculation, s, p->draft, err));
    ag_speculation_sync(g->speculation, s->position - (uint32_t)n);
    for (size_t i = 0; i < n; i++) ag_speculation_push(g->speculation, prompt[i]);
    return p->max_tokens ? ag_session_reserve_rows(s, (uint32_t)rows, err) : AG_OK;
}

/* ---- step ---- */

/* Returns the longest draft whose rows have the same bits as when decoded alone, if the backend has
 * such rows, within draft_max and max_tokens. */
static size_t max_draft(const ag_generation *g) {
    const ag_generate_params *p = g->params;
    size_t n = ag_session_max_verify_rows(g->session) - 1;
    if (n > draft_limit(p)) n = draft_limit(p);
    if (p->max_tokens < 0) return n;
    const uint64_t left = (uint64_t)p->max_tokens - g->stats->n_generated;
    return left > n ? n : left ? (size_t)left - 1 : 0;
}

/* Feeds one token and chooses the next. */
static ag_status decode_one(ag_generation *g, int32_t *id, ag_error *err) {
    const int32_t fed = *id;
    const ag_step_item item = {
        .session = g->session,
        .ids = &fed,
        .n = 1,
        .phase = AG_PHASE_DECODE,
        .logits = AG_LOGITS_LAST,
        .row = g->params->on_logits,
        .row_user = g->params->on_logits_user,
        .sampler = g->params->sampler,
        .chosen = id,
    };
    AG_TRY(ag_session_step(&item, 1, err));
    AG_TRY(ag_generation_accept(g, *id, ag_session_capacity_left(g->session), err));
    if (g->speculation) ag_speculation_push_chosen(g->speculation, *id);
    return AG_OK;
}

typedef struct verification {
    ag_generation *g;
    uint32_t space;   /* capacity before the step */
    size_t n_fed;     /* tokens of the step that are now part of the text */
    ag_status status; /* result of showing the choices */
    ag_error *err;
} verification;

/* Shows and accepts a choice before the sampler continues. If the text ends here, no further choice
 * may use random numbers. If a later choice fails, this one stays shown. */
static bool show_choice(void *user, size_t i, int32_t id) {
    verification *v = user;
    ag_generation *g = v->g;
    v->n_fed = i + 1;
    v->status = ag_generation_accept(g, id, v->space - (uint32_t)v->n_fed, v->err);
    ag_speculation_push_chosen(g->speculation, id);
    return v->status == AG_OK && !g->ended && !atomic_load(&g->session->cancelled);
}

/* Truncates to the accepted tokens. The logits are those of the last accepted row and stay valid.
 */
static ag_status truncate_draft(ag_session *s, uint32_t position, ag_error *err) {
    const ag_logits_location location = s->logits.location;
    const ag_top_k top = s->logits.top;
    AG_TRY(ag_session_truncate(s, position, err));
    s->logits.location = location;
    s->logits.top = top;
    return AG_OK;
}

/* Recovers from a failed verify step. Feeds the tokens that were already shown, so the session has
 * the state of one-by-one decoding. If this fails too, the session keeps the state before the step.
 * The caller reports the first error. */
static void feed_again(ag_session *s, const int32_t *ids, size_t n) {
    const ag_step_item item = {
        .session = s, .ids = ids, .n = n, .phase = AG_PHASE_VERIFY, .logits = AG_LOGITS_LAST};
    if (n) (void)ag_session_step(&item, 1, NULL);
}

/* Feeds ids[0..n): the chosen token and a draft. Keeps the tokens up to the first choice that
 * differs. *id becomes that choice. */
static ag_status verify(ag_generation *g, const int32_t *ids, size_t n, int32_t *id,
                        ag_error *err) {
    ag_session *s = g->session;
    const uint32_t position = s->position;
    int32_t chosen[AG_SPECULATE_ROWS];
    verification v = {.g = g, .space = ag_session_capacity_left(s), .err = err};
    const ag_step_item item = {
        .session = s,
        .ids = ids,
        .n = n,
        .phase = AG_PHASE_VERIFY,
        .logits = AG_LOGITS_ALL,
        .sampler = g->params->sampler,
        .chosen = chosen,
        .on_chosen = show_choice,
        .on_chosen_user = &v,
    };
    const ag_status stepped = ag_session_step(&item, 1, err);
    if (stepped != AG_OK) {
        feed_again(s, ids, v.n_fed);
        return stepped;
    }
    const ag_status truncated =
        truncate_draft(s, position + (uint32_t)v.n_fed, v.status == AG_OK ? err : NULL);
    AG_TRY(v.status);
    *id = chosen[v.n_fed - 1];
    g->stats->n_draft_steps++;
    g->stats->n_drafted += n - 1;
    g->stats->n_accepted += v.n_fed - 1;
    return truncated;
}

/* Stops drafting once the session is cancelled. */
static bool is_cancelled(void *user) {
    const ag_generation *g = user;
    return atomic_load(&g->session->cancelled);
}

static ag_draft_offer make_offer(ag_generation *g, int32_t *ids) {
    const size_t max = max_draft(g);
    return (ag_draft_offer){
        .max = max,
        .n_forced = max ? ag_sampler_forced(g->params->sampler, ids, max) : 0,
        .always = g->params->speculate == AG_SPECULATE_ALWAYS,
        .stop = is_cancelled,
        .user = g,
    };
}

ag_status ag_generation_step(ag_generation *g, int32_t *id, ag_error *err) {
    int32_t ids[AG_SPECULATE_ROWS] = {*id};
    const size_t before = g->stats->n_generated;
    ag_speculation *s = g->speculation;
    if (!s) return decode_one(g, id, err);
    const double begin = ag_now_s();
    const ag_draft_offer offer = make_offer(g, ids + 1);
    const size_t n = 1 + ag_speculation_draft(s, ids + 1, &offer);
    AG_TRY(n > 1 ? verify(g, ids, n, id, err) : decode_one(g, id, err));
    if (!g->ended) ag_speculation_update(s, n, g->stats->n_generated - before, ag_now_s() - begin);
    return AG_OK;
}
