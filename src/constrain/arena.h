/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is released all at once: what a schema becomes on its way to rules. */
#ifndef AG_CONSTRAIN_ARENA_H
#define AG_CONSTRAIN_ARENA_H

#include <stddef.h>

typedef struct ag_arena_block ag_arena_block;

/* Zero-initialise; release with ag_arena_free. */
typedef struct ag_arena {
    ag_arena_block *newest;
    size_t bytes; /* of all blocks */
    size_t max;   /* 0: no limit */
} ag_arena;

/* Zeroed, aligned for any type; NULL when there is no memory, or `most` is reached. */
void *ag_arena_get(ag_arena *a, size_t n, size_t size);
void ag_arena_free(ag_arena *a);

#endif
