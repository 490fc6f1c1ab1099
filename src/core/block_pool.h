/* SPDX-License-Identifier: Apache-2.0 */
/* Block pool: memory of a backend for KV blocks of one size, shared by all its caches with that
 * size. Blocks are adjacent in arenas, which are large buffers. The lowest free block is used
 * first, so that used blocks stay dense. On a host, the system commits pages of an arena when they
 * are first used, and pages without blocks are given back. On a device, where a buffer takes all
 * its memory at once, arenas are slabs. They are made as blocks are needed, at most AG_KV_BUFFERS
 * of them, and blocks move between slabs so that memory can be given back (block_slabs.c). A pool
 * belongs to the thread that drives its backend. */
#ifndef AG_CORE_BLOCK_POOL_H
#define AG_CORE_BLOCK_POOL_H

#include "core/kv_view.h"

#include <antigravity/backend.h>

#include <stdbool.h>

typedef struct ag_block_pool ag_block_pool;

/* Table of the blocks of a cache. A pool that moves a block updates its entry. So no copy of an
 * entry may be in use while blocks are taken or reserved. */
typedef struct ag_block_table {
    ag_kv_block *blocks; /* borrowed; [n_rows][per_row] */
    const uint32_t *n;   /* borrowed; [n_rows] blocks in each row */
    uint32_t n_rows, per_row;
    struct ag_block_table *next, *before; /* list of the pool */
} ag_block_table;

/* Finds or makes the backend's pool of blocks of block_bytes, a multiple of 64. *out is borrowed
 * and lives as long as the backend. */
ag_status ag_block_pool_of(ag_backend *be, size_t block_bytes, ag_block_pool **out, ag_error *err);
/* Frees all pools of a backend that is being destroyed. */
void ag_block_pools_release(ag_backend *be);

/* Registers a table until ag_block_pool_leave(). row: maximum number of blocks that its sequence
 * takes when it grows by one token. */
void ag_block_pool_join(ag_block_pool *p, ag_block_table *t, size_t row);
void ag_block_pool_leave(ag_block_pool *p, ag_block_table *t);

/* Returns the maximum memory of a pool whose blocks take `bytes`. On a device this includes free
 * blocks and the second copy of a slab that is being replaced. */
size_t ag_block_pool_max_bytes(const ag_memory *mem, size_t bytes);

/* Makes sure that the next n calls of ag_block_pool_take() cannot fail. */
ag_status ag_block_pool_reserve(ag_block_pool *p, size_t n, ag_error *err);
/* Takes a block with one holder. Its bytes are unspecified. */
ag_status ag_block_pool_take(ag_block_pool *p, ag_kv_block *out, ag_error *err);
/* Adds a holder to a block. */
void ag_block_pool_share(ag_block_pool *p, ag_kv_block block);
bool ag_block_pool_is_shared(const ag_block_pool *p, ag_kv_block block);
/* Returns whether any block of the pool has several holders. */
bool ag_block_pool_has_shared(const ag_block_pool *p);
/* Removes a holder. Memory of blocks without holders is given back by ag_block_pool_trim(). */
void ag_block_pool_drop(ag_block_pool *p, ag_kv_block block);
/* Gives unused memory back. A device keeps free blocks for reuse: a twelfth of the used ones, or a
 * row. */
void ag_block_pool_trim(ag_block_pool *p);
/* The same while more blocks may follow: a device keeps up to a quarter. */
void ag_block_pool_trim_loosely(ag_block_pool *p);
/* Hint: the block is full and immutable now, so larger pages pay. */
void ag_block_pool_full(ag_block_pool *p, ag_kv_block block);

#endif
