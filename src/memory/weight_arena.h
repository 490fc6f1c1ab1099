/* SPDX-License-Identifier: Apache-2.0 */
/* Mappings that the weights of a memory share. A huge page then contains the end of one matrix and
 * the start of the next. With a mapping for each matrix, the ends would have small pages. */
#ifndef AG_MEMORY_WEIGHT_ARENA_H
#define AG_MEMORY_WEIGHT_ARENA_H

#include "platform/thread.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct ag_weight_arena ag_weight_arena; /* one mapping */

typedef struct ag_weight_arenas {
    ag_mutex mutex;
    ag_weight_arena *current; /* where the next weights go; NULL: a new one */
    bool has_arena;           /* one was made before */
} ag_weight_arenas;

void ag_weight_arenas_init(ag_weight_arenas *all);
void ag_weight_arenas_finish(ag_weight_arenas *all); /* weights may outlive it */

/* Returns zeroed pages for `bytes` of weights; NULL without memory. *arena is the arena that
 * contains them; NULL if they have a mapping of their own, for ag_unmap(). Thread-safe. */
unsigned char *ag_weight_alloc(ag_weight_arenas *all, size_t bytes, ag_weight_arena **arena);
/* Returns the pages to the system. Unmaps the arena with its last weights. */
void ag_weight_free(ag_weight_arena *arena, unsigned char *data, size_t bytes);

#endif
