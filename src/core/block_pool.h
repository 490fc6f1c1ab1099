/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a host backend for blocks of the caches: one pool for each size of a block, shared by
 * all caches of that size. Blocks lie one right behind the other in arenas, large buffers whose
 * pages are committed by use. The lowest free block comes first, so that blocks lie densely, and
 * pages that no block lies in any more go back to the system. A pool belongs to the thread that
 * drives its backend. */
#ifndef AG_CORE_BLOCK_POOL_H
#define AG_CORE_BLOCK_POOL_H

#include "core/kv_view.h"

#include <antigravity/backend.h>

#include <stdbool.h>

typedef struct ag_block_pool ag_block_pool;

/* The backend's pool of blocks of so many bytes, a multiple of 64; made when it is first asked for.
 * Borrowed; lives as long as the backend. */
ag_status ag_block_pool_of(ag_backend *be, size_t block_bytes, ag_block_pool **out, ag_error *err);
/* All pools of a backend that is being destroyed. */
void ag_block_pools_release(ag_backend *be);

/* The next n blocks can be taken without fail. */
ag_status ag_block_pool_reserve(ag_block_pool *p, size_t n, ag_error *err);
/* A block with one holder; what it holds is anything. */
ag_status ag_block_pool_take(ag_block_pool *p, ag_kv_block *out, ag_error *err);
/* One holder more. */
void ag_block_pool_share(ag_block_pool *p, ag_kv_block block);
bool ag_block_pool_is_shared(const ag_block_pool *p, ag_kv_block block);
/* One holder less. The pages of blocks without any stay until ag_block_pool_trim. */
void ag_block_pool_drop(ag_block_pool *p, ag_kv_block block);
void ag_block_pool_trim(ag_block_pool *p);
/* The block has been written to its end and is going to stay: a hint that larger pages pay. */
void ag_block_pool_full(ag_block_pool *p, ag_kv_block block);

#endif
