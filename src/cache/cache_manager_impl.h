/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a cache manager, for cache_manager.c and tests. */
#ifndef AG_CACHE_CACHE_MANAGER_IMPL_H
#define AG_CACHE_CACHE_MANAGER_IMPL_H

#include "cache/cache_manager.h"
#include "cache/eviction/chunk_scores.h"
#include "cache/evictor.h"
#include "cache/pressure_watch.h"
#include "cache/reload.h"

typedef enum ag_manager_phase {
    AG_MANAGER_DECODE,
    AG_MANAGER_VERIFY,
    AG_MANAGER_PROMPT_BOUNDED,
    AG_MANAGER_PROMPT_WHOLE,
} ag_manager_phase;

/* Work that is due after a pass. If it fails it stays pending: ag_cache_manager_settle() continues
 * where it failed, so that slots and sums become those of a run without the failure. */
typedef struct ag_pending_scores { /* sums of a prompt become importance */
    bool is_pending;
    uint32_t position, n_window;
    uint32_t layer; /* the next one */
} ag_pending_scores;

struct ag_cache_manager {
    ag_evictor evictor;
    uint32_t budget;         /* tokens asked for */
    uint32_t live;           /* of them, what memory allows now */
    ag_chunk_scores *chunks; /* owned; NULL: the policy wants none */
    ag_reloader *reloader;   /* owned; NULL: nothing is spilled */
    ag_pressure_watch watch;
    ag_manager_phase phase;
    size_t n_begun;        /* tokens of the call */
    size_t n_pass;         /* of them in the pass */
    bool eviction_pending; /* the pass that has begun will exceed the budget */
    bool pressure_eviction_pending;
    ag_pending_scores scores; /* before the evictor's eviction */
};

/* Does what is pending, then evicts: see ag_evictor_plan(). */
ag_status ag_cache_manager_evict(ag_cache_manager *m, uint32_t budget, uint32_t position,
                                 ag_eviction_reason reason, ag_error *err);

#endif
