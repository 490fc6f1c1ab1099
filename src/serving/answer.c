/* SPDX-License-Identifier: Apache-2.0 */
/* Answers: chooses tokens from logits, emits their text, ends and caches the session. */
#include "constrain/constraint.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "platform/clock.h"
#include "serving/logprobs.h"
#include "serving/serving_impl.h"
#include "session/session_impl.h"
#include "session/stop.h"

#include <string.h>

ag_status ag_answer_create(ag_answer *a, ag_served_request *r, size_t index, ag_error *err) {
    const ag_served_model *m = r->p.model;
    ag_sampler_params sampling = r->p.sampling;
    sampling.seed += index;
    a->request = r;
    a->index = index;
    a->pending_id = a->chosen = -1;
    a->n_reserved = r->p.max_tokens >= 0 ? (uint64_t)r->p.max_tokens : AG_SERVING_EXTEND_TOKENS;
    AG_TRY(ag_sampler_create(&sampling, (int32_t)m->info.n_vocab, &a->sampler, err));
    if (m->tokenizer)
        AG_TRY(ag_decoder_create(m->tokenizer, r->p.keep_special, true, &a->decoder, err));
    if (!r->masks) return AG_OK;
    ag_constraint *c = ag_mask_group_constraint(r->masks, index);
    ag_constraint_leave_to_watch(c);
    return ag_sampler_constrain(a->sampler, c, err);
}

/* ---- chosen tokens ---- */

static ag_status append_id(ag_answer *a, int32_t id, ag_error *err) {
    AG_TRY(AG_GROW(a->starts, &a->starts_cap, a->ids.n + 1, err));
    AG_TRY(AG_GROW(a->ids.data, &a->ids.cap, a->ids.n + 1, err));
    a->starts[a->ids.n] = a->n_text;
    a->ids.data[a->ids.n++] = id;
    return AG_OK;
}

ag_status ag_answer_tokens(const ag_answer *a, ag_ids *out, ag_error *err) {
    const ag_served_request *r = a->request;
    const size_t n = ag_session_position(a->session);
    if (n < r->p.n_prompt || n - r->p.n_prompt > a->ids.n) {
        *out = (ag_ids){0};
        return AG_FAIL(
            err, INVALID,
            "cannot list the tokens of a session: it has consumed %zu, of which %zu are known", n,
            r->p.n_prompt + a->ids.n);
    }
    *out = (ag_ids){.data = ag_malloc(n * sizeof *out->data), .n = n, .cap = n};
    if (!out->data) {
        *out = (ag_ids){0};
        return AG_FAIL(err, NOMEM, "list of %zu ids", n);
    }
    memcpy(out->data, r->p.prompt, r->p.n_prompt * sizeof *out->data);
    const size_t n_fed = n - r->p.n_prompt;
    if (n_fed) memcpy(out->data + r->p.n_prompt, a->ids.data, n_fed * sizeof *out->data);
    return AG_OK;
}

/* ---- text ---- */

/* Returns the index of the first stop string in the list that `text` begins with. */
static size_t stop_index(const ag_request_params *p, const char *text) {
    for (size_t i = 0; i < p->n_stop; i++) {
        if (!strncmp(text, p->stop[i], strlen(p->stop[i]))) return i;
    }
    return 0;
}

/* Returns how many pending bytes may be emitted. *found: a stop string follows them. */
static size_t showable(ag_answer *a, bool *found) {
    const ag_request_params *p = &a->request->p;
    const ag_stop_list stops = {p->stop, p->n_stop};
    *found = false;
    if (!a->pending.len) return 0;
    const size_t n = ag_stop_scan(&stops, a->pending.data, a->pending.len, found);
    if (*found) a->stop = stop_index(p, a->pending.data + n);
    return n;
}

static void emit(ag_answer *a, ag_request_event *e, size_t n) {
    e->kind = AG_REQUEST_TOKEN;
    e->answer = a->index;
    e->text = n ? a->pending.data : "";
    e->len = n;
    ag_request_send_event(a->request, e);
    if (!n) return;
    memmove(a->pending.data, a->pending.data + n, a->pending.len - n + 1);
    a->pending.len -= n;
    a->n_emitted += n;
}

static ag_status show_token(ag_answer *a, ag_request_event *e, bool *stopped, ag_error *err) {
    const size_t before = a->pending.len;
    if (a->decoder) AG_TRY(ag_decoder_push(a->decoder, e->id, &a->pending, err));
    a->n_text += a->pending.len - before;
    emit(a, e, showable(a, stopped));
    return AG_OK;
}

