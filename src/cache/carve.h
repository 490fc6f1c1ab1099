/* SPDX-License-Identifier: Apache-2.0 */
/* Carver: divides one allocation into arrays. A function that carves all arrays is run twice, first
 * with base NULL to measure and then on the memory. */
#ifndef AG_CACHE_CARVE_H
#define AG_CACHE_CARVE_H

#include <stddef.h>

typedef struct ag_carver {
    char *base;  /* NULL: only measures */
    size_t used; /* bytes so far */
} ag_carver;

/* Returns an array of n elements, aligned to 16 bytes; NULL if n is 0 or base is NULL. The caller
 * must exclude overflow. */
static inline void *ag_carve(ag_carver *c, size_t n, size_t element_bytes) {
    void *p = c->base && n ? c->base + c->used : NULL;
    c->used += (n * element_bytes + 15) / 16 * 16;
    return p;
}

#endif
