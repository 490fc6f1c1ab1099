/* SPDX-License-Identifier: Apache-2.0 */
/* Private struct of the cache manager, for cache_manager.c and tests. */
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

/* Scores to normalise after a prompt. Pending work that fails stays pending:
 * ag_cache_manager_settle() continues where it failed, and slots and sums become those of a run
 * without the failure. */
typedef struct ag_pending_scores {
    bool is_pending;
    uint32_t position, n_window;
    uint32_t layer; /* the next one to normalise */
} ag_pending_scores;

struct ag_cache_manager {
    ag_evictor evictor;
    uint32_t budget;         /* tokens, as the parameters say */
    uint32_t live;           /* tokens that memory allows now, at most `budget` */
    ag_chunk_scores *chunks; /* owned; NULL: the policy uses none */
    ag_reloader *reloader;   /* owned; NULL: nothing is spilled */
    ag_pressure_watch watch;
    ag_manager_phase phase;
    size_t n_begun;        /* tokens of the call */
    size_t n_pass;         /* tokens of the pass */
    bool eviction_pending; /* the pass that has begun will exceed the budget */
    bool pressure_eviction_pending;
    ag_pending_scores scores; /* normalised before the evictor's eviction */
};

/* Runs pending work, then evicts: see ag_evictor_plan(). */
ag_status ag_cache_manager_evict(ag_cache_manager *m, uint32_t budget, uint32_t position,
                                 ag_eviction_reason reason, ag_error *err);

#endif
