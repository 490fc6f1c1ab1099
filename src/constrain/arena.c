/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/arena.h"

#include "core/alloc.h"

#include <stdint.h>

enum { BLOCK_BYTES = 16384, ALIGNED_TO = 16 };

struct ag_arena_block {
    ag_arena_block *older;
    size_t used, size;
    unsigned char *bytes;
};

void *ag_arena_get(ag_arena *a, size_t n, size_t size) {
    if (size && n > (SIZE_MAX / 2) / size) return NULL;
    const size_t need = (n * size + ALIGNED_TO) / ALIGNED_TO * ALIGNED_TO;
    ag_arena_block *b = a->newest;
    if (!b || b->size - b->used < need) {
        const size_t bytes = need > BLOCK_BYTES ? need : BLOCK_BYTES;
        if (a->max && a->bytes + bytes > a->max) return NULL;
        b = ag_calloc(1, sizeof *b);
        unsigned char *p = ag_calloc(bytes, 1);
        if (!b || !p) {
            ag_free(b);
            ag_free(p);
            return NULL;
        }
        *b = (ag_arena_block){a->newest, 0, bytes, p};
        a->newest = b;
        a->bytes += bytes;
    }
    void *out = b->bytes + b->used;
    b->used += need;
    return out;
}

void ag_arena_free(ag_arena *a) {
    while (a->newest) {
        ag_arena_block *b = a->newest;
        a->newest = b->older;
        ag_free(b->bytes);
        ag_free(b);
    }
    a->bytes = 0;
}
