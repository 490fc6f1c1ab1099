/* SPDX-License-Identifier: Apache-2.0 */
/* Memory pressure: a pure function from signals about the system's memory to a decision for the
 * cache. */
#ifndef AG_CACHE_PRESSURE_H
#define AG_CACHE_PRESSURE_H

#include <antigravity/eviction.h>

enum {
    AG_PRESSURE_PERIOD_MS = 10000, /* minimum time between two evictions */
    AG_PRESSURE_QUIET_MS = 10000,  /* calm time before a level ends */
};

typedef struct ag_pressure_state {
    ag_pressure level;
    bool calm, evicted;
    uint64_t calm_since_ms, evicted_ms;
} ag_pressure_state;

typedef struct ag_pressure_decision {
    bool evict;
    size_t target_bytes; /* size of the cache after it, if `evict` */
    bool refuse;         /* critical, and the cache cannot shrink: accept no new work */
} ag_pressure_decision;

/* Updates *state, which starts zeroed, and decides. bytes: current size of the cache; floor: its
 * smallest size. A level begins at once. It ends after the signals have been 15 % better than
 * its threshold for AG_PRESSURE_QUIET_MS. */
ag_pressure_decision ag_pressure_decide(const ag_memory_watch *watch, const ag_memory_signals *s,
                                        uint64_t now_ms, size_t bytes, size_t floor,
                                        ag_pressure_state *state);

#endif
