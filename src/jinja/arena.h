/* SPDX-License-Identifier: Apache-2.0 */
/* Arena: memory that is allocated piece by piece and freed all at once, or back to a mark. */
#ifndef AG_JINJA_ARENA_H
#define AG_JINJA_ARENA_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ag_jinja_chunk ag_jinja_chunk;

/* Byte counter with a limit, shared by several arenas and heap blocks. */
typedef struct ag_jinja_memory {
    size_t used, limit, peak; /* bytes */
    bool over_limit;          /* an allocation failed because of the limit, not of the heap */
} ag_jinja_memory;

typedef struct ag_jinja_arena {
    ag_jinja_memory *memory; /* borrowed */
    ag_jinja_chunk *chunks;  /* newest first */
    ag_jinja_chunk *unused;  /* released by a mark and kept for the next allocation; NULL: none */
    char *at, *end;          /* free bytes of the newest chunk */
} ag_jinja_arena;

/* Adds bytes to m->used. Returns false and sets over_limit if they exceed the limit. */
bool ag_jinja_count(ag_jinja_memory *m, size_t bytes);

/* Returns uninitialised memory, aligned for any type. Returns NULL if the limit is exceeded
 * (over_limit is set) or the heap is exhausted. */
void *ag_jinja_alloc(ag_jinja_arena *a, size_t bytes);

/* Makes space for element n of an array of *cap elements of `size` bytes from this arena; in place
 * if the array is the newest allocation. array: the address of a pointer to elements of any type.
 * Returns false if ag_jinja_alloc() returns NULL; the array stays valid. */
bool ag_jinja_grow(ag_jinja_arena *a, void *array, size_t n, size_t *cap, size_t size);

typedef struct ag_jinja_mark {
    ag_jinja_chunk *chunk;
    char *at;
} ag_jinja_mark;

/* ag_jinja_arena_release() frees everything allocated after the mark. Marks must be released in
 * reverse order. */
ag_jinja_mark ag_jinja_arena_mark(const ag_jinja_arena *a);
void ag_jinja_arena_release(ag_jinja_arena *a, const ag_jinja_mark *mark);

void ag_jinja_arena_free(ag_jinja_arena *a);

#endif
