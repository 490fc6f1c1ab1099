/* SPDX-License-Identifier: Apache-2.0 */
/* Spill store: keeps evicted KV blocks in a file so that they can be reloaded. A block holds up
 * to 128 slots of one KV head: keys, values, positions and sums of attention. Key bounds stay in
 * memory. Blocks that cannot be written are lost, as without a spill store. A NULL store is
 * empty. */
#ifndef AG_CACHE_SPILL_H
#define AG_CACHE_SPILL_H

#include "cache/eviction/score_sums.h"
#include "cache/kv_rows.h"

#include <antigravity/eviction.h>

typedef struct ag_spill ag_spill;

enum { AG_SPILL_MAX_SLOTS = 128 }; /* in a block */

/* Checks the parameters. Fails with AG_UNSUPPORTED if the host does not see the memory of the
 * backend's caches, and with AG_INVALID if blocks are too large. */
ag_status ag_spill_check(const ag_spill_params *p, ag_backend *be, ag_error *err);
/* Creates a store after ag_spill_check(). Borrows the cache. *out is NULL if p or its path is
 * NULL. */
ag_status ag_spill_create(const ag_spill_params *p, ag_kv_cache *cache, ag_spill **out,
                          ag_error *err);
void ag_spill_destroy(ag_spill *s);
/* Returns the maximum bytes of a store, which tracks at most four times the slots of the cache. */
size_t ag_spill_plan_bytes(const ag_spill_params *p, const ag_kv_params *kv);
/* Returns the parameters, owned by the store; NULL without a store. */
const ag_spill_params *ag_spill_params_of(const ag_spill *s);
/* Return the slots of a full block, of a store and from its parameters. */
uint32_t ag_spill_block_slots(const ag_spill *s);
uint32_t ag_spill_params_block_slots(const ag_spill_params *p);
const ag_kv_params *ag_spill_kv(const ag_spill *s); /* parameters of its cache */

/* Shares all blocks of `from` with `to`, which must be empty. `to` writes to the file of `from` if
 * path, limit and record size are equal. A failure leaves `to` with some of the blocks. */
ag_status ag_spill_copy(ag_spill *to, const ag_spill *from, ag_error *err);
/* Creates an empty store with the same parameters in a file of its own, or in the same file if
 * the path names a file. */
ag_status ag_spill_create_sibling(const ag_spill *s, ag_spill **out, ag_error *err);
/* Removes all blocks and resets the statistics. */
void ag_spill_clear(ag_spill *s);
/* Removes tokens from `position` on. */
void ag_spill_truncate(ag_spill *s, uint32_t position);
/* Removes blocks whose slots all have positions below `position`; such slots are never reloaded. */
void ag_spill_expire(ag_spill *s, uint32_t position);

/* Stores slots[0..n) of a head, ascending, before they are evicted. If the file or the block
 * table is full, the oldest blocks of the fullest head are dropped for them. */
void ag_spill_store(ag_spill *s, const ag_score_sums *sums, uint32_t layer, uint32_t head,
                    const uint32_t *slots, uint32_t n);
/* Removes the blocks of the last ag_spill_store(), which must have been of this head: the slots
 * stay in the cache. */
void ag_spill_cancel_store(ag_spill *s, uint32_t layer, uint32_t head);

/* Returns the number of blocks of a head. Their order has no meaning. */
uint32_t ag_spill_n_blocks(const ag_spill *s, uint32_t layer, uint32_t head);
bool ag_spill_is_empty(const ag_spill *s);
/* Properties of a block that the store knows without reading it. */
typedef struct ag_spilled_block {
    uint32_t n; /* maximum number of slots */
    ag_dtype k_type, v_type;
    const void *key_bounds; /* borrowed */
} ag_spilled_block;
/* Returns block i of a head; valid until the store changes. */
ag_spilled_block ag_spill_block(const ag_spill *s, uint32_t layer, uint32_t head, uint32_t i);

/* A block read from the file, in memory of its own. */
typedef struct ag_spilled_rows {
    ag_kv_rows rows;
    const float *sums; /* [rows.n] */
    void *bytes;       /* owned */
    size_t n_bytes;    /* capacity of `bytes` */
} ag_spilled_rows;
/* Allocates memory for the largest block that a cache of these parameters can spill. */
ag_status ag_spilled_rows_create(const ag_kv_params *kv, ag_spilled_rows *out, ag_error *err);
void ag_spilled_rows_release(ag_spilled_rows *r);
/* Returns the bytes of a block of n slots: positions, sums, keys, values. */
size_t ag_spilled_bytes(ag_dtype k_type, ag_dtype v_type, uint32_t dim, uint32_t n);
/* Points rows and sums into r->bytes. */
void ag_spilled_rows_layout(ag_spilled_rows *r, ag_dtype k_type, ag_dtype v_type, uint32_t dim,
                            uint32_t n);
/* Reads block i of the head and removes it; the head's last block takes its index. Returns false
 * if the block could not be read and is lost. */
bool ag_spill_reload(ag_spill *s, uint32_t layer, uint32_t head, uint32_t i, ag_spilled_rows *out);
/* Stores the rows of an ag_spill_reload() of this head again: they did not enter the cache. */
void ag_spill_cancel_reload(ag_spill *s, uint32_t layer, uint32_t head, const ag_spilled_rows *r);
/* Reads block i without removing it. Returns false if it could not be read. */
bool ag_spill_read(ag_spill *s, uint32_t layer, uint32_t head, uint32_t i, ag_spilled_rows *out);
/* Adds rows that were loaded from elsewhere as blocks of the head. */
void ag_spill_add(ag_spill *s, uint32_t layer, uint32_t head, const ag_kv_rows *rows,
                  const float *sums);
void ag_spill_stats_of(const ag_spill *s, ag_spill_stats *out);

#endif
