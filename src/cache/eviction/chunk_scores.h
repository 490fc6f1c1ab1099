/* SPDX-License-Identifier: Apache-2.0 */
/* Chunk scores: attention inside the chunks of a prompt, without a causal mask, for
 * AG_IMPORTANCE_CHUNK. Keys are read from the cache; queries are rows of passes. If a pass ends
 * inside a chunk, its queries are stored until the rest arrives, so that sums do not depend on
 * the passes. Every function accepts NULL: the policy uses no chunks. */
#ifndef AG_CACHE_EVICTION_CHUNK_SCORES_H
#define AG_CACHE_EVICTION_CHUNK_SCORES_H

#include "cache/eviction/score_sums.h"

enum {
    AG_CHUNK = 256,     /* positions of a chunk */
    AG_CHUNK_FIRST = 8, /* position where the first chunk begins */
    AG_CHUNK_LAST = 4,  /* last tokens of a prompt, which are in no chunk */
};

typedef struct ag_chunk_scores ag_chunk_scores;

/* Borrows the cache. *out is NULL if the policy uses
 * no chunks. */
ag_status ag_chunk_scores_create(const ag_eviction_params *p, const ag_kv_cache *cache,
                                 ag_chunk_scores **out, ag_error *err);
void ag_chunk_scores_destroy(ag_chunk_scores *c);
/* Returns the maximum bytes, with the stored queries of an unfinished chunk. query_values:
 * values of the queries of a token in all layers, plus once more those of the largest layer. */
size_t ag_chunk_scores_bytes(const ag_eviction_params *p, const ag_kv_params *kv,
                             size_t query_values);

/* Returns how many of n rows from `position` on a pass should take: up to the end of the last
 * chunk that ends there, else n. */
size_t ag_chunk_scores_cut(const ag_chunk_scores *c, uint32_t position, size_t n);
/* Begins a pass of n rows of a prompt from `position` on, which n_remaining rows follow.
 * `close`: the last chunk ends with this pass. Returns whether the pass adds to sums. */
bool ag_chunk_scores_begin(ag_chunk_scores *c, uint32_t position, size_t n, size_t n_remaining,
                           bool close);
/* Adds the attention of a layer, after its keys have been cached. q: rows of the pass [n,
 * n_heads, head_dim], rotated; out: scratch of the same shape. `seq` holds the layer's view and
 * sums. */
ag_status ag_chunk_scores_add(ag_chunk_scores *c, uint32_t layer, const ag_tensor *q,
                              ag_tensor *out, ag_attention_seq *seq,
                              const ag_attention_params *params, ag_error *err);
/* Ends the pass. */
void ag_chunk_scores_end(ag_chunk_scores *c);
/* Call after the cache has been truncated to `position`, or after a failed pass and before
 * truncation. */
void ag_chunk_scores_truncate(ag_chunk_scores *c, uint32_t position);
/* Copies the stored rows of an unfinished chunk from another cache's. */
ag_status ag_chunk_scores_copy(ag_chunk_scores *to, const ag_chunk_scores *from, ag_error *err);

#endif
