/* SPDX-License-Identifier: Apache-2.0 */
/* Evictor: runs evictions from one cache. Decides how many slots each head keeps, selects them
 * by the policy and reports the result. An eviction that fails stays pending and continues where
 * it failed. */
#ifndef AG_CACHE_EVICTOR_H
#define AG_CACHE_EVICTOR_H

#include "cache/eviction/importance.h"
#include "cache/head_lengths.h"
#include "cache/spill.h"
#include "cache/turns.h"

typedef struct ag_pending_eviction {
    bool is_pending;
    bool is_shared_out; /* n_keep, views and layer_keep of `scratch` are valid for `layer` */
    bool is_compared;   /* the views of `layer` hold importance */
    uint32_t budget, position;
    uint32_t n_to_remove;  /* slots that each head gives up if all heads share */
    uint32_t layer, head;  /* the next ones to evict from */
    size_t n_slots, bytes; /* in all layers before the eviction */
    ag_eviction report;
} ag_pending_eviction;

/* Starts zeroed. */
typedef struct ag_evictor {
    ag_eviction_params params;
    ag_kv_cache *cache;          /* borrowed */
    ag_rope_table *rope;         /* owned; [n_layers] */
    uint32_t trained;            /* positions that the model was trained for */
    uint32_t slack, recent;      /* tokens over the budget; newest tokens that always stay */
    ag_eviction_scratch scratch; /* owned */
    ag_score_sums *sums;         /* owned; attention so far; NULL: the policy uses none */
    ag_spill *spill;             /* owned; NULL: evicted slots are lost */
    ag_turns turns;              /* owned */
    ag_head_lengths lengths;
    ag_pending_eviction pending;
    uint32_t oldest; /* lowest unprotected position; UINT32_MAX: unknown */
    ag_eviction_stats total, last;
} ag_evictor;

/* Initialises an evictor and allocates all memory that evictions need. slack: maximum number of
 * tokens over the budget. After a failure the caller must call release(). */
ag_status ag_evictor_init(ag_evictor *e, ag_kv_cache *cache, const ag_eviction_params *p,
                          const ag_rope_table *rope, uint32_t trained, uint32_t slack,
                          ag_error *err);
void ag_evictor_release(ag_evictor *e);

/* Returns whether the heads of a layer share its slots. */
static inline bool ag_evictor_heads_share(const ag_evictor *e) {
    return e->params.head_budget != AG_HEAD_BUDGET_EVEN;
}
/* Returns the smallest possible budget: the protected prefix and the newest tokens. */
uint32_t ag_evictor_min_slots(const ag_evictor *e);
ag_head_limits ag_evictor_limits(const ag_evictor *e);
void ag_evictor_set_lengths(ag_evictor *e, ag_head_lengths lengths);

/* Makes an eviction pending. Heads above the budget lose what the policy selects, and slots that
 * expire before the token at `position`. budget UINT32_MAX: expired slots only. */
void ag_evictor_plan(ag_evictor *e, uint32_t budget, uint32_t position, ag_eviction_reason reason,
                     ag_pressure level);
/* Runs the pending eviction, if there is one. */
ag_status ag_evictor_continue(ag_evictor *e, ag_error *err);

#endif