static ag_status show_pending(ag_answer *a, bool *stopped, ag_error *err) {
    ag_request_event e = {.id = -1};
    if (!a->decoder) return AG_OK;
    AG_TRY(ag_decoder_flush(a->decoder, &a->pending, err));
    size_t n = showable(a, stopped);
    if (!*stopped) n = a->pending.len;
    if (n) emit(a, &e, n);
    return AG_OK;
}

/* ---- end ---- */

/* Returns the number of tokens before those whose text belongs to the stop string. */
static size_t n_before_stop(const ag_answer *a) {
    size_t n = a->ids.n;
    while (n && a->starts[n - 1] >= a->n_emitted) n--;
    return n;
}

/* Reports the end of the answer: reason, ids without the stop string, times. */
static void send_answered(const ag_answer *a) {
    const ag_served_request *r = a->request;
    const double first = a->first_at > 0 ? a->first_at : ag_now_s();
    ag_request_event e = {
        .kind = AG_REQUEST_ANSWERED,
        .answer = a->index,
        .id = -1,
        .finish = a->finish,
        .stop = a->stop,
        .n_generated = a->ids.n,
        .ids = a->ids.data,
        .n_ids = a->finish == AG_FINISH_STOP_STRING ? n_before_stop(a) : a->ids.n,
        .queue_s = r->started_at - r->submitted_at,
        .prefill_s = (r->read_at > 0 ? r->read_at : ag_now_s()) - r->started_at,
        .first_token_s = first - r->submitted_at,
        .decode_s = a->last_at > first ? a->last_at - first : 0,
    };
    ag_request_send_event(r, &e);
}

/* Caches the session, so that a later request can continue it. */
static void cache_session(ag_serving *s, ag_answer *a) {
    ag_session *session = a->session;
    ag_ids ids = {0};
    if (!session) return;
    if (!a->request->p.no_prefix) ag_answer_tokens(a, &ids, NULL);
    ag_session_choose_later(session, false);
    a->session = NULL; /* stops counting as a running session */
    ag_prefix_cache_add(&s->prefixes, a->request, session, &ids);
}

ag_status ag_answer_end(ag_serving *s, ag_answer *a, ag_finish reason, ag_error *err) {
    bool stopped = false;
    ag_status st = AG_OK;
    a->ended = true;
    a->request->n_open--;
    if (reason != AG_FINISH_STOP_STRING) st = show_pending(a, &stopped, err);
    a->finish = stopped ? AG_FINISH_STOP_STRING : reason;
    send_answered(a);
    cache_session(s, a);
    return st;
}

/* ---- tokens ---- */

static bool ends_text(const ag_request_params *p, int32_t id) {
    const ag_model_info *info = &p->model->info;
    if (p->ignore_eos) return false;
    for (size_t i = 0; i < info->n_eos; i++) {
        if (info->eos_ids[i] == id) return true;
    }
    for (size_t i = 0; i < p->n_stop_ids; i++) {
        if (p->stop_ids[i] == id) return true;
    }
    return false;
}

/* Ends the answer if `e->id` ends the text. Otherwise appends it, emits its text, ends the answer
 * at a limit, and requests the next mask if `needs_mask`. */
static ag_status accept_token(ag_serving *s, ag_answer *a, ag_request_event *e, bool needs_mask,
                              ag_error *err) {
    const ag_request_params *p = &a->request->p;
    bool stopped = false;
    if (ends_text(p, e->id)) {
        if (p->prompt_logprobs) emit(a, e, 0);
        return ag_answer_end(s, a, AG_FINISH_EOS, err);
    }
    ag_sampler_accept_prompt(a->sampler, e->id); /* the mask thread advances the constraint */
    AG_TRY(append_id(a, e->id, err));
    s->now.n_generated_tokens++;
    AG_TRY(show_token(a, e, &stopped, err));
    if (stopped) return ag_answer_end(s, a, AG_FINISH_STOP_STRING, err);
    if (p->max_tokens > 0 && a->ids.n >= (uint64_t)p->max_tokens)
        return ag_answer_end(s, a, AG_FINISH_MAX_TOKENS, err);
    if (!ag_session_capacity_left(a->session) ||
        (a->ids.n >= a->n_reserved && !ag_memory_budget_extend_answer(&s->budget, a)))
        return ag_answer_end(s, a, AG_FINISH_CONTEXT, err);
    if (needs_mask) ag_mask_group_submit(a->request->masks, a->index, e->id);
    return AG_OK;
}

