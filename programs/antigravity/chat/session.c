/* SPDX-License-Identifier: Apache-2.0 */
/* Session of the conversation. Reads only new tokens, marks turns for the cache, and protects the
 * system prompt and a short first turn. */
#include "chat.h"

#include "../command.h"
#include "../terminal/interrupt.h"
#include "../terminal/output.h"

#include <antigravity/kv_cache.h>
#include <inttypes.h>

enum { FIRST_TURN = 128 }; /* maximum tokens of a first turn that is protected */

ag_session_params chat_session_params(const chat *c) {
    ag_session_params params = session_params(&c->o.model, c->n_context);
    params.eviction.memory.soft_waits = c->o.replay.share > 0; /* for chat_free_memory() */
    return params;
}

int chat_open_session(chat *c, uint32_t n_protected) {
    ag_error err;
    engine *e = &c->engine;
    ag_session_params params = chat_session_params(c);
    params.eviction.protected_prefix = n_protected;
    if (c->o.model.verbose) params.eviction.on_eviction = eviction_report;
    ag_session_plan unused;
    if (ag_session_plan_memory(&e->info, &params, &unused, &err) != AG_OK)
        return complain_settings(&err);
    interrupt_unregister(e->session);
    ag_session_destroy(e->session);
    e->session = NULL;
    c->consumed.n = 0;
    c->n_protected = n_protected;
    if (ag_session_create(e->model, &params, &e->session, &err) == AG_OK) return EXIT_DONE;
    c->leaving = true; /* no more tokens can be read */
    return complain_settings(&err);
}

/* Returns session parameters that protect the system prompt in half of the budget; the newest
 * tokens use the other half. */
static ag_session_params params_with_system(const chat *c, uint32_t n_system) {
    ag_session_params params = chat_session_params(c);
    ag_eviction_params *e = &params.eviction;
    const uint32_t n_extra = n_system > e->recent ? n_system - e->recent : 0;
    if (n_system + n_extra > e->protected_prefix) e->protected_prefix = n_system + n_extra;
    return params;
}

/* Returns session parameters whose evictions retain n tokens. */
static ag_session_params params_with_budget(const chat *c, uint32_t n) {
    ag_session_params params = chat_session_params(c);
    params.eviction.protected_prefix = n > params.eviction.recent ? n - params.eviction.recent : 0;
    return params;
}

int chat_check_context(chat *c) {
    ag_session_plan unused;
    uint32_t n_system;
    const ag_eviction_policy *policy = c->o.model.eviction.params.policy;
    if (c->own_prefix || !policy || !policy->select) return EXIT_DONE;
    int code = transcript_prefix(&c->transcript, &n_system);
    if (code != EXIT_DONE) return code;
    const ag_session_params params = params_with_system(c, n_system);
    /* A budget above the context is reported later. */
    if (budget_check(&c->o.model, &params, NULL) != AG_OK ||
        ag_session_plan_memory(&c->engine.info, &params, &unused, NULL) == AG_OK)
        return EXIT_DONE;
    const uint32_t smallest = min_context(&c->engine.info, params);
    if (!smallest) return EXIT_DONE; /* another fault, reported later */
    return complain_usage("a context of %" PRIu32 " tokens is too small for the %" PRIu32
                          " before the first message and what --kv-policy %s keeps; the smallest "
                          "that works is -c %" PRIu32,
                          c->n_context, n_system, policy->name, smallest);
}

int chat_find_protected(chat *c, uint32_t *n) {
    const uint32_t budget = ag_session_kv_budget(c->engine.session);
    uint32_t n_system;
    *n = c->n_protected;
    if (c->own_prefix || !budget) return EXIT_DONE;
    int code = transcript_prefix(&c->transcript, &n_system);
    if (code != EXIT_DONE) return code;
    const uint32_t recent = c->o.model.eviction.params.recent;
    uint32_t max_protected = budget / 2;
    if (recent > budget - max_protected) max_protected = recent < budget ? budget - recent : 0;
    if (n_system > max_protected) {
        char hint[64] = "a larger -c or --kv-budget helps";
        const uint32_t smallest = min_context(&c->engine.info, params_with_system(c, n_system));
        if (smallest)
            snprintf(hint, sizeof hint, "the smallest -c that works is %" PRIu32, smallest);
        return complain_usage("the system prompt is too long: %" PRIu32 " tokens; %" PRIu32
                              " of the %" PRIu32 " that the KV cache keeps can be protected: %s",
                              n_system, max_protected, budget, hint);
    }
    *n = n_system + FIRST_TURN < max_protected ? n_system + FIRST_TURN : max_protected;
    return EXIT_DONE;
}

void chat_forget(chat *c) {
    ag_session_reset(c->engine.session);
    c->consumed.n = 0;
}

/* Returns the layer whose heads cache most tokens. */
static uint32_t fullest_layer(const ag_kv_cache *cache) {
    uint32_t l = 0;
    while (ag_kv_cache_layer(cache, l + 1) &&
           ag_kv_cache_n_slots(cache, l, 0) < ag_kv_cache_length(cache))
        l++;
    return l;
}

/* Returns whether the cache holds an unprotected token before `position`. */
static bool caches_before(const chat *c, uint32_t position) {
    const ag_session *s = c->engine.session;
    const ag_kv_cache *cache = ag_session_kv_cache(c->engine.session);
    const uint32_t n = ag_session_protected(s);
    return position <= n || ag_kv_cache_position(cache, fullest_layer(cache), 0, n) < position;
}

