/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/pressure_watch.h"

#include "platform/clock.h"

enum { POLL_MS = 100 }; /* reading the system's files takes about 0.1 ms */

ag_status ag_pressure_watch_init(ag_pressure_watch *w, const ag_memory_watch *params,
                                 ag_error *err) {
    w->params = *params;
    if (!params->threshold_bytes || params->read) return AG_OK;
    return ag_sys_monitor_create(params->system_root, &w->monitor, err);
}

void ag_pressure_watch_release(ag_pressure_watch *w) { ag_sys_monitor_destroy(w->monitor); }

void ag_pressure_watch_copy(ag_pressure_watch *to, const ag_pressure_watch *from) {
    to->state = from->state;
    to->hint = from->hint;
    to->polled = from->polled;
    to->polled_ms = from->polled_ms;
    to->refuse = from->refuse;
}

void ag_pressure_watch_hint(ag_pressure_watch *w, ag_pressure level) {
    w->hint = level;
    w->polled = false;
}

bool ag_pressure_watch_is_due(ag_pressure_watch *w) {
    const ag_memory_watch *p = &w->params;
    const uint64_t now = p->clock_ms ? p->clock_ms(p->user) : (uint64_t)(ag_now_s() * 1000);
    if (w->polled && now - w->polled_ms < POLL_MS) return false;
    w->polled = true;
    w->polled_ms = now;
    return true;
}

ag_pressure_decision ag_pressure_watch_decide(ag_pressure_watch *w, size_t bytes, size_t floor) {
    ag_memory_signals s = {.hint = AG_PRESSURE_NORMAL};
    if (w->params.read) w->params.read(w->params.user, w->polled_ms, &s);
    else ag_sys_monitor_read(w->monitor, w->polled_ms, &s);
    if (w->hint > s.hint) s.hint = w->hint;
    const ag_pressure_decision d =
        ag_pressure_decide(&w->params, &s, w->polled_ms, bytes, floor, &w->state);
    w->refuse = d.refuse;
    return d;
}
