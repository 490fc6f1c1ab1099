/* SPDX-License-Identifier: Apache-2.0 */
/* What policies ask for: attention gathered slot by slot, and the importance made of it. */
#ifndef AG_CACHE_EVICTION_IMPORTANCE_H
#define AG_CACHE_EVICTION_IMPORTANCE_H

#include "cache/cache_manager.h"

/* Attention that each slot received, moving with the slots. */
typedef struct ag_gathered {
    float *sums;       /* owned; per layer [n_kv_heads][max_slots]; NULL if the policy wants none */
    uint32_t position; /* slots of lower positions were there when it was settled */
    /* Where the backend adds attention up; `sums` are then those of one layer on the host. */
    ag_buffer *held;  /* owned; per layer [max_slots][n_kv_heads] */
    float *rows;      /* owned; those of a layer on their way */
    uint32_t *scored; /* owned; per layer [n_kv_heads] first slots with sums; others' are 0 */
    uint32_t layer;   /* whose sums are on the host; UINT32_MAX: nobody's */
    bool changed;     /* there */
    bool counting;    /* in the last pass attention was added */
} ag_gathered;

/* *g is zeroed. */
ag_status ag_gathered_create(ag_gathered *g, const ag_eviction_policy *policy,
                             const ag_kv_cache *cache, ag_error *err);
void ag_gathered_release(ag_gathered *g);
size_t ag_gathered_bytes(const ag_eviction_policy *policy, const ag_kv_params *kv);
/* The sums of another cache's slots, which this one's are as well. */
ag_status ag_gathered_copy(ag_gathered *to, ag_gathered *from, const ag_kv_cache *cache,
                           ag_error *err);
/* The cache has been truncated to the position. */
void ag_gathered_truncate(ag_gathered *g, const ag_kv_cache *cache, uint32_t position);
/* n more slots are coming; `from_zero`: those that are there start again too. */
void ag_gathered_begin(ag_gathered *g, const ag_kv_cache *cache, size_t n, bool from_zero);
/* For the pass that begins now. */
ag_attention_scores ag_gathered_scores(ag_gathered *g, size_t row0);
ag_status ag_gathered_compact(ag_gathered *g, const ag_kv_cache *cache, uint32_t layer,
                              uint32_t head, const uint32_t *keep, uint32_t n_keep, ag_error *err);
/* Before a layer's sums are looked at; its slots are still where they were. */
ag_status ag_gathered_fetch(ag_gathered *g, const ag_kv_cache *cache, uint32_t layer,
                            ag_error *err);
/* Instead, where all of them are going to be written. */
void ag_gathered_replace(ag_gathered *g, uint32_t layer);
/* A head's, once they are fetched: borrowed. */
float *ag_gathered_of(const ag_gathered *g, const ag_kv_cache *cache, uint32_t layer,
                      uint32_t head);
/* After the layer's slots have moved, or its sums have changed. */
ag_status ag_gathered_store(ag_gathered *g, const ag_kv_cache *cache, uint32_t layer,
                            ag_error *err);

/* What planning needs to write on: one head's worth, but for KEYS, whose heads are looked at by
 * several workers at once. */
typedef struct ag_eviction_scratch {
    /* For the layers of most slots, heads and values: */
    uint32_t *keep, *work, *positions; /* [slots] */
    float *values;                     /* the same */
    float *importance;                 /* [slots]; KEYS: [heads][slots] */
    float *keys, *mean;                /* KEYS: [n_workers][slots][dim], [n_workers][dim] */
    uint32_t n_workers;
} ag_eviction_scratch;

ag_status ag_eviction_scratch_create(ag_eviction_scratch *s, const ag_eviction_policy *policy,
                                     const ag_kv_cache *cache, ag_error *err);
void ag_eviction_scratch_release(ag_eviction_scratch *s);
/* With as many threads as can be of use. */
size_t ag_eviction_scratch_bytes(const ag_eviction_policy *policy, const ag_kv_params *kv);

/* The sums of a prefill become importance: see ag_eviction_policy.settle. The last n_window slots
 * are the queries', `position` is the next token's. */
ag_status ag_gathered_settle(ag_gathered *g, const ag_eviction_params *p, const ag_kv_cache *cache,
                             uint32_t position, uint32_t n_window, float *values, ag_error *err);

/* First for a layer, of which no head is to keep more than `budget` slots, then for each of its
 * heads: fills in v->importance. */
ag_status ag_importance_of_layer(ag_eviction_scratch *s, ag_gathered *g,
                                 const ag_eviction_policy *policy, ag_kv_cache *cache,
                                 uint32_t layer, uint32_t budget, ag_error *err);
ag_status ag_importance_of(ag_eviction_scratch *s, ag_gathered *g, const ag_eviction_policy *policy,
                           const ag_kv_cache *cache, uint32_t layer, uint32_t head,
                           ag_eviction_view *v, ag_error *err);

#endif
