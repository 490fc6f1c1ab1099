/* SPDX-License-Identifier: Apache-2.0 */
/* Step: runs rows of any mixture of sessions of one model in one pass. */
#include "core/fail.h"
#include "core/rollback.h"
#include "session/session_impl.h"
#include "text/sampler_filter.h"
#include "text/sampler_top.h"

/* ---- checks ---- */

ag_status ag_session_check_ids(const ag_session *s, const int32_t *ids, size_t n, ag_error *err) {
    if (!n) return AG_FAIL(err, INVALID, "the list of tokens is empty");
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= s->model->info.n_vocab) {
            return AG_FAIL(err, INVALID,
                           "token id %d (token %zu of %zu) is outside the vocabulary of %u", ids[i],
                           i + 1, n, s->model->info.n_vocab);
        }
    }
    uint32_t left = ag_session_capacity_left(s);
    if (n > left && s->manager) {
        return AG_FAIL(err, LIMIT, "position %u + %zu tokens exceeds the limit of 2^31 - 1",
                       s->position, n);
    }
    if (n > left && left < ag_kv_cache_free_slots(s->cache)) {
        return AG_FAIL(err, LIMIT, "position %u + %zu tokens exceeds the model's %u positions",
                       s->position, n, s->model->info.max_positions);
    }
    if (n > left) {
        return AG_FAIL(err, LIMIT, "%zu tokens do not fit: %u of %u are used (max_seq_len)", n,
                       s->params.max_seq_len - left, s->params.max_seq_len);
    }
    return AG_OK;
}

static ag_status check_items(const ag_step_item *items, size_t n, ag_error *err) {
    if (!n) return AG_FAIL(err, INVALID, "the step has no items");
    for (size_t i = 0; i < n; i++) {
        const ag_step_item *item = &items[i];
        if (item->session->model != items[0].session->model) {
            return AG_FAIL(err, INVALID, "item %zu: its session belongs to another model", i);
        }
        for (size_t j = 0; j < i; j++) {
            if (item->session == items[j].session) {
                return AG_FAIL(err, INVALID, "items %zu and %zu have the same session", j, i);
            }
        }
        if (item->sampler && (!item->chosen || item->logits == AG_LOGITS_NONE)) {
            return AG_FAIL(err, INVALID, "item %zu: a sampler needs %s", i,
                           item->chosen ? "logits" : "chosen, where it writes its choices");
        }
        if (item->n > item->session->params.prefill_chunk) {
            return AG_FAIL(err, LIMIT,
                           "item %zu is too long: %zu tokens, a step takes %u (prefill_chunk)", i,
                           item->n, item->session->params.prefill_chunk);
        }
        if (item->phase == AG_PHASE_VERIFY && item->session->state && item->n > AG_ROLLBACK) {
            return AG_FAIL(
                err, LIMIT,
                "item %zu is too long: %zu tokens to verify, layers with a state allow %d", i,
                item->n, AG_ROLLBACK);
        }
        AG_TRY(ag_session_check_ids(item->session, item->ids, item->n, err));
    }
    return AG_OK;
}

/* ---- pass ---- */

/* Returns whether the item is part of an announced prompt. */
static bool continues_prompt(const ag_step_item *item) {
    return item->phase == AG_PHASE_PROMPT && item->session->prompt_remaining >= item->n;
}

/* Returns the tokens of the same prompt that later steps feed. */
static size_t n_later_tokens(const ag_step_item *item) {
    return continues_prompt(item) ? item->session->prompt_remaining - item->n : 0;
}

/* Returns how many leading rows need no output of the last layer. */
static size_t n_without_output(const ag_step_item *item) {
    if (item->hidden || item->logits == AG_LOGITS_ALL) return 0;
    return item->logits == AG_LOGITS_LAST ? item->n - 1 : item->n;
}

/* Prepares cache and policy for the item, and describes it as a sequence of the pass. */
static ag_status begin_item(const ag_step_item *item, ag_sequence *seq, ag_error *err) {
    ag_session *s = item->session;
    if (!s->manager) AG_TRY(ag_kv_cache_expire(s->cache, s->position, err));
    if (!continues_prompt(item))
        AG_TRY(ag_cache_manager_begin(s->manager, item->phase, item->n, err));
    *seq = (ag_sequence){.cache = s->cache,
                         .ids = item->ids,
                         .n = item->n,
                         .position = s->position,
                         .state = s->state,
                         .n_without_output = n_without_output(item),
                         .is_long = s->is_long,
                         .cancel = &s->cancelled};
    return ag_cache_manager_before(s->manager, s->position, item->n, n_later_tokens(item),
                                   &seq->scores, err);
}

/* Returns whether the item is a token that a device's shorter path could compute. */
static bool is_token(const ag_step_item *item) {
    return item->n == 1 && item->logits != AG_LOGITS_NONE && !n_later_tokens(item) && !item->hidden;
}

/* Computes the logits of a single token if the device has a shorter path. Sets *done. */
static ag_status device_step(const ag_step_item *item, ag_sequence *seq, bool *done,
                             ag_error *err) {
    ag_session *s = item->session;
    *done = false;
    if (!is_token(item)) return AG_OK;
    const bool on_device = ag_step_keeps_on_device(item);
    /* The filter may make its mask while the device computes: its query follows. */
    const bool selects = on_device && item->sampler && ag_sampler_is_free(item->sampler) &&
                         ag_session_request_top(s, item->sampler);
    AG_TRY(ag_model_device_step(s->model, seq, &s->logits.row, on_device ? NULL : s->logits.copied,
                                selects ? &s->logits.top : NULL, done, err));
    if (!*done) return AG_OK;
    s->logits.location = on_device ? AG_LOGITS_ON_DEVICE : AG_LOGITS_ON_HOST;
    s->logits.on_device = s->logits.row;
    return s->logits.copied ? AG_OK : ag_buffer_sync(s->logits.owner, err);
}

