/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is taken piece by piece and given back all at once. */
#ifndef AG_CHAT_JINJA_ARENA_H
#define AG_CHAT_JINJA_ARENA_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ag_jinja_chunk ag_jinja_chunk;

typedef struct ag_jinja_arena {
    ag_jinja_chunk *chunks; /* the newest first */
    char *at, *end;         /* what is free of the newest */
    size_t used, limit;     /* bytes of all chunks */
    bool over_limit;        /* why an allocation failed: the limit, or the heap */
} ag_jinja_arena;

/* Aligned for everything; NULL: over the limit or out of memory. Not initialised. */
void *ag_jinja_take(ag_jinja_arena *a, size_t bytes);

/* Makes p, `old` bytes from this arena, `bytes` long: in place if it was the last one taken. */
void *ag_jinja_enlarge(ag_jinja_arena *a, void *p, size_t old, size_t bytes);

void ag_jinja_arena_free(ag_jinja_arena *a);

#endif
