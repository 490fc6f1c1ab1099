/* SPDX-License-Identifier: Apache-2.0 */
/* One piece of memory, cut into parts that begin at cache lines. */
#ifndef AG_CORE_SCRATCH_H
#define AG_CORE_SCRATCH_H

#include <stddef.h>

/* base NULL: parts are counted, not cut, so that the function that lays them out also says how many
 * bytes they take. */
typedef struct ag_scratch {
    unsigned char *base; /* at a cache line; borrowed */
    size_t used;
} ag_scratch;

static inline void *ag_scratch_alloc(ag_scratch *s, size_t bytes) {
    void *piece = s->base ? s->base + s->used : NULL;
    s->used += (bytes + 63) / 64 * 64;
    return piece;
}

#endif
