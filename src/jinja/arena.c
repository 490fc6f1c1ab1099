/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/arena.h"

#include "core/alloc.h"

#include <stdint.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ASAN 1
#endif
#endif
#ifdef HAS_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define POISON(p, n) ((void)0)
#define UNPOISON(p, n) ((void)0)
#endif

enum { ALIGN = 16, FIRST_CHUNK = 16 << 10, LIMIT_DIVISOR = 4096 };

struct ag_jinja_chunk {
    ag_jinja_chunk *next;
    size_t bytes;
};

static size_t header_bytes(void) { return (sizeof(ag_jinja_chunk) + ALIGN - 1) / ALIGN * ALIGN; }

bool ag_jinja_count(ag_jinja_memory *m, size_t bytes) {
    if (bytes > m->limit || m->used > m->limit - bytes) {
        m->over_limit = true;
        return false;
    }
    m->used += bytes;
    if (m->used > m->peak) m->peak = m->used;
    return true;
}

static void free_chunk(ag_jinja_arena *a, ag_jinja_chunk *c) {
    a->memory->used -= c->bytes;
    UNPOISON(c, c->bytes);
    ag_free(c);
}

static void open_chunk(ag_jinja_arena *a, ag_jinja_chunk *c) {
    c->next = a->chunks;
    a->chunks = c;
    a->at = (char *)c + header_bytes();
    a->end = (char *)c + c->bytes;
    POISON(a->at, (size_t)(a->end - a->at));
}

/* Adds a chunk with at least `bytes` free. Chunks double in size, up to a small part of the limit:
 * small templates use little memory, large ones make few heap calls. */
static bool add_chunk(ag_jinja_arena *a, size_t bytes) {
    size_t n = a->chunks ? a->chunks->bytes * 2 : FIRST_CHUNK;
    const size_t max_bytes = a->memory->limit / LIMIT_DIVISOR;
    if (n > max_bytes) n = max_bytes;
    if (n < bytes + header_bytes()) n = bytes + header_bytes();
    ag_jinja_chunk *c = a->unused;
    a->unused = NULL;
    if (c && c->bytes < n) {
        free_chunk(a, c);
        c = NULL;
    }
    if (!c) {
        if (!ag_jinja_count(a->memory, n)) return false;
        c = ag_malloc(n);
        if (!c) {
            a->memory->used -= n;
            return false;
        }
        c->bytes = n;
    }
    open_chunk(a, c);
    return true;
}

void *ag_jinja_alloc(ag_jinja_arena *a, size_t bytes) {
    if (bytes > SIZE_MAX / 4) {
        a->memory->over_limit = true;
        return NULL;
    }
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if ((size_t)(a->end - a->at) < bytes && !add_chunk(a, bytes)) return NULL;
    void *p = a->at;
    a->at += bytes;
    UNPOISON(p, bytes);
    return p;
}

/* Resizes p, which has `old` bytes, to `bytes`. Returns NULL as ag_jinja_alloc() does; p stays
 * valid. p may be NULL if old is 0. */
static void *resize(ag_jinja_arena *a, void *p, size_t old, size_t bytes) {
    size_t old_bytes = (old + ALIGN - 1) / ALIGN * ALIGN;
    if (p && bytes <= SIZE_MAX / 4 && (char *)p + old_bytes == a->at) {
        size_t new_bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
        if (new_bytes - old_bytes <= (size_t)(a->end - a->at)) {
            a->at += new_bytes - old_bytes;
            UNPOISON(p, new_bytes);
            return p;
        }
    }
    void *q = ag_jinja_alloc(a, bytes);
    if (q && old) memcpy(q, p, old);
    return q;
}

bool ag_jinja_grow(ag_jinja_arena *a, void *array, size_t n, size_t *cap, size_t size) {
    void *p;
    if (n < *cap) return true;
    const size_t more = *cap ? *cap * 2 : 4;
    memcpy(&p, array, sizeof p);
    p = resize(a, p, *cap * size, more * size);
    if (!p) return false;
    memcpy(array, &p, sizeof p);
    *cap = more;
    return true;
}

ag_jinja_mark ag_jinja_arena_mark(const ag_jinja_arena *a) {
    return (ag_jinja_mark){a->chunks, a->at};
}

/* Keeps the newest released chunk for the next allocation, so that a loop does not call the heap in
 * each iteration. */
void ag_jinja_arena_release(ag_jinja_arena *a, const ag_jinja_mark *mark) {
    char *used =
        a->chunks == mark->chunk ? a->at : NULL; /* end of used bytes; NULL: the entire chunk */
    while (a->chunks != mark->chunk) {
        ag_jinja_chunk *c = a->chunks;
        a->chunks = c->next;
        if (a->unused) free_chunk(a, a->unused);
        a->unused = c;
        POISON((char *)c + header_bytes(), c->bytes - header_bytes());
    }
    a->at = mark->at;
    a->end = a->chunks ? (char *)a->chunks + a->chunks->bytes : a->at;
    if (!used) used = a->end;
    POISON(a->at, (size_t)(used - a->at));
}

void ag_jinja_arena_free(ag_jinja_arena *a) {
    while (a->chunks) {
        ag_jinja_chunk *next = a->chunks->next;
        free_chunk(a, a->chunks);
        a->chunks = next;
    }
    if (a->unused) free_chunk(a, a->unused);
    a->unused = NULL;
    a->at = a->end = NULL;
}
