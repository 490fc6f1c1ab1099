/* SPDX-License-Identifier: Apache-2.0 */
/* Saves and loads spilled blocks as a stream of bytes. docs/reference/saved-cache-format.md defines
 * the order. */
#ifndef AG_CACHE_SPILL_SAVED_H
#define AG_CACHE_SPILL_SAVED_H

#include "cache/saved_state.h"
#include "cache/spill.h"

/* Returns the bytes that ag_spill_save() writes. */
uint64_t ag_spill_saved_bytes(const ag_spill *s);
/* Saves all blocks. A block that cannot be read is saved with 0 valid slots. */
ag_status ag_spill_save(ag_spill *s, ag_put_fn put, void *user, ag_error *err);
/* Loads n_bytes of blocks into an empty store; s NULL: skips them. The sequence is at `position`
 * and the cache holds its other slots. Fails with AG_FORMAT, after `name`, if a block is damaged
 * or a slot occurs twice. */
ag_status ag_spill_load(ag_spill *s, const ag_kv_cache *cache, uint64_t n_bytes, uint32_t position,
                        const char *name, ag_get_fn get, void *user, ag_error *err);

#endif
