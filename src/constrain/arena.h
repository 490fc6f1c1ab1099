/* SPDX-License-Identifier: Apache-2.0 */
/* Arena: memory that is released all at once. Holds what one schema compilation allocates. */
#ifndef AG_CONSTRAIN_ARENA_H
#define AG_CONSTRAIN_ARENA_H

#include <stddef.h>

typedef struct ag_arena_block ag_arena_block;

/* Zero-initialise. Release with ag_arena_free(). */
typedef struct ag_arena {
    ag_arena_block *newest;
    size_t bytes; /* capacity of all blocks */
    size_t max;   /* limit of `bytes`; 0: none */
} ag_arena;

/* Returns n * size zeroed bytes, aligned for any type; NULL if memory or `max` is exhausted. */
void *ag_arena_get(ag_arena *a, size_t n, size_t size);
void ag_arena_free(ag_arena *a);

#endif
