/* SPDX-License-Identifier: Apache-2.0 */
/* Compresses the cache between turns when system memory is short. The model repeats the
 * conversation; tokens that it does not need for that are evicted. */
#include "chat.h"

#include "../command.h"
#include "../terminal/interrupt.h"
#include "../terminal/output.h"

#include <antigravity/kv_cache.h>

enum { MIN_TOKENS = 512 }; /* fewer tokens are not worth a replay */
/* A cache below this multiple of the target is not compressed. */
static const double max_excess = 1.25;

static bool is_short(const chat *c) {
    ag_session *s = c->engine.session;
    if (c->o.replay.share == 0 || c->replay_failed || !s) return false;
    /* Harder pressure has already evicted, and a replay needs memory first. */
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
    c->replay_failed = code != EXIT_DONE; /* reported once */
    if (code != EXIT_DONE || !report.n_heads || report.n_kept == report.n_before) return;
    chat_note(c, "memory is short: the cache keeps %.0f of %.0f tokens (mean over heads), %s freed",
              (double)report.n_kept / (double)report.n_heads,
              (double)report.n_before / (double)report.n_heads,
              format_bytes((double)report.bytes_returned, bytes, sizeof bytes));
}
