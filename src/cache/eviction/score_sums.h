/* SPDX-License-Identifier: Apache-2.0 */
/* Attention weights added up slot by slot, moving with the slots: on the host, or in the backend's
 * memory where it adds them up. Callers need not know where. An ag_score_sums that is NULL (nobody
 * wants them) is fine everywhere but in ag_score_sums_of(). */
#ifndef AG_CACHE_EVICTION_SCORE_SUMS_H
#define AG_CACHE_EVICTION_SCORE_SUMS_H

#include "cache/kv_cache.h"

#include <antigravity/eviction.h>

typedef struct ag_score_sums ag_score_sums;
struct ag_chunk_scores;
struct ag_reloader;

/* The weights of a pass's rows from row0 on are wanted. */
typedef struct ag_attention_scores {
    ag_score_sums *sums;   /* borrowed; NULL: nobody wants them */
    size_t row0;           /* of the sequence's rows */
    bool max;              /* the largest weights instead of sums */
    const uint32_t *until; /* [heads of all layers] slots whose sums will be read; NULL: all */
    struct ag_chunk_scores *chunks; /* borrowed; not NULL: those inside chunks, and no others */
    struct ag_reloader *reloader; /* borrowed; not NULL: spilled blocks may come back in the pass */
} ag_attention_scores;

/* What ag_attention_seq says of a layer's scores, from what is known of the whole pass. */
void ag_score_sums_set_layer(const ag_attention_scores *scores, uint32_t layer,
                             ag_attention_seq *seq);

/* For the slots of a cache, which is borrowed. *out is NULL if the policy does not want attention.
 */
ag_status ag_score_sums_create(const ag_eviction_policy *policy, const ag_kv_cache *cache,
                               ag_score_sums **out, ag_error *err);
/* The same whatever the policy wants. */
ag_status ag_score_sums_create_for(const ag_kv_cache *cache, ag_score_sums **out, ag_error *err);
void ag_score_sums_destroy(ag_score_sums *s);
size_t ag_score_sums_bytes(const ag_eviction_policy *policy, const ag_kv_params *kv);
/* The slots of another cache of the same parameters are now these. */
void ag_score_sums_set_cache(ag_score_sums *s, const ag_kv_cache *cache);
/* The sums of another cache's slots, which this one's are as well. */
ag_status ag_score_sums_copy(ag_score_sums *to, ag_score_sums *from, ag_error *err);

/* Slots of lower positions were there when the sums became importance; 0 without sums. */
uint32_t ag_score_sums_position(const ag_score_sums *s);
void ag_score_sums_set_position(ag_score_sums *s, uint32_t position);

/* n more slots are coming; `from_zero`: those that are there start again too. */
void ag_score_sums_begin(ag_score_sums *s, size_t n, bool from_zero);
/* For the pass that begins now. */
ag_attention_scores ag_score_sums_request(ag_score_sums *s, size_t row0);
/* The pass has failed: what it was to add is not there, at least not for every slot. */
void ag_score_sums_abandon(ag_score_sums *s);
/* The cache has been truncated to the position. */
void ag_score_sums_truncate(ag_score_sums *s, uint32_t position);

/* Before a layer's sums are read; its slots are still where they were. */
ag_status ag_score_sums_fetch(ag_score_sums *s, uint32_t layer, ag_error *err);
/* Instead, where all of them are going to be written. */
void ag_score_sums_replace(ag_score_sums *s, uint32_t layer);
/* A head's [n_slots], between fetching or replacing and storing: borrowed. */
float *ag_score_sums_of(const ag_score_sums *s, uint32_t layer, uint32_t head);
/* Slots keep[0..n_keep) of a head have moved together. Its layer was fetched before. */
void ag_score_sums_compact(ag_score_sums *s, uint32_t layer, uint32_t head, const uint32_t *keep,
                           uint32_t n_keep);
/* Slots slots[0..n), ascending, of a head have been put between the others, with these sums. Of
 * sums on the host. */
void ag_score_sums_insert(ag_score_sums *s, uint32_t layer, uint32_t head, const uint32_t *slots,
                          const float *values, uint32_t n);
/* After the layer's slots have moved; `written`: what ag_score_sums_of() gave was changed. If it
 * fails ag_score_sums_flush() does it again, before any other layer is fetched. */
ag_status ag_score_sums_store(ag_score_sums *s, uint32_t layer, bool written, ag_error *err);
ag_status ag_score_sums_flush(ag_score_sums *s, ag_error *err);

#endif
