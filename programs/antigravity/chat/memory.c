/* SPDX-License-Identifier: Apache-2.0 */
/* Between turns, where the system runs short of memory: the model repeats the conversation, and
 * what it does not need for that leaves the cache. */
#include "chat.h"

#include "../command.h"
#include "../terminal/interrupt.h"
#include "../terminal/output.h"

#include <antigravity/kv_cache.h>

enum { MIN_TOKENS = 512 }; /* of fewer there is little to gain */
/* What is a little more than it should be is not replayed for that. */
static const double max_excess = 1.25;

static bool is_short(const chat *c) {
    ag_session *s = c->engine.session;
    if (c->o.replay.share == 0 || c->replay_failed || !s) return false;
    /* What is harder has taken from the cache already, and a replay wants memory first. */
    return ag_session_memory_pressure(s) == AG_PRESSURE_SOFT && c->consumed.n >= MIN_TOKENS &&
           c->consumed.n == ag_session_position(s);
}

void chat_free_memory(chat *c) {
    ag_session *s = c->engine.session;
    ag_compress_report report = {.n_heads = 0};
    char bytes[32];
    if (!is_short(c)) return;
    const replay_options replay = replay_of(&c->o.replay, c->consumed.n);
    if (ag_kv_cache_mean_slots(ag_session_kv_cache(s)) <= max_excess * replay.keep_tokens) return;
    interrupt_register(s);
    const int code =
        replay_compress(&replay, &c->engine, s, c->consumed.data, c->consumed.n, &report);
    interrupt_unregister(s);
    c->replay_failed = code != EXIT_DONE; /* which was said, and need not be said again */
    if (code != EXIT_DONE || !report.n_heads || report.n_kept == report.n_before) return;
    chat_note(c, "memory is short: %.0f of %.0f tokens stay in the cache in the mean, %s returned",
              (double)report.n_kept / (double)report.n_heads,
              (double)report.n_before / (double)report.n_heads,
              format_bytes((double)report.bytes_returned, bytes, sizeof bytes));
}
