/* SPDX-License-Identifier: Apache-2.0 */
/* Bump allocator in one piece of memory. Every piece starts on a cache line. */
#ifndef AG_CORE_SCRATCH_H
#define AG_CORE_SCRATCH_H

#include <stddef.h>

/* base NULL: only counts bytes, so that one function both measures a layout and makes it. */
typedef struct ag_scratch {
    unsigned char *base; /* aligned to 64 bytes; borrowed */
    size_t used;
} ag_scratch;

static inline void *ag_scratch_alloc(ag_scratch *s, size_t bytes) {
    void *piece = s->base ? s->base + s->used : NULL;
    s->used += (bytes + 63) / 64 * 64;
    return piece;
}

#endif
