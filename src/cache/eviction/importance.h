/* SPDX-License-Identifier: Apache-2.0 */
/* Importance of slots: computes it for a policy from sums of attention or from keys. */
#ifndef AG_CACHE_EVICTION_IMPORTANCE_H
#define AG_CACHE_EVICTION_IMPORTANCE_H

#include "cache/eviction/allocate.h"
#include "cache/eviction/score_sums.h"
#include "cache/kv_cache.h"
#include <stddef.h>

/* Scratch memory of evictions. Holds one head, except for policies that score keys, whose heads
 * are scored by several workers at once, and for functions of a policy that get an entire layer. */
typedef struct ag_eviction_scratch {
    void *memory; /* owned; holds all arrays */
    /* Sized for the layers with the most slots, heads and values: */
    uint32_t *keep, *work, *positions; /* [slots] */
    float *values;                     /* [slots] */
    float *importance;                 /* [slots]; if separate_heads: [heads][slots] */
    uint32_t *n_keep;                  /* [heads] */
    ag_head_bounds *bounds;            /* [heads] */
    /* For heads that share by scores, else NULL: */
    ag_eviction_view *views; /* [heads] */
    float *ranked;           /* [heads * slots] */
    uint32_t *order, *best;  /* [heads * slots] */
    /* For select_layer(), else NULL: */
    ag_eviction_head *selections;           /* [heads] */
    uint32_t *layer_keep, *layer_positions; /* [heads * slots] */
    /* For from_keys(); NULL if the policy does not need them: */
    ag_eviction_inputs *heads; /* [heads] */
    uint32_t *head_positions;  /* [n_workers][slots] */
    float *keys, *head_values; /* [n_workers][slots][dim]; if values are counted, one worker's */
    float *head_work;          /* [n_workers][work_floats] */
    float *far, *table;        /* [n_workers][dim]; table of ag_unrotate_table() */
    float *more;               /* [heads][slots] */
    float *mean;               /* [dim]; if values are counted */
    const float *table_of;     /* frequencies for which `table` was computed */
    size_t work_floats;
    uint32_t n_workers;
    bool separate_heads;      /* `importance` holds all heads of a layer */
    bool per_head_importance; /* heads hold different slots: NEWEST is not averaged over them */
} ag_eviction_scratch;

ag_status ag_eviction_scratch_create(ag_eviction_scratch *s, const ag_eviction_params *p,
                                     const ag_kv_cache *cache, ag_error *err);
void ag_eviction_scratch_release(ag_eviction_scratch *s);
/* Returns the bytes of a scratch if every worker has a thread. */
size_t ag_eviction_scratch_bytes(const ag_eviction_params *p, const ag_kv_params *kv);

/* Turns the sums of a prefill into importance by ag_eviction_policy.normalise, from layer *layer
 * on. The last n_window slots are those of the queries; `position` is the next token's. After an
 * error *layer is where to continue. */
ag_status ag_importance_normalise(ag_eviction_scratch *s, ag_score_sums *sums,
                                  const ag_eviction_params *p, const ag_kv_cache *cache,
                                  uint32_t position, uint32_t n_window, uint32_t *layer,
                                  ag_error *err);

/* Compute importance. Call the first once per layer, before any of its heads is compacted; the
 * heads will keep n_keep slots together. rope: rotation of the layer, for policies that use
 * unrotated keys. Then call the second for each head: it sets v->importance. */
ag_status ag_importance_of_layer(ag_eviction_scratch *s, ag_score_sums *sums,
                                 const ag_eviction_params *p, ag_kv_cache *cache,
                                 const ag_rope_table *rope, uint32_t layer, size_t n_keep,
                                 ag_error *err);
ag_status ag_importance_of(ag_eviction_scratch *s, ag_score_sums *sums,
                           const ag_eviction_policy *policy, ag_kv_cache *cache, uint32_t layer,
                           uint32_t head, ag_eviction_view *v, ag_error *err);

/* value_losses.c. Replaces importance[n], the attention that slots received, by the change of the
 * mean query's output if the slot is removed. The change is p / (1 - p) |v - o|: p is the slot's
 * share of the attention, v its value, o the sum of all p v. Results are comparable among heads.
 * Slots without attention stay 0 and INFINITY stays; without any attention nothing changes.
 *   values  [n, dim]
 *   mean    [dim] scratch
 * Source: DropKV (NVIDIA/kvpress, pull request 285), which does it for each query of a window. */
void ag_value_losses(float *importance, size_t n, const float *values, size_t dim, float *mean);

/* unrotate.c. Returns the floats of the table for a rotation of n_rotated values. */
size_t ag_unrotate_table_floats(uint32_t n_rotated);

/* Computes the table of a rotation for ag_unrotate(). */
void ag_unrotate_table(const ag_rope_table *rope, float *table);
/* Unrotates keys [n, dim] at positions[n], which must ascend. table: ag_unrotate_table(rope);
 * far [rope->n_rotated] is scratch. */
void ag_unrotate(float *keys, size_t n, size_t dim, const uint32_t *positions,
                 const ag_rope_table *rope, const float *table, float *far);

#endif
