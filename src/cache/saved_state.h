/* SPDX-License-Identifier: Apache-2.0 */
/* Saves and loads a cache and the sums of its policy as a stream of bytes.
 * docs/reference/saved-cache-format.md defines the order. */
#ifndef AG_CACHE_SAVED_STATE_H
#define AG_CACHE_SAVED_STATE_H

#include "cache/eviction/score_sums.h"

/* Write and read n bytes of the stream. */
typedef ag_status (*ag_put_fn)(void *user, const void *bytes, size_t n, ag_error *err);
typedef ag_status (*ag_get_fn)(void *user, void *bytes, size_t n, ag_error *err);

/* Checks n rows [dim] of `type`. Fails with AG_FORMAT, after `name`, if a value is not finite or
 * too large for a cache of cache_type: 65504 for F16, 1e18 for other types. */
ag_status ag_check_saved_rows(ag_dtype cache_type, ag_dtype type, const void *rows, size_t n,
                              size_t dim, const char *name, ag_error *err);

/* Returns the bytes that ag_kv_cache_save() writes for n_slots [n_layers * n_kv_heads];
 * UINT64_MAX on overflow. */
uint64_t ag_kv_cache_saved_bytes(const ag_kv_params *p, const uint32_t *n_slots);
/* Saves the cache through a buffer of one block's rows, without a second copy of the cache. */
ag_status ag_kv_cache_save(ag_kv_cache *c, ag_put_fn put, void *user, ag_error *err);
/* Loads n_slots slots per head, at most max_slots, of a sequence at `position` into an empty
 * cache. Fails with AG_FORMAT, after `name`, if a position is out of order or
 * ag_check_saved_rows() fails. After a failure the cache may only be destroyed. */
ag_status ag_kv_cache_load(ag_kv_cache *c, const uint32_t *n_slots, uint32_t position,
                           const char *name, ag_get_fn get, void *user, ag_error *err);
/* Exchanges the contents of two caches of equal parameters. Views of both become invalid. */
void ag_kv_cache_swap(ag_kv_cache *a, ag_kv_cache *b);

/* Save and load the sums of a policy that uses attention. NULL sums take no bytes. */
uint64_t ag_score_sums_saved_bytes(const ag_score_sums *sums, const ag_kv_params *p,
                                   const uint32_t *n_slots);
ag_status ag_score_sums_save(ag_score_sums *sums, const ag_kv_cache *cache, ag_put_fn put,
                             void *user, ag_error *err);
ag_status ag_score_sums_load(ag_score_sums *sums, const ag_kv_cache *cache, ag_get_fn get,
                             void *user, ag_error *err);

#endif
