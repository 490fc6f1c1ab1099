/* SPDX-License-Identifier: Apache-2.0 */
/* Spilled blocks as a stream of bytes: docs/saved-cache.md says in which order. */
#ifndef AG_CACHE_SPILL_SAVED_H
#define AG_CACHE_SPILL_SAVED_H

#include "cache/saved_state.h"
#include "cache/spill.h"

/* Bytes that ag_spill_save writes. */
uint64_t ag_spill_saved_bytes(const ag_spill *s);
/* Blocks that cannot be read are saved without slots. */
ag_status ag_spill_save(ag_spill *s, ag_put_fn put, void *user, ag_error *err);
/* n_bytes of blocks of a sequence that stands at `position` and of which the cache holds the other
 * slots, into an empty spill; s NULL: they are skipped. AG_FORMAT, after `name`, for what makes no
 * sense or could not come back. */
ag_status ag_spill_load(ag_spill *s, const ag_kv_cache *cache, uint64_t n_bytes, uint32_t position,
                        const char *name, ag_get_fn get, void *user, ag_error *err);

#endif
