/* SPDX-License-Identifier: Apache-2.0 */
/* A pool's inside, for the files that implement it. */
#ifndef AG_CORE_BLOCK_POOL_IMPL_H
#define AG_CORE_BLOCK_POOL_IMPL_H

#include "core/block_pool.h"

/* A set of blocks of an arena. */
typedef uint64_t *ag_block_set;

/* A large buffer of blocks; on a device it is called a slab. */
typedef struct ag_block_arena {
    ag_buffer *buffer; /* owned */
    uint32_t n, n_live;
    uint32_t lowest;                 /* no block of a word before this one is free */
    uint32_t stale_first, stale_end; /* words that may name stale blocks */
    ag_block_set free, stale, full;  /* stale: free, but their pages have not been given back */
    uint32_t *holders;               /* [n] */
    bool closed;                     /* its blocks are moving out: none is taken from it */
} ag_block_arena;

struct ag_block_pool {
    ag_block_pool *next;
    ag_backend *backend; /* borrowed */
    ag_memory *memory;   /* borrowed */
    size_t block_bytes, page, n_free;
    ag_block_arena **arenas; /* owned, each of them too; the first come first */
    size_t n_arenas;
    bool moves; /* arenas take all their memory at once: blocks move to give some back */
    ag_block_table *tables;
    size_t table_capacity; /* entries of all tables */
    size_t row; /* the most blocks that a sequence takes at once while it grows token by token */
};

/* Another arena of n blocks, the last one. */
ag_status ag_block_arena_add(ag_block_pool *p, size_t n, ag_error *err);
/* It has no live blocks. */
void ag_block_arena_remove(ag_block_pool *p, ag_block_arena *a);
/* A free block for so many holders; there is one. */
ag_kv_block ag_block_pool_take_free(ag_block_pool *p, uint32_t holders);

/* block_slabs.c. n blocks are free afterwards, more than before. */
ag_status ag_block_slabs_grow(ag_block_pool *p, size_t n, ag_error *err);
/* Where more blocks are free than `wanted` and a share of the live ones, others move together and
 * memory is given back. `loosely`: only where much is free. */
void ag_block_slabs_trim(ag_block_pool *p, size_t n_needed, bool loosely);

#endif
