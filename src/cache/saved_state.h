/* SPDX-License-Identifier: Apache-2.0 */
/* A cache and its policy's sums as a stream of bytes: docs/saved-cache.md says in which order. */
#ifndef AG_CACHE_SAVED_STATE_H
#define AG_CACHE_SAVED_STATE_H

#include "cache/eviction/score_sums.h"

/* n bytes to, or from, wherever `user` keeps them. */
typedef ag_status (*ag_put_fn)(void *user, const void *bytes, size_t n, ag_error *err);
typedef ag_status (*ag_get_fn)(void *user, void *bytes, size_t n, ag_error *err);

/* AG_FORMAT, after `name`, unless the n rows [dim] hold numbers that a cache of cache_type can hold
 * and attention can multiply: in F16 up to 65504, in other types up to 1e18. `type`: of the rows.
 */
ag_status ag_check_saved_rows(ag_dtype cache_type, ag_dtype type, const void *rows, size_t n,
                              size_t dim, const char *name, ag_error *err);

/* Bytes that ag_kv_cache_save writes for so many slots, [n_layers * n_kv_heads]; UINT64_MAX if they
 * cannot be counted. */
uint64_t ag_kv_cache_saved_bytes(const ag_kv_params *p, const uint32_t *n_slots);
/* Through a buffer of one block's rows: there is no second copy of the cache. */
ag_status ag_kv_cache_save(ag_kv_cache *c, ag_put_fn put, void *user, ag_error *err);
/* Into an empty cache: as many slots as n_slots says, which are at most max_slots, of a sequence
 * that stands at `position`. AG_FORMAT, after `name`, for a slot whose position makes no sense, or
 * whose keys or values ag_check_saved_rows() refuses. After a failure the cache is good only for
 * being destroyed. */
ag_status ag_kv_cache_load(ag_kv_cache *c, const uint32_t *n_slots, uint32_t position,
                           const char *name, ag_get_fn get, void *user, ag_error *err);
/* Exchanges what two caches of equal parameters hold; views of both are invalid. */
void ag_kv_cache_swap(ag_kv_cache *a, ag_kv_cache *b);

/* The sums of a policy that wants attention; nothing for others, whose sums are NULL. */
uint64_t ag_score_sums_saved_bytes(const ag_score_sums *sums, const ag_kv_params *p,
                                   const uint32_t *n_slots);
ag_status ag_score_sums_save(ag_score_sums *sums, const ag_kv_cache *cache, ag_put_fn put,
                             void *user, ag_error *err);
ag_status ag_score_sums_load(ag_score_sums *sums, const ag_kv_cache *cache, ag_get_fn get,
                             void *user, ag_error *err);

#endif
