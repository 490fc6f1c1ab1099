/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is allocated piece by piece and freed all at once, or back to a mark. */
#ifndef AG_JINJA_ARENA_H
#define AG_JINJA_ARENA_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ag_jinja_chunk ag_jinja_chunk;

/* The memory that several arenas and blocks of the heap use together. */
typedef struct ag_jinja_memory {
    size_t used, limit, peak; /* bytes */
    bool over_limit;          /* why an allocation failed: the limit, or the heap */
} ag_jinja_memory;

typedef struct ag_jinja_arena {
    ag_jinja_memory *memory; /* borrowed */
    ag_jinja_chunk *chunks;  /* the newest first */
    ag_jinja_chunk *unused;  /* one that a mark has released, or NULL */
    char *at, *end;          /* free part of the newest chunk */
} ag_jinja_arena;

/* Counts bytes; false if they exceed the limit. */
bool ag_jinja_count(ag_jinja_memory *m, size_t bytes);

/* Aligned for everything; NULL: over the limit or out of memory. Not initialised. */
void *ag_jinja_alloc(ag_jinja_arena *a, size_t bytes);

/* Makes p, `old` bytes from this arena, `bytes` long: in place if it was the last one taken. */
void *ag_jinja_realloc(ag_jinja_arena *a, void *p, size_t old, size_t bytes);

typedef struct ag_jinja_mark {
    ag_jinja_chunk *chunk;
    char *at;
} ag_jinja_mark;

/* All that is allocated after a mark can be released together; marks are released in reverse
 * order. */
ag_jinja_mark ag_jinja_arena_mark(const ag_jinja_arena *a);
void ag_jinja_arena_release(ag_jinja_arena *a, const ag_jinja_mark *mark);

void ag_jinja_arena_free(ag_jinja_arena *a);

#endif
