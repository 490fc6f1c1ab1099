/* SPDX-License-Identifier: Apache-2.0 */
/* Attention inside the chunks of a prompt, without a causal mask: AG_IMPORTANCE_CHUNK. A chunk's
 * keys are in the cache and its queries are rows of passes; those of a chunk that a pass cuts are
 * kept until the rest of it is there, so that sums do not depend on where passes are cut. An
 * ag_chunk_scores that is NULL (nobody wants them) is fine everywhere. */
#ifndef AG_CACHE_EVICTION_CHUNK_SCORES_H
#define AG_CACHE_EVICTION_CHUNK_SCORES_H

#include "cache/eviction/score_sums.h"

enum {
    AG_CHUNK = 256,     /* positions */
    AG_CHUNK_FIRST = 8, /* the first chunk begins there */
    AG_CHUNK_LAST = 4,  /* last tokens of a prompt that belong to no chunk */
};

typedef struct ag_chunk_scores ag_chunk_scores;

/* The cache is borrowed. query_scale: ag_compactor_params. *out is NULL if the policy does not want
 * chunks. */
ag_status ag_chunk_scores_create(const ag_eviction_params *p, const ag_kv_cache *cache,
                                 ag_chunk_scores **out, ag_error *err);
void ag_chunk_scores_destroy(ag_chunk_scores *c);
/* Bytes at most, the queries of a chunk that is cut included. query_values: of a token's queries in
 * all layers of the cache, and once more in the largest. */
size_t ag_chunk_scores_bytes(const ag_eviction_params *p, const ag_kv_params *kv,
                             size_t query_values);

/* Of n rows from `position` on, how many a pass is best to take: up to the end of a chunk, if one
 * ends there. */
size_t ag_chunk_scores_cut(const ag_chunk_scores *c, uint32_t position, size_t n);
/* A pass takes n rows of a prompt from `position` on, n_left more follow; `close`: the chunk at its
 * end has no more rows. Whether the pass adds to sums. */
bool ag_chunk_scores_begin(ag_chunk_scores *c, uint32_t position, size_t n, size_t n_remaining,
                           bool close);
/* In each layer, when keys are in the cache. q: the pass's rows [n, n_heads, head_dim], turned;
 * out: as large, overwritten. `part` has the layer's view and sums. */
ag_status ag_chunk_scores_add(ag_chunk_scores *c, uint32_t layer, const ag_tensor *q,
                              ag_tensor *out, ag_attention_seq *seq,
                              const ag_attention_params *params, ag_error *err);
/* The pass is done. */
void ag_chunk_scores_end(ag_chunk_scores *c);
/* The cache has been truncated to `position`, or the pass has failed and it is going to be. */
void ag_chunk_scores_truncate(ag_chunk_scores *c, uint32_t position);
/* What `from` keeps of a chunk, another cache's chunk has as well. */
ag_status ag_chunk_scores_copy(ag_chunk_scores *to, const ag_chunk_scores *from, ag_error *err);

#endif
