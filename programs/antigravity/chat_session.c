/* SPDX-License-Identifier: Apache-2.0 */
/* What the model has read of the conversation: only what is new is read, whole turns are marked for
 * the cache, and the first ones are protected. */
#include "chat.h"

#include "command.h"
#include "interrupt.h"
#include "output.h"

#include <antigravity/kv_cache.h>
#include <inttypes.h>
#include <string.h>

enum { FIRST_TURN = 128 }; /* tokens of a first turn that stays for ever, at most */

int chat_open_session(chat *c, uint32_t n_protected) {
    ag_error err;
    engine *e = &c->engine;
    ag_session_params params = session_params(&c->o.model, c->n_context);
    params.eviction.protected_prefix = n_protected;
    if (c->o.model.verbose) params.eviction.on_eviction = eviction_say;
    ag_session_plan unused;
    if (ag_session_plan_memory(&e->info, &params, &unused, &err) != AG_OK)
        return complain_settings(&err);
    interrupt_spares(e->session);
    ag_session_destroy(e->session);
    e->session = NULL;
    c->consumed.n = 0;
    c->n_protected = n_protected;
    if (ag_session_create(e->model, &params, &e->session, &err) == AG_OK) return EXIT_DONE;
    c->leaving = true; /* nothing can be read any more */
    return complain_settings(&err);
}

int chat_find_protected(chat *c, uint32_t *n) {
    const uint32_t budget = ag_session_kv_budget(c->engine.session);
    uint32_t n_system;
    *n = c->n_protected;
    if (c->own_prefix || !budget) return EXIT_DONE;
    int code = talk_prefix(&c->talk, &n_system);
    if (code != EXIT_DONE) return code;
    const uint32_t recent = c->o.model.eviction.params.recent;
    uint32_t most = budget / 2;
    if (recent > budget - most) most = recent < budget ? budget - recent : 0;
    if (n_system > most) {
        complain("the system prompt takes %" PRIu32 " tokens, and %" PRIu32 " of the %" PRIu32
                 " that the KV cache keeps can stay for ever: a larger -c or --kv-budget helps",
                 n_system, most, budget);
        return EXIT_USAGE;
    }
    *n = n_system + FIRST_TURN < most ? n_system + FIRST_TURN : most;
    return EXIT_DONE;
}

void chat_forget(chat *c) {
    ag_session_reset(c->engine.session);
    c->consumed.n = 0;
}

/* A layer whose heads are as long as any. */
static uint32_t fullest_layer(const ag_kv_cache *cache) {
    uint32_t l = 0;
    while (ag_kv_cache_layer(cache, l + 1) &&
           ag_kv_cache_n_slots(cache, l, 0) < ag_kv_cache_length(cache))
        l++;
    return l;
}

/* Whether tokens before `position` are in the cache that are not there for ever. */
static bool holds_before(const chat *c, uint32_t position) {
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
        !holds_before(c, (uint32_t)position)) {
        const bool again = position > 0;
        chat_forget(c);
        if (again && c->is_terminal) chat_note(c, "the conversation is read again");
        return EXIT_DONE;
    }
    if (ag_session_truncate(s, (uint32_t)position, &err) != AG_OK) return complain_error(&err);
    c->consumed.n = position;
    return EXIT_DONE;
}

/* The second turn begins at `border`: if the first one is short enough, all of it stays. */
static int protect_first(chat *c, uint32_t border) {
    ag_error err;
    ag_session *s = c->engine.session;
    uint32_t n = border;
    if (c->own_prefix || border == ag_session_protected(s)) return EXIT_DONE;
    if (border > ag_session_protected(s)) {
        int code = talk_prefix(&c->talk, &n);
        if (code != EXIT_DONE) return code;
    }
    if (n > ag_session_protected(s) || ag_session_protect(s, n, &err) == AG_OK) return EXIT_DONE;
    return complain_error(&err);
}

static int mark_turn(chat *c, size_t turn, size_t at, const ag_ids *ids) {
    ag_error err;
    ag_session *s = c->engine.session;
    talk_message *m = &c->talk.messages[at];
    int code = talk_find_turn(&c->talk, at, ids, &m->first);
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
        const size_t at = talk_turn(&c->talk, i);
        if (at == c->talk.n) break;
        const uint32_t first = c->talk.messages[at].first;
        if (first == TALK_UNREAD || first >= *n) code = mark_turn(c, i, at, ids);
    }
    return code;
}

int chat_note_consumed(chat *c, const int32_t *ids, size_t n) {
    const size_t position = ag_session_position(c->engine.session);
    for (size_t i = c->consumed.n; i < n && i < position; i++)
        if (!ids_add(&c->consumed, ids[i])) return complain_no_memory();
    return EXIT_DONE;
}
