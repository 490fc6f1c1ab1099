/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/jinja_arena.h"

#include "core/alloc.h"

#include <stdint.h>
#include <string.h>

enum { ALIGN = 16, FIRST_CHUNK = 16 << 10, PARTS_OF_LIMIT = 4096 };

struct ag_jinja_chunk {
    ag_jinja_chunk *next;
    size_t bytes;
};

static size_t header_bytes(void) { return (sizeof(ag_jinja_chunk) + ALIGN - 1) / ALIGN * ALIGN; }

/* Chunks double, so that small templates stay small and large ones make few calls; none is more
 * than a small part of the limit. */
static bool add_chunk(ag_jinja_arena *a, size_t bytes) {
    size_t n = a->chunks ? a->chunks->bytes * 2 : FIRST_CHUNK, most = a->limit / PARTS_OF_LIMIT;
    if (n > most) n = most;
    if (n < bytes + header_bytes()) n = bytes + header_bytes();
    if (n > a->limit || a->used > a->limit - n) {
        a->over_limit = true;
        return false;
    }
    ag_jinja_chunk *c = ag_malloc(n);
    if (!c) return false;
    *c = (ag_jinja_chunk){a->chunks, n};
    a->chunks = c;
    a->used += n;
    a->at = (char *)c + header_bytes();
    a->end = (char *)c + n;
    return true;
}

void *ag_jinja_take(ag_jinja_arena *a, size_t bytes) {
    if (bytes > SIZE_MAX / 4) {
        a->over_limit = true;
        return NULL;
    }
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if ((size_t)(a->end - a->at) < bytes && !add_chunk(a, bytes)) return NULL;
    void *p = a->at;
    a->at += bytes;
    return p;
}

void *ag_jinja_enlarge(ag_jinja_arena *a, void *p, size_t old, size_t bytes) {
    size_t had = (old + ALIGN - 1) / ALIGN * ALIGN;
    if (p && bytes <= SIZE_MAX / 4 && (char *)p + had == a->at) {
        size_t wanted = (bytes + ALIGN - 1) / ALIGN * ALIGN;
        if (wanted - had <= (size_t)(a->end - a->at)) {
            a->at += wanted - had;
            return p;
        }
    }
    void *q = ag_jinja_take(a, bytes);
    if (q && old) memcpy(q, p, old);
    return q;
}

void ag_jinja_arena_free(ag_jinja_arena *a) {
    while (a->chunks) {
        ag_jinja_chunk *next = a->chunks->next;
        ag_free(a->chunks);
        a->chunks = next;
    }
    *a = (ag_jinja_arena){0};
}