/* Maximum of sessions whose tokens take the shorter path one after another: on an H200 that is 1.9
 * times as fast as a pass for two sessions, and 1.2 times for four. */
enum { MAX_DEVICE_STEPS = 4 };

/* Computes the logits of few tokens of different sessions on the device's shorter path. Sets *done.
 */
static ag_status device_steps(const ag_step_item *items, size_t n, bool *done, ag_error *err) {
    ag_model *m = items[0].session->model;
    *done = false;
    if (m->hook || n > MAX_DEVICE_STEPS) return AG_OK;
    for (size_t i = 0; i < n; i++)
        if (!is_token(&items[i])) return AG_OK;
    AG_TRY(device_step(&items[0], &m->sequences[0], done, err));
    for (size_t i = 1; *done && i < n; i++) {
        bool is_taken;
        AG_TRY(device_step(&items[i], &m->sequences[i], &is_taken, err));
        if (is_taken) continue;
        AG_TRY(ag_model_forward(m, &m->sequences[i], 1, err));
        AG_TRY(ag_step_compute_row(&items[i], &m->sequences[i], err));
    }
    return AG_OK;
}

/* Runs all items through the model. *has_logits: the device has computed the logits too. */
static ag_status run_pass(const ag_step_item *items, size_t n, bool *has_logits, ag_error *err) {
    ag_model *m = items[0].session->model;
    size_t n_rows = 0;
    *has_logits = false;
    for (size_t i = 0; i < n; i++) n_rows += items[i].n;
    AG_TRY(ag_model_reserve(m, n_rows, n, err));
    for (size_t i = 0; i < n; i++) {
        items[i].session->logits.location = AG_LOGITS_ABSENT;
        items[i].session->logits.top.known = false;
        items[i].session->choice_ended = false;
        AG_TRY(begin_item(&items[i], &m->sequences[i], err));
    }
    AG_TRY(device_steps(items, n, has_logits, err));
    return *has_logits ? AG_OK : ag_model_forward(m, m->sequences, n, err);
}

/* ---- step ---- */

static void save_samplers(const ag_step_item *items, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (items[i].sampler) items[i].session->random_before = ag_sampler_random(items[i].sampler);
}

/* Truncates the sessions to their position before the step. Their logits are lost, and announced
 * prompts end. Samplers of LAST, which accept nothing in a step, forget that they chose. */
static void restore_sessions(const ag_step_item *items, size_t n) {
    for (size_t i = 0; i < n; i++) {
        ag_session *s = items[i].session;
        ag_cache_manager_abandon(s->manager);
        ag_kv_cache_truncate(s->cache, s->position, NULL);
        ag_layer_state_truncate(s->state, s->position, NULL);
        ag_cache_manager_truncate(s->manager, s->position);
        s->logits.location = AG_LOGITS_ABSENT;
        s->prompt_remaining = 0;
        if (items[i].sampler && items[i].logits == AG_LOGITS_LAST)
            ag_sampler_set_random(items[i].sampler, s->random_before);
    }
}

/* Returns whether a session was cancelled. Clears the cancellation. */
static bool consume_cancel(const ag_step_item *items, size_t n) {
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        if (atomic_exchange(&items[i].session->cancelled, false)) any = true;
    }
    return any;
}

/* Counts the tokens as consumed. An eviction that fails here runs again before the next pass; if it
 * fails again, so does that step. */
static void finish_items(const ag_step_item *items, size_t n) {
    for (size_t i = 0; i < n; i++) {
        ag_session *s = items[i].session;
        const size_t left = n_later_tokens(&items[i]);
        s->position += (uint32_t)items[i].n;
        s->prompt_remaining = left;
        if (s->manager) ag_cache_manager_after(s->manager, s->position, left);
        else if (items[i].phase != AG_PHASE_VERIFY) /* a draft may be truncated */
            (void)ag_kv_cache_expire(s->cache, s->position, NULL);
    }
}

/* Checks items and cancellation. On failure announced prompts end. */
static ag_status check_step(const ag_step_item *items, size_t n, ag_error *err) {
    ag_status st = check_items(items, n, err);
    if (st == AG_OK && consume_cancel(items, n))
        st = AG_FAIL(err, CANCELLED, "cancelled before the step");
    for (size_t i = 0; st != AG_OK && i < n; i++) items[i].session->prompt_remaining = 0;
    return st;
}

ag_status ag_session_step(const ag_step_item items[], size_t n, ag_error *err) {
    bool computed = false;
    AG_TRY(check_step(items, n, err));
    save_samplers(items, n);
    ag_status st = run_pass(items, n, &computed, err);
    if (st == AG_OK) st = ag_step_deliver_hidden(items, n, err);
    if (st == AG_OK) st = ag_step_deliver_logits(items, n, computed, err);
    if (st == AG_CANCELLED) consume_cancel(items, n);
    if (st == AG_OK) finish_items(items, n);
    else restore_sessions(items, n);
    return st;
}

void ag_session_cancel(ag_session *s) { atomic_store(&s->cancelled, true); }
