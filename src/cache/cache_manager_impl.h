/* SPDX-License-Identifier: Apache-2.0 */
/* A cache manager's inside: cache_manager.c knows when something leaves, cache_evict.c makes it. */
#ifndef AG_CACHE_CACHE_MANAGER_IMPL_H
#define AG_CACHE_CACHE_MANAGER_IMPL_H

#include "cache/cache_manager.h"
#include "cache/eviction/chunk_scores.h"
#include "cache/eviction/importance.h"
#include "cache/head_lengths.h"
#include "cache/pressure.h"
#include "cache/recall.h"
#include "cache/sys_monitor.h"

typedef enum ag_manager_stage {
    AG_STAGE_DECODE,
    AG_STAGE_VERIFY,
    AG_STAGE_PROMPT_BOUNDED,
    AG_STAGE_PROMPT_WHOLE,
} ag_manager_stage;

/* Work that is due after a pass. If it fails it stays pending: ag_cache_manager_settle() continues
 * where it failed, so that slots and sums become those of a run without the failure. */
typedef struct ag_pending_scores { /* sums of a prompt become importance */
    bool is_pending;
    uint32_t position, n_window;
    uint32_t layer; /* the next one */
} ag_pending_scores;

typedef struct ag_pending_eviction {
    bool is_pending;
    bool is_shared_out; /* n_keep and views of `tmp` say which slots each head of `layer` keeps */
    bool is_compared;   /* its heads have been compared by importance, which is in the views */
    uint32_t budget, position;
    uint32_t fewer;        /* slots that each head gives up where all share */
    uint32_t layer, head;  /* the next ones */
    size_t n_slots, bytes; /* all layers hold them before the eviction */
    ag_eviction report;
} ag_pending_eviction;

struct ag_cache_manager {
    ag_eviction_params params;
    ag_kv_cache *cache;      /* borrowed */
    ag_rope_table *rope;     /* owned; [n_layers] */
    uint32_t trained;        /* positions */
    uint32_t budget;         /* tokens asked for */
    uint32_t live;           /* of them, what memory allows now */
    uint32_t slack, recent;  /* tokens; what fits beside the budget */
    ag_eviction_scratch tmp; /* owned */
    ag_score_sums *sums;     /* owned; of attention so far; NULL: the policy wants none */
    ag_chunk_scores *chunks; /* owned; NULL: the policy wants none */
    ag_spill *spill;         /* owned; NULL: what leaves is lost */
    ag_recall *recall;       /* owned; the same */
    ag_turns turns;
    ag_manager_stage stage;
    size_t n_begun;          /* tokens of the call */
    size_t n_pass;           /* of them in the pass */
    ag_head_lengths lengths; /* of the heads */
    bool due;                /* the pass that has begun will exceed the budget */
    ag_pending_scores scores;
    ag_pending_eviction eviction; /* after `scores` */
    uint32_t oldest;              /* lowest position that is not protected; UINT32_MAX: not known */
    ag_sys_monitor *monitor; /* owned; NULL: memory is not watched, or by the caller's function */
    ag_pressure_state pressure;
    ag_pressure hint;
    bool polled, refuse, relief_due;
    uint64_t polled_ms;
    ag_eviction_stats total, last;
};

/* Heads share what their layer keeps. */
static inline bool ag_manager_heads_share(const ag_cache_manager *m) {
    return m->params.head_budget != AG_HEAD_BUDGET_EVEN;
}
/* What the prefix and the newest tokens take: less cannot be asked for. */
uint32_t ag_manager_fewest(const ag_cache_manager *m);
ag_head_limits ag_manager_limits(const ag_cache_manager *m);
void ag_manager_set_lengths(ag_cache_manager *m, ag_head_lengths lengths);

/* Heads that hold more than the budget lose what the policy says, and what has expired before the
 * token at `position`; UINT32_MAX: that alone. */
ag_status ag_manager_evict(ag_cache_manager *m, uint32_t budget, uint32_t position,
                           ag_eviction_reason reason, ag_error *err);
/* The same in two parts: an eviction becomes pending, and what is left of it is done. */
void ag_manager_plan_eviction(ag_cache_manager *m, uint32_t budget, uint32_t position,
                              ag_eviction_reason reason);
ag_status ag_manager_continue_eviction(ag_cache_manager *m, ag_error *err);

#endif
