/* SPDX-License-Identifier: Apache-2.0 */
/* Evictions from one cache: how many slots each head keeps, which ones by the policy, and the
 * report. An eviction that fails stays pending and continues where it failed. */
#ifndef AG_CACHE_EVICTOR_H
#define AG_CACHE_EVICTOR_H

#include "cache/eviction/importance.h"
#include "cache/head_lengths.h"
#include "cache/spill.h"
#include "cache/turns.h"

typedef struct ag_pending_eviction {
    bool is_pending;
    bool is_shared_out; /* n_keep and views of `tmp` say which slots each head of `layer` keeps */
    bool is_compared;   /* its heads have been compared by importance, which is in the views */
    uint32_t budget, position;
    uint32_t n_to_remove;  /* slots that each head gives up where all share */
    uint32_t layer, head;  /* the next ones */
    size_t n_slots, bytes; /* all layers hold them before the eviction */
    ag_eviction report;
} ag_pending_eviction;

/* Starts zeroed. */
typedef struct ag_evictor {
    ag_eviction_params params;
    ag_kv_cache *cache;          /* borrowed */
    ag_rope_table *rope;         /* owned; [n_layers] */
    uint32_t trained;            /* positions */
    uint32_t slack, recent;      /* tokens; what fits beside the budget */
    ag_eviction_scratch scratch; /* owned */
    ag_score_sums *sums;         /* owned; of attention so far; NULL: the policy wants none */
    ag_spill *spill;             /* owned; NULL: what leaves is lost */
    ag_turns turns;              /* owned */
    ag_head_lengths lengths;     /* of the heads */
    ag_pending_eviction pending;
    uint32_t oldest; /* lowest position that is not protected; UINT32_MAX: not known */
    ag_eviction_stats total, last;
} ag_evictor;

/* Allocates all that evictions need. slack: tokens over the budget, at most. After a failure
 * release() frees what was made. */
ag_status ag_evictor_init(ag_evictor *e, ag_kv_cache *cache, const ag_eviction_params *p,
                          const ag_rope_table *rope, uint32_t trained, uint32_t slack,
                          ag_error *err);
void ag_evictor_release(ag_evictor *e);

/* Heads share what their layer keeps. */
static inline bool ag_evictor_heads_share(const ag_evictor *e) {
    return e->params.head_budget != AG_HEAD_BUDGET_EVEN;
}
/* What the prefix and the newest tokens take: less cannot be asked for. */
uint32_t ag_evictor_min_slots(const ag_evictor *e);
ag_head_limits ag_evictor_limits(const ag_evictor *e);
void ag_evictor_set_lengths(ag_evictor *e, ag_head_lengths lengths);

/* An eviction becomes pending: heads that hold more than the budget lose what the policy says, and
 * what has expired before the token at `position`; budget UINT32_MAX: that alone. */
void ag_evictor_plan(ag_evictor *e, uint32_t budget, uint32_t position, ag_eviction_reason reason,
                     ag_pressure level);
/* Does what is pending. */
ag_status ag_evictor_continue(ag_evictor *e, ag_error *err);

#endif
