/* SPDX-License-Identifier: Apache-2.0 */
/* Score sums: attention weights summed per slot, which move with the slots. Stored on the host,
 * or in device memory if the backend sums there; callers need not know which. Every function
 * except ag_score_sums_of() accepts NULL: the policy uses no attention. */
#ifndef AG_CACHE_EVICTION_SCORE_SUMS_H
#define AG_CACHE_EVICTION_SCORE_SUMS_H

#include "cache/kv_cache.h"

#include <antigravity/eviction.h>

typedef struct ag_score_sums ag_score_sums;
struct ag_chunk_scores;
struct ag_reloader;

/* Attention weights that a pass must collect, of its rows from row0 on. */
typedef struct ag_attention_scores {
    ag_score_sums *sums;   /* borrowed; NULL: none */
    size_t row0;           /* index among the sequence's rows */
    bool max;              /* store the maximum weight instead of the sum */
    const uint32_t *until; /* [heads of all layers] slots whose sums will be read; NULL: all */
    struct ag_chunk_scores *chunks; /* borrowed; not NULL: weights inside chunks only */
    struct ag_reloader *reloader;   /* borrowed; not NULL: reload spilled blocks during the pass */
} ag_attention_scores;

/* Fills in the score fields of `seq` for a layer. */
void ag_score_sums_set_layer(const ag_attention_scores *scores, uint32_t layer,
                             ag_attention_seq *seq);

/* Creates sums for the slots of a cache, which is borrowed. *out is NULL if the policy uses no
 * attention. */
ag_status ag_score_sums_create(const ag_eviction_policy *policy, const ag_kv_cache *cache,
                               ag_score_sums **out, ag_error *err);
/* Does the same for any policy. */
ag_status ag_score_sums_create_for(const ag_kv_cache *cache, ag_score_sums **out, ag_error *err);
void ag_score_sums_destroy(ag_score_sums *s);
size_t ag_score_sums_bytes(const ag_eviction_policy *policy, const ag_kv_params *kv);
/* Assigns the sums to the slots of another cache of the same parameters. */
void ag_score_sums_set_cache(ag_score_sums *s, const ag_kv_cache *cache);
/* Copies the sums of the cache that this cache was forked from. */
ag_status ag_score_sums_copy(ag_score_sums *to, ag_score_sums *from, ag_error *err);

/* Returns the position from which on slots came after the sums were normalised; 0 without sums. */
uint32_t ag_score_sums_position(const ag_score_sums *s);
void ag_score_sums_set_position(ag_score_sums *s, uint32_t position);

/* Prepares for n more slots, whose sums start at 0. from_zero: restarts the sums of all slots. */
void ag_score_sums_begin(ag_score_sums *s, size_t n, bool from_zero);
/* Returns the request for the pass that begins now, from row row0 on. */
ag_attention_scores ag_score_sums_request(ag_score_sums *s, size_t row0);
/* Call when the pass has failed: its weights may be missing for some slots. */
void ag_score_sums_abandon(ag_score_sums *s);
/* Call after the cache has been truncated to `position`. */
void ag_score_sums_truncate(ag_score_sums *s, uint32_t position);

/* Loads the sums of a layer for reading. Must be called before the layer's slots move. */
ag_status ag_score_sums_fetch(ag_score_sums *s, uint32_t layer, ag_error *err);
/* Replaces fetch() if all sums of the layer will be written. */
void ag_score_sums_replace(ag_score_sums *s, uint32_t layer);
/* Returns the sums [n_slots] of a head, borrowed. Valid between fetch() or replace() and
 * store(). */
float *ag_score_sums_of(const ag_score_sums *s, uint32_t layer, uint32_t head);
/* Moves the sums of slots keep[0..n_keep) together, after the slots. The layer must have been
 * fetched. */
void ag_score_sums_compact(ag_score_sums *s, uint32_t layer, uint32_t head, const uint32_t *keep,
                           uint32_t n_keep);
/* Inserts sums for slots[0..n), ascending, which have been inserted into the head. Host sums
 * only. */
void ag_score_sums_insert(ag_score_sums *s, uint32_t layer, uint32_t head, const uint32_t *slots,
                          const float *values, uint32_t n);
/* Stores the sums of a layer after its slots have moved. `written`: the caller has changed
 * values. If it fails, ag_score_sums_flush() must succeed before another layer is fetched. */
ag_status ag_score_sums_store(ag_score_sums *s, uint32_t layer, bool written, ag_error *err);
ag_status ag_score_sums_flush(ag_score_sums *s, ag_error *err);

#endif
