/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/pressure.h"

static ag_pressure higher(ag_pressure a, ag_pressure b) { return a > b ? a : b; }

/* Levels begin below the threshold, half of it and a quarter of it. */
static ag_pressure by_bytes(uint64_t remaining, double threshold) {
    double bytes = (double)remaining;
    if (bytes < threshold / 4) return AG_PRESSURE_CRITICAL;
    if (bytes < threshold / 2) return AG_PRESSURE_HARD;
    return bytes < threshold ? AG_PRESSURE_SOFT : AG_PRESSURE_NORMAL;
}

/* some, full: shares of the last 2 s that tasks waited for memory. */
static ag_pressure by_stalls(double some, double full, double margin) {
    if (some >= 0.15 / margin || full >= 0.05 / margin) return AG_PRESSURE_HARD;
    return some >= 0.05 / margin ? AG_PRESSURE_SOFT : AG_PRESSURE_NORMAL;
}

/* margin 1: thresholds at which a level begins; above 1: thresholds that still hold it. */
static ag_pressure level_of(const ag_memory_watch *watch, const ag_memory_signals *s,
                            double margin) {
    double threshold = (double)watch->threshold_bytes;
    ag_pressure level = s->hint;
    if (s->has_available) level = higher(level, by_bytes(s->available, threshold * margin));
    if (s->has_group) {
        /* Otherwise a small group would be under pressure from its first byte. */
        double limit = (double)s->group_limit, own = limit / 8 < threshold ? limit / 8 : threshold;
        uint64_t remaining = s->group_limit > s->group_used ? s->group_limit - s->group_used : 0;
        level = higher(level, by_bytes(remaining, own * margin));
    }
    if (s->has_stalls) level = higher(level, by_stalls(s->stalled_some, s->stalled_full, margin));
    return level;
}

static void update_level(const ag_memory_watch *watch, const ag_memory_signals *s, uint64_t now_ms,
                         ag_pressure_state *state) {
    const double margin = 1.15;
    ag_pressure now = level_of(watch, s, 1), held_level = level_of(watch, s, margin);
    if (now >= state->level || held_level >= state->level) {
        state->level = higher(now, state->level);
        state->calm = false;
        return;
    }
    if (!state->calm) {
        state->calm = true;
        state->calm_since_ms = now_ms;
    }
    if (now_ms - state->calm_since_ms < AG_PRESSURE_QUIET_MS) return;
    state->level = held_level;
    state->calm = false;
}

ag_pressure_decision ag_pressure_decide(const ag_memory_watch *watch, const ag_memory_signals *s,
                                        uint64_t now_ms, size_t bytes, size_t floor,
                                        ag_pressure_state *state) {
    ag_pressure_decision d = {.evict = false};
    update_level(watch, s, now_ms, state);
    if (state->level == AG_PRESSURE_NORMAL) return d;
    if (state->level == AG_PRESSURE_SOFT && watch->soft_waits) return d;
    d.refuse = state->level == AG_PRESSURE_CRITICAL && bytes <= floor;
    bool waiting = state->evicted && now_ms - state->evicted_ms < AG_PRESSURE_PERIOD_MS;
    if (waiting || bytes <= floor) return d;
    static const double fractions[] = {0, 1, 2.0 / 3, 1.0 / 3};
    d.evict = true;
    d.target_bytes =
        (size_t)((double)bytes * (double)watch->target_ratio * fractions[state->level]);
    state->evicted = true;
    state->evicted_ms = now_ms;
    return d;
}
