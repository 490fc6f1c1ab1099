/* SPDX-License-Identifier: Apache-2.0 */
/* How many of a layer's slots each of its heads keeps, by the scores of all of them.
 * Source: AdaKV, arXiv:2407.11550. */
#ifndef AG_CACHE_EVICTION_ALLOCATE_H
#define AG_CACHE_EVICTION_ALLOCATE_H

#include <antigravity/eviction.h>

/* Of its even share a head keeps so much, whatever its slots are worth. */
#define AG_HEAD_SAFE_SHARE 0.2

/* Whether heads share by the scores of their slots. */
static inline bool ag_heads_by_scores(ag_head_budget b) {
    return b == AG_HEAD_BUDGET_ADAPTIVE || b == AG_HEAD_BUDGET_VALUES;
}

/* Of what a layer keeps. */
typedef struct ag_allocation {
    size_t total; /* slots of all heads together */
    uint32_t max; /* of one head */
    /* [n_heads * slots of the longest head] to write on: */
    float *scores;
    uint32_t *order, *keep;
} ag_allocation;

/* n_keep[h] := the slots that head h keeps. Protected and newest slots are among them, and with
 * these at least AG_HEAD_SAFE_SHARE of total / n_heads; the rest goes to the layer's best scores,
 * among equals to the lower slot, then the lower head. Slots from n_scored on rank below all
 * others, the oldest lowest. Their sum is `total`, or what all heads may keep if that is less.
 *   heads [n_heads]  with importance, and values and work, which may be the same for all of them
 *                    n_protected + n_recent of all heads together: at most `total` */
void ag_evict_allocate(const ag_eviction_view *heads, uint32_t n_heads, const ag_allocation *a,
                       uint32_t *n_keep);

/* A head when shares say what it keeps: so many slots at least and at most. */
typedef struct ag_head_bounds {
    uint32_t min, max;
} ag_head_bounds;

/* n_keep[h] := in proportion to shares [n_heads], as far as the bounds allow. Their sum is `total`,
 * or the nearest to it within the bounds. */
void ag_evict_allocate_shares(const ag_head_bounds *heads, const float *shares, uint32_t n_heads,
                              size_t total, uint32_t *n_keep);

#endif
