/* SPDX-License-Identifier: Apache-2.0 */
/* Pressure watch: reads the system's memory at intervals for one cache and decides how far the
 * cache must shrink. */
#ifndef AG_CACHE_PRESSURE_WATCH_H
#define AG_CACHE_PRESSURE_WATCH_H

#include "cache/pressure.h"
#include "cache/sys_monitor.h"

/* Starts zeroed. */
typedef struct ag_pressure_watch {
    ag_memory_watch params;
    ag_sys_monitor *monitor; /* owned; NULL: memory is not watched, or params.read reads it */
    ag_pressure_state state;
    ag_pressure hint; /* reported by the application */
    bool polled;
    bool refuse; /* the last decision: accept no new prompts */
    uint64_t polled_ms;
} ag_pressure_watch;

/* Copies the parameters, whose strings and callbacks are borrowed. */
ag_status ag_pressure_watch_init(ag_pressure_watch *w, const ag_memory_watch *params,
                                 ag_error *err);
void ag_pressure_watch_release(ag_pressure_watch *w);
/* Copies what `from` knows of the system's memory, not its parameters. */
void ag_pressure_watch_copy(ag_pressure_watch *to, const ag_pressure_watch *from);

/* Sets the level that the application reports; the next call of ag_pressure_watch_is_due() is
 * true. */
void ag_pressure_watch_hint(ag_pressure_watch *w, ag_pressure level);
/* Returns whether 100 ms have passed since signals were last read, and marks them as read now. */
bool ag_pressure_watch_is_due(ag_pressure_watch *w);
/* Reads the signals and decides for a cache of `bytes` that cannot shrink below `floor`. */
ag_pressure_decision ag_pressure_watch_decide(ag_pressure_watch *w, size_t bytes, size_t floor);

#endif
