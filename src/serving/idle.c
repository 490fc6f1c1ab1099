/* SPDX-License-Identifier: Apache-2.0 */
/* While there is nothing else to do, parked sessions become smaller: a replay finds out which slots
 * each needs. Whatever comes meanwhile ends it, and the session is as it was. */
#include "cache/cache_manager.h"
#include "cache/kv_cache.h"
#include "core/fail.h"
#include "platform/clock.h"
#include "serving/serving_impl.h"

#include <math.h>

enum {
    LEAST_TOKENS = 512, /* of fewer there is little to gain */
    WAIT_FOR_ROOM_S = 10,
};

/* What is a little more than it should be is not replayed for that. */
static const double most_beyond = 1.25;

static bool has_replays(const ag_serving *s) { return s->params.replay_share > 0; }

/* Most of the memory is taken: nothing waits until it has been idle for long. */
static bool is_pressed(const ag_serving *s) {
    const uint64_t limit = s->params.memory_limit;
    return limit && ag_governor_used(s) > limit - limit / 4;
}

/* ---- which ---- */

/* Slots that stay, in the mean over heads. Of the tokens that were read, not of the slots that are
 * left of them: a conversation that is parked again after each turn keeps the same share. */
static double target_of(const ag_serving *s, const ag_parked *k) {
    const double share = (double)s->params.replay_keep_ratio * (double)k->ids.n;
    const double most = s->params.replay_keep_tokens;
    return share > 0 && (most <= 0 || share < most) ? share : most;
}

static bool is_too_large(const ag_serving *s, const ag_parked *k) {
    if (k->is_small || k->pinned || k->state != AG_PARKED_KEPT || k->ids.n < LEAST_TOKENS ||
        k->model->info.state_bytes || ag_eviction_is_managed(&k->params.eviction) ||
        k->params.eviction.memory.threshold_bytes)
        return false;
    const ag_kv_cache *cache = ag_session_kv_cache(k->session);
    /* What others hold, too, would have to be copied. */
    if (ag_kv_cache_shared_bytes(cache) > ag_kv_cache_memory_usage_bytes(cache) / 2) return false;
    return ag_kv_cache_mean_slots(cache) > most_beyond * target_of(s, k);
}

static double due_at(const ag_serving *s, const ag_parked *k, bool pressed) {
    const double idle = pressed ? 0 : k->used_at + s->params.replay_after_s;
    return idle > k->not_before ? idle : k->not_before;
}

/* The one that is due first. */
static ag_parked *next_parked(const ag_serving *s, double *due) {
    ag_parked *first = NULL;
    *due = INFINITY;
    if (!has_replays(s) || !s->parked) return NULL;
    const bool pressed = is_pressed(s);
    for (ag_parked *k = s->parked; k; k = k->next) {
        const double at = due_at(s, k, pressed);
        if (at >= *due || !is_too_large(s, k)) continue;
        *due = at;
        first = k;
    }
    return first;
}

double ag_idle_due(const ag_serving *s) {
    double due;
    next_parked(s, &due);
    return due;
}

/* ---- doing it ---- */

static bool has_other_work(ag_serving *s) {
    ag_mutex_lock(&s->lock);
    const bool any = s->stopping || s->jobs || s->running || s->waiting || s->floor.is_wanted;
    ag_mutex_unlock(&s->lock);
    return any;
}

static bool goes_on(void *user, uint64_t done, uint64_t total) {
    (void)done;
    (void)total;
    return !has_other_work(user);
}

static uint64_t held_by(const ag_parked *k) {
    return ag_kv_cache_memory_usage_bytes(ag_session_kv_cache(k->session));
}

/* For the replay's own rows, what stays, and scores of all slots. Another one leaves for it where
 * there is none: what one gives back is more than what one takes. */
static bool make_room(ag_serving *s, ag_parked *k) {
    const uint64_t wanted = 2 * held_by(k), lacks = ag_governor_lacks(s, wanted);
    const uint64_t parked = ag_prefix_bytes(s), own = held_by(k);
    if (!lacks) return true;
    if (parked < own + lacks) { /* not even if all others left */
        k->is_small = true;
        return false;
    }
    if (!s->n_leaving) { /* else there may be room when they are written */
        k->pinned = true;
        const bool gave_up = ag_prefix_drop_one(s);
        k->pinned = false;
        if (gave_up && !ag_governor_lacks(s, wanted)) return true;
    }
    k->not_before = ag_now_s() + WAIT_FOR_ROOM_S;
    return false;
}

static void warn(const ag_serving *s, const ag_error *err) {
    const ag_backend_params *p = &s->params.backend;
    if (p->log) p->log(p->log_user, AG_LOG_WARN, err->msg);
}

static ag_status compress(ag_serving *s, ag_parked *k, ag_compress_report *done, ag_error *err) {
    const double target = target_of(s, k);
    ag_compress_params p = ag_replay_request_params(&k->model->replay);
    p.keep_tokens = target < 1 ? 1 : (uint32_t)target;
    p.replay = s->params.replay_share;
    p.progress = goes_on;
    p.progress_user = s;
    return ag_session_compress(k->session, k->ids.data, k->ids.n, &p, done, err);
}

void ag_idle_work(ag_serving *s) {
    double due;
    ag_error err;
    ag_compress_report done;
    if (!has_replays(s) || has_other_work(s)) return;
    ag_parked *k = next_parked(s, &due);
    if (!k || due > ag_now_s()) return;
    if (!make_room(s, k)) return;
    const ag_status st = compress(s, k, &done, &err);
    if (st == AG_CANCELLED) return;
    k->is_small = true; /* or cannot be */
    if (st == AG_OK) {
        k->has_evicted = true;
        k->held = ag_held_figures(k->session, k->id, k->model, &k->params);
        s->now.n_replays++;
        s->now.replay_bytes += done.bytes_returned;
    } else {
        s->now.n_replays_failed++;
        warn(s, &err);
    }
    ag_serving_publish(s, true);
}
