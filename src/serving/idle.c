/* SPDX-License-Identifier: Apache-2.0 */
/* Idle work: compresses cached sessions by a replay while the engine has nothing else to do. Any
 * other work interrupts the replay and leaves the session unchanged. */
#include "cache/cache_manager.h"
#include "cache/kv_cache.h"
#include "core/backend_ops.h"
#include "core/fail.h"
#include "platform/clock.h"
#include "serving/serving_impl.h"

#include <math.h>

enum {
    MIN_TOKENS = 512, /* shorter sessions gain little */
    RETRY_S = 10,
};

/* Entries up to this factor above their target are not compressed. */
static const double max_excess = 1.25;

static bool has_replays(const ag_serving *s) { return s->params.replay_share > 0; }

/* Returns whether three quarters of the limit are in use: then entries are compressed at once. */
static bool is_memory_tight(const ag_serving *s) {
    const uint64_t limit = s->params.memory_limit;
    return limit && ag_memory_budget_used(&s->budget) > limit - limit / 4;
}

/* ---- choice ---- */

/* Returns the slots to retain, as a mean over heads. The share is of the tokens that were read, not
 * of the remaining slots. So a conversation that is cached after each turn keeps the same share. */
static double target_slots(const ag_serving *s, const ag_prefix_entry *k) {
    const double share = (double)s->params.replay_keep_ratio * (double)k->ids.n;
    const double max = s->params.replay_keep_tokens;
    return share > 0 && (max <= 0 || share < max) ? share : max;
}

static bool is_too_large(const ag_serving *s, const ag_prefix_entry *k) {
    if (k->is_compressed || k->pinned || k->state != AG_PREFIX_RESIDENT || k->ids.n < MIN_TOKENS ||
        k->model->info.state_bytes || ag_eviction_is_managed(&k->params.eviction) ||
        k->params.eviction.memory.threshold_bytes)
        return false;
    const ag_kv_cache *cache = ag_session_kv_cache(k->session);
    /* Shared blocks would have to be copied. */
    if (ag_kv_cache_shared_bytes(cache) > ag_kv_cache_memory_usage_bytes(cache) / 2) return false;
    return ag_kv_cache_mean_slots(cache) > max_excess * target_slots(s, k);
}

static double due_at(const ag_serving *s, const ag_prefix_entry *k, bool tight) {
    const double idle = tight ? 0 : k->used_at + s->params.replay_after_s;
    return idle > k->retry_at ? idle : k->retry_at;
}

/* Returns the entry to compress first and its time, or NULL and INFINITY. */
static ag_prefix_entry *next_entry(const ag_serving *s, double *due) {
    ag_prefix_entry *first = NULL;
    *due = INFINITY;
    if (!has_replays(s) || !s->prefixes.store.entries) return NULL;
    const bool tight = is_memory_tight(s);
    for (ag_prefix_entry *k = s->prefixes.store.entries; k; k = k->next) {
        const double at = due_at(s, k, tight);
        if (at >= *due || !is_too_large(s, k)) continue;
        *due = at;
        first = k;
    }
    return first;
}

double ag_idle_due(const ag_serving *s) {
    double due;
    next_entry(s, &due);
    return due;
}

/* ---- compression ---- */

static bool has_other_work(ag_serving *s) {
    ag_mutex_lock(&s->lock);
    const bool any = s->queue.is_closed || s->jobs || s->queue.running || s->queue.waiting ||
                     s->engine_lock.is_requested;
    ag_mutex_unlock(&s->lock);
    return any;
}

static bool continue_replay(void *user, uint64_t done, uint64_t total) {
    (void)done;
    (void)total;
    return !has_other_work(user);
}

static uint64_t kv_bytes(const ag_prefix_entry *k) {
    return ag_kv_cache_memory_usage_bytes(ag_session_kv_cache(k->session));
}

/* Makes space for a replay: for its own rows, the retained slots, and the scores of all slots. May
 * evict another entry, which frees more than the replay takes. */
static bool make_space(ag_serving *s, ag_prefix_entry *k) {
    const uint64_t needed = 2 * kv_bytes(k),
                   shortfall = ag_memory_budget_shortfall(&s->budget, needed);
    const uint64_t cached = ag_prefix_cache_bytes(&s->prefixes), own = kv_bytes(k);
    if (!shortfall) return true;
    if (cached < own + shortfall) { /* evicting all others would not suffice */
        k->is_compressed = true;
        return false;
    }
    if (!s->prefixes.store.n_writing) { /* otherwise writing may free enough */
        k->pinned = true;
        const bool evicted = ag_prefix_cache_evict_one(&s->prefixes);
        k->pinned = false;
        if (evicted && !ag_memory_budget_shortfall(&s->budget, needed)) return true;
    }
    k->retry_at = ag_now_s() + RETRY_S;
    return false;
}

static ag_status compress(ag_serving *s, ag_prefix_entry *k, ag_compress_report *done,
                          ag_error *err) {
    const double target = target_slots(s, k);
    ag_compress_params p = ag_replay_request_params(&k->model->replay);
    p.keep_tokens = target < 1 ? 1 : (uint32_t)target;
    p.replay = s->params.replay_share;
    p.progress = continue_replay;
    p.progress_user = s;
    return ag_session_compress(k->session, k->ids.data, k->ids.n, &p, done, err);
}

void ag_idle_work(ag_serving *s) {
    double due;
    ag_error err;
    ag_compress_report done;
    if (!has_replays(s) || has_other_work(s)) return;
    ag_prefix_entry *k = next_entry(s, &due);
    if (!k || due > ag_now_s()) return;
    if (!make_space(s, k)) return;
    const ag_status st = compress(s, k, &done, &err);
    if (st == AG_CANCELLED) return;
    k->is_compressed = true; /* also after a failure: it would fail again */
    if (st == AG_OK) {
        k->has_evicted = true;
        k->resident = ag_resident_session_of(k->session, k->id, k->model, &k->params);
        s->now.n_replays++;
        s->now.replay_bytes += done.bytes_returned;
    } else {
        s->now.n_replays_failed++;
        ag_backend_log(s->backend, AG_LOG_WARN, "%s", err.msg);
    }
    ag_serving_publish(s, true);
}
