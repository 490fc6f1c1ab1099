/* SPDX-License-Identifier: Apache-2.0 */
/* Structures of a block pool, for the files that implement it. */
#ifndef AG_CORE_BLOCK_POOL_IMPL_H
#define AG_CORE_BLOCK_POOL_IMPL_H

#include "core/block_pool.h"

/* A set of blocks of an arena, one bit each. */
typedef uint64_t *ag_block_set;

/* A large buffer of blocks. On a device it is called a slab. */
typedef struct ag_block_arena {
    ag_buffer *buffer; /* owned */
    uint32_t n, n_live;
    uint32_t lowest;                 /* words of `free` before this one are 0 */
    uint32_t stale_first, stale_end; /* words of `stale` that may not be 0 */
    ag_block_set free, stale, full;  /* stale: free, and its pages are not given back yet */
    uint32_t *holders;               /* [n] */
    bool closed;                     /* its blocks are moving out; none may be taken from it */
} ag_block_arena;

struct ag_block_pool {
    ag_block_pool *next;
    ag_backend *backend; /* borrowed */
    ag_memory *memory;   /* borrowed */
    size_t block_bytes, page, n_free;
    size_t n_shared;         /* blocks with several holders */
    ag_block_arena **arenas; /* owned, as are the arenas; the first with free blocks is used */
    size_t n_arenas;
    bool moves; /* buffers take all their memory at once, so blocks move to give memory back */
    ag_block_table *tables;
    size_t table_capacity; /* entries of all tables */
    size_t row; /* maximum number of blocks that a sequence takes when it grows by a token */
};

/* Appends an arena of n blocks. */
ag_status ag_block_arena_add(ag_block_pool *p, size_t n, ag_error *err);
/* Removes an arena, which must have no used blocks. */
void ag_block_arena_remove(ag_block_pool *p, ag_block_arena *a);
/* Takes a free block for `holders` holders. There must be one. */
ag_kv_block ag_block_pool_take_free(ag_block_pool *p, uint32_t holders);

/* Defined in block_slabs.c. Makes n blocks free, n above the present number. */
ag_status ag_block_slabs_grow(ag_block_pool *p, size_t n, ag_error *err);
/* Gives slabs back while more blocks are free than n_needed and a share of the used ones. Moves
 * blocks together for this. loosely: uses a larger share. */
void ag_block_slabs_trim(ag_block_pool *p, size_t n_needed, bool loosely);

#endif
