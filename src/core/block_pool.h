/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a backend for blocks of the caches: one pool for each size of a block, shared by all
 * caches of that size. Blocks lie one right behind the other in arenas, large buffers. The lowest
 * free block comes first, so that blocks lie densely.
 * On a host, pages of arenas are committed by use, and pages that no block lies in any more go back
 * to the system. Where buffers take all their memory at once, on a device, arenas are slabs: they
 * are made as blocks are needed, AG_KV_BUFFERS of them at most, and blocks move from slab to slab
 * so that memory comes back (block_slabs.c). A pool belongs to the thread that drives its backend.
 */
#ifndef AG_CORE_BLOCK_POOL_H
#define AG_CORE_BLOCK_POOL_H

#include "core/kv_view.h"

#include <antigravity/backend.h>

#include <stdbool.h>

typedef struct ag_block_pool ag_block_pool;

/* Where a cache keeps the blocks that it took: a pool that moves one writes its new place there.
 * Blocks are taken, and reserved, while no copy of an entry is in use elsewhere. */
typedef struct ag_block_table {
    ag_kv_block *blocks; /* borrowed; [n_rows][per_row] */
    const uint32_t *n;   /* borrowed; [n_rows] blocks of each row */
    uint32_t n_rows, per_row;
    struct ag_block_table *next, *before; /* the pool's */
} ag_block_table;

/* The backend's pool of blocks of so many bytes, a multiple of 64; made when it is first asked for.
 * Borrowed; lives as long as the backend. */
ag_status ag_block_pool_of(ag_backend *be, size_t block_bytes, ag_block_pool **out, ag_error *err);
/* All pools of a backend that is being destroyed. */
void ag_block_pools_release(ag_backend *be);

/* Until it leaves, t, whose sequence takes up to `row` blocks at once as it grows by a token. */
void ag_block_pool_join(ag_block_pool *p, ag_block_table *t, size_t row);
void ag_block_pool_leave(ag_block_pool *p, ag_block_table *t);

/* What a pool in that memory takes at most while blocks of so many bytes come: on a device there is
 * some room, and a slab that grows is there twice for a moment. */
size_t ag_block_pool_max_bytes(const ag_memory *mem, size_t bytes);

/* The next n blocks can be taken without fail. */
ag_status ag_block_pool_reserve(ag_block_pool *p, size_t n, ag_error *err);
/* A block with one holder; what it holds is anything. */
ag_status ag_block_pool_take(ag_block_pool *p, ag_kv_block *out, ag_error *err);
/* One holder more. */
void ag_block_pool_share(ag_block_pool *p, ag_kv_block block);
bool ag_block_pool_is_shared(const ag_block_pool *p, ag_kv_block block);
/* One holder less. The memory of blocks without any stays until ag_block_pool_trim. */
void ag_block_pool_drop(ag_block_pool *p, ag_kv_block block);
/* On a device free blocks stay for what comes next: a twelfth of those that are held, or a row. */
void ag_block_pool_trim(ag_block_pool *p);
/* The same while more blocks are going to be dropped: on a device up to a quarter stays. */
void ag_block_pool_trim_loosely(ag_block_pool *p);
/* The block has been written to its end and is going to stay: a hint that larger pages pay. */
void ag_block_pool_full(ag_block_pool *p, ag_kv_block block);

#endif
