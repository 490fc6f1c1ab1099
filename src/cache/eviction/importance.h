/* SPDX-License-Identifier: Apache-2.0 */
/* What policies ask for: the importance of slots, made of attention or of keys. */
#ifndef AG_CACHE_EVICTION_IMPORTANCE_H
#define AG_CACHE_EVICTION_IMPORTANCE_H

#include "cache/eviction/allocate.h"
#include "cache/eviction/score_sums.h"

/* What selecting needs to write on: one head's worth, but for KEYS, whose heads are scored by
 * several workers at once. */
typedef struct ag_eviction_scratch {
    /* For the layers of most slots, heads and values: */
    uint32_t *keep, *work, *positions; /* [slots] */
    float *values;                     /* the same */
    float *importance;      /* [slots]; from_keys, and with adaptive heads: [heads][slots] */
    uint32_t *n_keep;       /* [heads] */
    ag_head_bounds *bounds; /* [heads] */
    /* Adaptive heads, else NULL: */
    ag_eviction_view *views; /* [heads] */
    float *ranked;           /* [heads * slots] */
    uint32_t *order, *best;  /* the same */
    /* from_keys; those that the policy does not ask for are NULL: */
    ag_eviction_inputs *heads; /* [heads] */
    uint32_t *head_positions;  /* [n_workers][slots] */
    float *keys, *head_values; /* [n_workers][slots][dim]; with values counted, of one worker */
    float *head_work;          /* [n_workers][work_floats] */
    float *far, *table;        /* [n_workers][dim]; of a rotation: ag_unrotate() */
    float *more;               /* [heads][slots] */
    float *mean;               /* [dim]; values counted */
    const float *table_of;     /* its frequencies */
    size_t work_floats;
    uint32_t n_workers;
    bool separate_heads; /* `importance` has all heads of a layer */
    bool
        per_head_importance; /* NEWEST: each head's own, for a layer's heads hold different slots */
} ag_eviction_scratch;

ag_status ag_eviction_scratch_create(ag_eviction_scratch *s, const ag_eviction_params *p,
                                     const ag_kv_cache *cache, ag_error *err);
void ag_eviction_scratch_release(ag_eviction_scratch *s);
/* If every worker has a thread. */
size_t ag_eviction_scratch_bytes(const ag_eviction_params *p, const ag_kv_params *kv);

/* The sums of a prefill become importance, from layer *layer on: see ag_eviction_policy.normalise.
 * The last n_window slots are the queries', `position` is the next token's. On an error *layer is
 * where to continue. */
ag_status ag_importance_normalise(ag_eviction_scratch *s, ag_score_sums *sums,
                                  const ag_eviction_params *p, const ag_kv_cache *cache,
                                  uint32_t position, uint32_t n_window, uint32_t *layer,
                                  ag_error *err);

/* Call the first once per layer, before any of its heads is compacted; they are to keep n_keep
 * slots together. rope: the layer's, read for policies that want keys unrotated. Then the second
 * for each head: it fills in v->importance. */
ag_status ag_importance_of_layer(ag_eviction_scratch *s, ag_score_sums *sums,
                                 const ag_eviction_params *p, ag_kv_cache *cache,
                                 const ag_rope_table *rope, uint32_t layer, size_t n_keep,
                                 ag_error *err);
ag_status ag_importance_of(ag_eviction_scratch *s, ag_score_sums *sums,
                           const ag_eviction_policy *policy, ag_kv_cache *cache, uint32_t layer,
                           uint32_t head, ag_eviction_view *v, ag_error *err);

#endif