int chat_go_back(chat *c, size_t position) {
    ag_error err;
    ag_session *s = c->engine.session;
    if (position >= ag_session_position(s)) return EXIT_DONE;
    if (!position || position < ag_session_oldest_reachable(s) ||
        !caches_before(c, (uint32_t)position)) {
        const bool again = position > 0;
        chat_forget(c);
        if (again && c->is_terminal) chat_note(c, "the conversation is read again");
        return EXIT_DONE;
    }
    if (ag_session_truncate(s, (uint32_t)position, &err) != AG_OK) return complain_error(&err);
    c->consumed.n = position;
    return EXIT_DONE;
}

/* Protects the first turn, which ends at second_turn, if it is short enough; else only the system
 * prompt. */
static int protect_first(chat *c, uint32_t second_turn) {
    ag_error err;
    ag_session *s = c->engine.session;
    uint32_t n = second_turn;
    if (c->own_prefix || second_turn == ag_session_protected(s)) return EXIT_DONE;
    if (second_turn > ag_session_protected(s)) {
        int code = transcript_prefix(&c->transcript, &n);
        if (code != EXIT_DONE) return code;
    }
    if (n > ag_session_protected(s) || ag_session_protect(s, n, &err) == AG_OK) return EXIT_DONE;
    return complain_error(&err);
}

static int mark_turn(chat *c, size_t turn, size_t at, const ag_ids *ids) {
    ag_error err;
    ag_session *s = c->engine.session;
    transcript_message *m = &c->transcript.messages[at];
    int code = transcript_find_turn(&c->transcript, at, ids, &m->first);
    if (code != EXIT_DONE || m->first < ag_session_position(s)) return code;
    if (ag_session_begin_turn(s, m->first, &err) != AG_OK) return complain_error(&err);
    return turn == 1 && ag_session_kv_budget(s) ? protect_first(c, m->first) : EXIT_DONE;
}

int chat_match(chat *c, const ag_ids *ids, size_t *n) {
    *n = ag_chat_common_prefix(&c->consumed, ids);
    if (*n && *n == ids->n) --*n; /* its logits begin the answer */
    int code = chat_go_back(c, *n);
    *n = ag_session_position(c->engine.session);
    for (size_t i = 0; code == EXIT_DONE; i++) {
        const size_t at = transcript_turn(&c->transcript, i);
        if (at == c->transcript.n) break;
        const uint32_t first = c->transcript.messages[at].first;
        if (first == TRANSCRIPT_UNREAD || first >= *n) code = mark_turn(c, i, at, ids);
    }
    return code;
}

/* Returns the first position of the newest turn; `end` if unknown. */
static uint32_t newest_turn_first(const chat *c, uint32_t end) {
    const size_t n = transcript_n_turns(&c->transcript);
    const uint32_t first = n ? c->transcript.messages[transcript_turn(&c->transcript, n - 1)].first
                             : (uint32_t)TRANSCRIPT_UNREAD;
    return first < end ? first : end;
}

static int complain_full(const chat *c, size_t n) {
    char hint[64] = "the model knows no more positions";
    if (n < c->engine.info.max_positions)
        snprintf(hint, sizeof hint, "the smallest -c that works is %zu", n + 1);
    return complain_failure("the conversation is too long: %zu tokens, the context holds %" PRIu32
                            ": %s; /clear or a --kv-policy that evicts turns help, too",
                            n, c->n_context, hint);
}

/* Writes "; -c 176 would keep all of it": the smallest context whose evictions retain n tokens. */
static void describe_fix(const chat *c, uint32_t n, char *out, size_t cap) {
    const uint32_t smallest = min_context(&c->engine.info, params_with_budget(c, n));
    out[0] = '\0';
    if (smallest) snprintf(out, cap, "; -c %" PRIu32 " would keep all of it", smallest);
}

int chat_check_space(chat *c, const ag_ids *ids) {
    const ag_session *s = c->engine.session;
    const uint32_t end = (uint32_t)ids->n, n_protected = ag_session_protected(s);
    uint32_t first = newest_turn_first(c, end);
    c->n_left = ag_session_evictions(s)->n_tokens;
    c->loss_is_reported = false;
    if (!ag_session_kv_budget(s))
        return end - ag_session_position(s) > ag_session_capacity_left(s) ? complain_full(c, end)
                                                                          : EXIT_DONE;
    if (first < n_protected) first = n_protected;
    if (first >= end || n_protected + (end - first) < c->n_context) return EXIT_DONE;
    char hint[64];
    describe_fix(c, n_protected + (end - first), hint, sizeof hint);
    complain("the message is too long: %" PRIu32 " tokens; a context of %" PRIu32 " with %" PRIu32
             " protected tokens loses its middle%s",
             end - first, c->n_context, n_protected, hint);
    c->loss_is_reported = true;
    return EXIT_DONE;
}

void chat_check_loss(chat *c) {
    const ag_session *s = c->engine.session;
    const uint32_t end = ag_session_position(s), first = newest_turn_first(c, end);
    if (c->loss_is_reported || ag_session_evictions(s)->n_tokens == c->n_left) return;
    c->loss_is_reported = true;
    const uint32_t n = chat_n_cached(c, first, end);
    if (n >= end - first) return;
    char hint[64];
    describe_fix(c, ag_session_protected(s) + (end - first), hint, sizeof hint);
    complain("of the %" PRIu32 " tokens of the message %" PRIu32 " were evicted from its middle%s",
             end - first, end - first - n, hint);
}

int chat_note_consumed(chat *c, const int32_t *ids, size_t n) {
    const size_t position = ag_session_position(c->engine.session);
    for (size_t i = c->consumed.n; i < n && i < position; i++)
        if (!ids_add(&c->consumed, ids[i])) return complain_no_memory();
    return EXIT_DONE;
}
