/* SPDX-License-Identifier: Apache-2.0 */
/* From signals about the system's memory to what the cache should do: a pure function. */
#ifndef AG_CACHE_PRESSURE_H
#define AG_CACHE_PRESSURE_H

#include <antigravity/eviction.h>

enum {
    AG_PRESSURE_PERIOD_MS = 10000, /* at most one eviction in so long */
    AG_PRESSURE_QUIET_MS = 10000,  /* calm for so long before a level is left */
};

typedef struct ag_pressure_state {
    ag_pressure level;
    bool calm, evicted;
    uint64_t calm_since_ms, evicted_ms;
} ag_pressure_state;

typedef struct ag_pressure_decision {
    bool evict;
    size_t target_bytes; /* of the cache, if so */
    bool refuse;         /* critical, and nothing is left to give: no new work */
} ag_pressure_decision;

/* *state is zeroed at first and goes from call to call. bytes: of the cache now; floor: what
 * it cannot go below. A level is entered at once and left when the signals are 15 % better than
 * what entered it for AG_PRESSURE_QUIET_MS. */
ag_pressure_decision ag_pressure_decide(const ag_memory_watch *watch, const ag_memory_signals *s,
                                        uint64_t now_ms, size_t bytes, size_t floor,
                                        ag_pressure_state *state);

#endif
