/* SPDX-License-Identifier: Apache-2.0 */
/* Shares the slots that a layer keeps among its heads, by the scores of all slots. Source:
 * AdaKV, arXiv:2407.11550. */
#ifndef AG_CACHE_EVICTION_ALLOCATE_H
#define AG_CACHE_EVICTION_ALLOCATE_H

#include <antigravity/eviction.h>

/* Share of an even allocation that every head keeps, whatever its scores are. */
#define AG_HEAD_SAFE_SHARE 0.2

/* Returns whether heads share by the scores of their slots. */
static inline bool ag_heads_by_scores(ag_head_budget b) {
    return b == AG_HEAD_BUDGET_ADAPTIVE || b == AG_HEAD_BUDGET_VALUES;
}

/* Input and scratch of ag_evict_allocate(). */
typedef struct ag_allocation {
    size_t total; /* slots that the layer keeps */
    uint32_t max; /* slots of one head */
    /* Scratch, [n_heads * slots of the longest head]: */
    float *scores;
    uint32_t *order, *keep;
} ag_allocation;

/* Sets n_keep[h] to the number of slots that head h keeps. A head keeps its protected and newest
 * slots, and at least AG_HEAD_SAFE_SHARE of total / n_heads. The rest goes to the best scores of
 * the layer; ties go to the lower slot, then the lower head. Slots from n_scored on rank below all
 * others, the oldest lowest. The sum is `total`, or less if the heads may not keep that many.
 *   heads [n_heads] with importance, values and work; values and work may be shared
 *   n_protected + n_recent of all heads together must be at most `total` */
void ag_evict_allocate(const ag_eviction_view *heads, uint32_t n_heads, const ag_allocation *a,
                       uint32_t *n_keep);

/* Minimum and maximum slots of a head that shares by given shares. */
typedef struct ag_head_bounds {
    uint32_t min, max;
} ag_head_bounds;

/* Sets n_keep[h] in proportion to shares [n_heads], within the bounds. The sum is `total`, or
 * the nearest sum within the bounds. */
void ag_evict_allocate_shares(const ag_head_bounds *heads, const float *shares, uint32_t n_heads,
                              size_t total, uint32_t *n_keep);

#endif
