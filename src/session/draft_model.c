/* SPDX-License-Identifier: Apache-2.0 */
#include "session/draft_model.h"

#include "core/alloc.h"
#include "core/fail.h"

#include <antigravity/sampler.h>

/* The session has consumed `read` tokens of the text, up to number `last`, and then the n_drafted
 * tokens in `drafted`. */
struct ag_draft_model {
    ag_session *session; /* borrowed */
    uint64_t serial;     /* the session's: another one may later have its address */
    ag_sampler *greedy;  /* owned */
    uint32_t chunk;      /* maximum tokens of one step */
    int32_t n_vocab;     /* ids below this exist in both models */
    uint32_t last, read;
    int32_t drafted[AG_DRAFT_MODEL_MAX_TOKENS];
    size_t n_drafted;
    bool failed;
    bool (*stop)(void *user); /* argument of the current call */
    void *stop_user;
};

ag_status ag_draft_model_create(ag_session *s, uint64_t serial, uint32_t chunk, uint32_t n_vocab,
                                ag_draft_model **out, ag_error *err) {
    const uint32_t own = ag_session_model_info(s)->n_vocab;
    ag_sampler_params greedy = ag_sampler_defaults();
    *out = NULL;
    ag_draft_model *d = ag_calloc(1, sizeof *d);
    if (!d) return AG_FAIL(err, NOMEM, "draft model");
    d->session = s;
    d->serial = serial;
    d->chunk = chunk;
    d->n_vocab = (int32_t)(own < n_vocab ? own : n_vocab);
    d->read = UINT32_MAX; /* unknown until the session is reset */
    greedy.temperature = 0;
    greedy.repetition_penalty = 1;
    ag_status st = ag_sampler_create(&greedy, (int32_t)own, &d->greedy, err);
    if (st == AG_OK) *out = d;
    else ag_draft_model_destroy(d);
    return st;
}

void ag_draft_model_destroy(ag_draft_model *d) {
    if (!d) return;
    ag_sampler_destroy(d->greedy);
    ag_free(d);
}

bool ag_draft_model_is_of(const ag_draft_model *d, uint64_t serial) { return d->serial == serial; }

/* ---- position in the text ---- */

static bool rewind_by(ag_draft_model *d, size_t n) {
    const uint32_t position = ag_session_position(d->session);
    return ag_session_truncate(d->session, position - (uint32_t)n, NULL) == AG_OK;
}

/* Returns whether token i is known and in the draft model's vocabulary. */
static bool is_readable(const ag_draft_model *d, const ag_ngram_lookup *text, uint32_t i) {
    const int32_t id = ag_ngram_lookup_token(text, i);
    return id >= 0 && id < d->n_vocab;
}

/* Starts again at the beginning of the text, or after the last token that is not readable. */
static void restart(ag_draft_model *d, const ag_ngram_lookup *text) {
    ag_session_reset(d->session);
    d->read = 0;
    d->n_drafted = 0;
    d->last = ag_ngram_lookup_length(text);
    while (d->last && is_readable(d, text, d->last)) d->last--;
}

/* Counts drafted tokens that are now part of the text as read. Truncates the others. */
static bool match_text(ag_draft_model *d, const ag_ngram_lookup *text) {
    size_t n = 0;
    while (n < d->n_drafted &&
           ag_ngram_lookup_token(text, d->last + 1 + (uint32_t)n) == d->drafted[n])
        n++;
    const size_t wrong = d->n_drafted - n;
    d->last += (uint32_t)n;
    d->read += (uint32_t)n;
    d->n_drafted = 0;
    return !wrong || rewind_by(d, wrong);
}

/* Returns whether the text has unread tokens and all of them are readable. */
static bool can_continue(const ag_draft_model *d, const ag_ngram_lookup *text) {
    const uint32_t end = ag_ngram_lookup_length(text);
    uint32_t i = d->last;
    while (i < end && is_readable(d, text, i + 1)) i++;
    return d->last < end && i == end;
}

static bool is_known(const ag_draft_model *d) {
    return d->read != UINT32_MAX && ag_session_position(d->session) == d->read + d->n_drafted;
}

void ag_draft_model_truncate(ag_draft_model *d, uint32_t length) {
    const uint32_t n = d->last > length ? d->last - length : 0;
    if (d->read == UINT32_MAX) return;
    if (!length || n > d->read || !is_known(d) || !rewind_by(d, d->n_drafted + n)) {
        d->read = UINT32_MAX;
        return;
    }
    d->n_drafted = 0;
    d->read -= n;
    d->last -= n;
}

/* ---- drafting ---- */

/* Feeds tokens. Unless id is NULL, chooses the next one. */
static ag_status feed(ag_draft_model *d, const int32_t *ids, size_t n, int32_t *id) {
    const ag_step_item item = {
        .session = d->session,
        .ids = ids,
        .n = n,
        .phase = n > 1 ? AG_PHASE_PROMPT : AG_PHASE_DECODE,
        .logits = id ? AG_LOGITS_LAST : AG_LOGITS_NONE,
        .sampler = id ? d->greedy : NULL,
        .chosen = id,
    };
    return ag_session_step(&item, 1, NULL);
}

/* Feeds the unread tokens of the text and chooses the next one. */
static ag_status catch_up(ag_draft_model *d, const ag_ngram_lookup *text, int32_t *id) {
    enum { MAX_ROWS = 512 };
    const uint32_t end = ag_ngram_lookup_length(text);
    const size_t max = d->chunk < MAX_ROWS ? d->chunk : MAX_ROWS;
    while (d->last < end) {
        int32_t ids[MAX_ROWS];
        size_t n = 0;
        for (; n < max && d->last + n < end; n++)
            ids[n] = ag_ngram_lookup_token(text, d->last + 1 + (uint32_t)n);
        if (d->stop(d->stop_user)) return AG_CANCELLED;
        AG_TRY(feed(d, ids, n, d->last + n == end ? id : NULL));
        d->last += (uint32_t)n;
        d->read += (uint32_t)n;
    }
    return AG_OK;
}

static bool fits(const ag_draft_model *d, const ag_ngram_lookup *text, size_t n) {
    const uint32_t left = ag_session_capacity_left(d->session);
    return left >= ag_ngram_lookup_length(text) - d->last + n;
}

size_t ag_draft_model_draft(ag_draft_model *d, const ag_ngram_lookup *text, int32_t *ids, size_t n,
                            bool (*stop)(void *user), void *user) {
    const uint32_t length = ag_ngram_lookup_length(text);
    if (d->failed || !n || !length) return 0;
    if (n > AG_DRAFT_MODEL_MAX_TOKENS) n = AG_DRAFT_MODEL_MAX_TOKENS;
    d->stop = stop;
    d->stop_user = user;
    if (!is_known(d) || !match_text(d, text) || !can_continue(d, text)) restart(d, text);
    if (d->last == length || !fits(d, text, n)) return 0;
    const ag_status st = catch_up(d, text, &ids[0]);
    if (st != AG_OK) {
        d->failed = st != AG_CANCELLED;
        d->read = UINT32_MAX;
        return 0;
    }
    size_t n_tokens = 1;
    for (; n_tokens < n && ids[n_tokens - 1] < d->n_vocab; n_tokens++) {
        if (feed(d, &ids[n_tokens - 1], 1, &ids[n_tokens]) != AG_OK) break;
        d->drafted[d->n_drafted++] = ids[n_tokens - 1];
    }
    return ids[n_tokens - 1] < d->n_vocab ? n_tokens : n_tokens - 1;
}
