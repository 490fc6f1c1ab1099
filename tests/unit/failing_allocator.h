/* SPDX-License-Identifier: Apache-2.0 */
/* An allocator that refuses one allocation, and knows what is still held. */
#ifndef AG_TESTS_FAILING_ALLOCATOR_H
#define AG_TESTS_FAILING_ALLOCATOR_H

#include <antigravity/alloc.h>
#include <stdbool.h>
#include <stdlib.h>

typedef struct failing_allocator {
    size_t until; /* allocations that still succeed before the one that fails */
    bool failed;
    long held; /* blocks not yet released */
} failing_allocator;

static inline bool failing_refuses(failing_allocator *f) {
    if (f->failed || f->until-- > 0) return false;
    return f->failed = true;
}

static inline void *failing_alloc(void *user, size_t bytes) {
    failing_allocator *f = user;
    if (failing_refuses(f)) return NULL;
    f->held++;
    return malloc(bytes);
}

static inline void *failing_resize(void *user, void *p, size_t bytes) {
    failing_allocator *f = user;
    if (failing_refuses(f)) return NULL;
    f->held += !p;
    return realloc(p, bytes);
}

static inline void failing_release(void *user, void *p) {
    failing_allocator *f = user;
    f->held--;
    free(p);
}

/* Refuses allocation number `nth` (from 0) made from now on. */
static inline void failing_install(failing_allocator *f, size_t nth) {
    *f = (failing_allocator){.until = nth};
    ag_set_allocator(&(ag_allocator){failing_alloc, failing_resize, failing_release, f});
}

#endif
