/* SPDX-License-Identifier: Apache-2.0 */
/* What policies ask for: attention gathered slot by slot, and the importance made of it. */
#ifndef AG_CACHE_EVICTION_IMPORTANCE_H
#define AG_CACHE_EVICTION_IMPORTANCE_H

#include "cache/cache_manager.h"

/* Attention that each slot received, moving with the slots. */
typedef struct ag_gathered {
    float *sums; /* owned; [n_layers][n_kv_heads][max_slots]; NULL if the policy wants none */
    size_t layer_stride, head_stride;
    uint32_t position; /* slots of lower positions were there when it was settled */
} ag_gathered;

ag_status ag_gathered_create(ag_gathered *g, const ag_eviction_policy *policy,
                             const ag_kv_params *kv, ag_error *err);
void ag_gathered_release(ag_gathered *g);
size_t ag_gathered_bytes(const ag_eviction_policy *policy, const ag_kv_params *kv);
/* The sums of another cache's slots, which this one's are as well. */
void ag_gathered_copy(ag_gathered *to, const ag_gathered *from, const ag_kv_cache *cache);
/* n more slots are coming; `from_zero`: those that are there start again too. */
void ag_gathered_begin(ag_gathered *g, const ag_kv_cache *cache, size_t n, bool from_zero);
ag_attention_scores ag_gathered_scores(const ag_gathered *g, size_t row0);
void ag_gathered_compact(ag_gathered *g, uint32_t layer, uint32_t head, const uint32_t *keep,
                         uint32_t n_keep);

/* What planning needs to write on: one head's worth, but for KEYS, whose heads are looked at by
 * several workers at once. */
typedef struct ag_eviction_scratch {
    uint32_t *keep, *work, *positions; /* [max_slots] */
    float *values;                     /* the same */
    float *importance;                 /* [max_slots]; KEYS: [n_kv_heads][max_slots] */
    float *keys, *mean; /* KEYS: [n_workers][max_slots][head_dim], [n_workers][head_dim] */
    uint32_t n_workers;
} ag_eviction_scratch;

ag_status ag_eviction_scratch_create(ag_eviction_scratch *s, const ag_eviction_policy *policy,
                                     const ag_kv_cache *cache, ag_error *err);
void ag_eviction_scratch_release(ag_eviction_scratch *s);
/* With as many threads as can be of use. */
size_t ag_eviction_scratch_bytes(const ag_eviction_policy *policy, const ag_kv_params *kv);

/* The sums of a prefill become importance: see ag_eviction_policy.settle. The last n_window slots
 * are the queries', `position` is the next token's. */
void ag_gathered_settle(ag_gathered *g, const ag_eviction_params *p, const ag_kv_cache *cache,
                        uint32_t position, uint32_t n_window, float *values);

/* First for a layer, of which no head is to keep more than `budget` slots, then for each of its
 * heads: fills in v->importance. */
ag_status ag_importance_of_layer(ag_eviction_scratch *s, const ag_gathered *g,
                                 const ag_eviction_policy *policy, ag_kv_cache *cache,
                                 uint32_t layer, uint32_t budget, ag_error *err);
void ag_importance_of(ag_eviction_scratch *s, const ag_gathered *g,
                      const ag_eviction_policy *policy, const ag_kv_cache *cache, uint32_t layer,
                      uint32_t head, ag_eviction_view *v);

#endif