static void make_late(ag_answer *a) {
    a->is_late = true;
    a->request->n_late++;
}

/* Sets *id to the next token. *needs_mask: the constraint has not accepted it yet. A token that
 * fires a trigger makes the answer late; *id is then -1. */
static ag_status sample(ag_answer *a, int32_t *id, bool *needs_mask, ag_error *err) {
    ag_mask_group *masks = a->request->masks;
    *needs_mask = masks;
    if (a->pending_id >= 0 && !ag_mask_group_has_rejected(masks, a->index)) {
        *id = a->pending_id;
        *needs_mask = false;
        a->pending_id = -1;
        return AG_OK;
    }
    a->pending_id = -1;
    AG_TRY(ag_session_choose(a->session, a->sampler, id, err));
    ag_constraint *c = masks ? ag_mask_group_constraint(masks, a->index) : NULL;
    if (!c || !ag_constraint_is_free(c) || ends_text(&a->request->p, *id)) return AG_OK;
    bool fires;
    *needs_mask = false;
    AG_TRY(ag_constraint_watch(c, *id, &fires, err));
    if (!fires) return AG_OK;
    a->pending_id = *id;
    *id = -1;
    make_late(a);
    ag_mask_group_submit(masks, a->index, a->pending_id);
    return AG_OK;
}

/* Accepts the token that the step chose, or samples one from the session's logits, unless the
 * answer becomes late. */
static ag_status choose(ag_serving *s, ag_answer *a, ag_error *err) {
    const ag_request_params *p = &a->request->p;
    ag_logprob top[AG_SERVING_MAX_TOP];
    ag_request_event e = {.id = a->chosen};
    bool needs_mask = false;
    a->chosen = -1;
    if (e.id < 0 && a->session->logits.location == AG_LOGITS_ABSENT)
        return AG_FAIL(err, DEVICE, "cannot choose a token: the step left no logits");
    if (e.id < 0) AG_TRY(sample(a, &e.id, &needs_mask, err));
    if (e.id < 0) return AG_OK;
    a->last_at = ag_now_s();
    if (a->first_at <= 0) a->first_at = a->last_at;
    if (p->logprobs) ag_event_set_logprobs(&e, p, ag_session_logits(a->session), top);
    return accept_token(s, a, &e, needs_mask, err);
}

ag_status ag_answer_choose_or_wait(ag_serving *s, ag_answer *a, ag_error *err) {
    ag_served_request *r = a->request;
    /* Answers choose in their order: after a late one, all are late. */
    if (!r->masks || (!r->n_late && ag_mask_group_is_ready(r->masks, a->index)))
        return choose(s, a, err);
    make_late(a);
    return AG_OK;
}

/* ---- late answers ---- */

/* Fails if the mask of the first late answer has failed. Answers choose in their order, so others
 * get the same tokens whatever the timing. While the prompt is read, the first mask counts. */
static ag_status current_failure(const ag_served_request *r, ag_error *err) {
    size_t i = 0;
    if (!r->n_late && !r->session) return AG_OK;
    while (r->n_late && !r->answers[i].is_late) i++;
    return ag_mask_group_failure(r->masks, i, err);
}

/* Raises the limit of a group that has reached it, if there is memory. */
static ag_status extend_masks(ag_serving *s, ag_served_request *r, ag_error *err) {
    if (!ag_mask_group_needs_memory(r->masks)) return AG_OK;
    AG_TRY(ag_memory_budget_extend_constraint(&s->budget, r, err));
    ag_mask_group_raise_limit(r->masks, ag_memory_budget_constraint_limit(&s->budget, r));
    return AG_OK;
}

ag_status ag_request_choose_late(ag_serving *s, ag_served_request *r, ag_error *err) {
    AG_TRY(extend_masks(s, r, err));
    for (size_t i = 0; r->n_late && i < r->p.n_answers; i++) {
        ag_answer *a = &r->answers[i];
        if (!a->is_late) continue;
        if (!ag_mask_group_is_ready(r->masks, i)) break;
        a->is_late = false;
        r->n_late--;
        AG_TRY(choose(s, a, err));
        if (a->is_late) break;
    }
    return current_failure(r, err);
}
