/* SPDX-License-Identifier: Apache-2.0 */
/* Allocator that fails one allocation, or all from one on, and counts the blocks in use. */
#ifndef AG_TESTS_SUPPORT_FAILING_ALLOCATOR_H
#define AG_TESTS_SUPPORT_FAILING_ALLOCATOR_H

#include <antigravity/alloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

typedef struct failing_allocator {
    size_t nth; /* the allocation that fails, from 0 */
    bool rest;  /* all later allocations fail too */
    atomic_size_t made;
    atomic_bool failed;
    atomic_long in_use; /* blocks not yet released */
} failing_allocator;

static inline bool failing_refuses(failing_allocator *f) {
    const size_t i = atomic_fetch_add(&f->made, 1);
    if (i < f->nth || (i > f->nth && !f->rest)) return false;
    atomic_store(&f->failed, true);
    return true;
}

static inline void *failing_alloc(void *user, size_t bytes) {
    failing_allocator *f = user;
    if (failing_refuses(f)) return NULL;
    atomic_fetch_add(&f->in_use, 1);
    return malloc(bytes);
}

static inline void *failing_resize(void *user, void *p, size_t bytes) {
    failing_allocator *f = user;
    if (failing_refuses(f)) return NULL;
    if (!p) atomic_fetch_add(&f->in_use, 1);
    return realloc(p, bytes);
}

static inline void failing_release(void *user, void *p) {
    failing_allocator *f = user;
    atomic_fetch_sub(&f->in_use, 1);
    free(p);
}

/* Refuses allocation number `nth` made from now on. Everything made meanwhile is to be released
 * before ag_set_allocator(NULL). */
static inline void failing_install(failing_allocator *f, size_t nth) {
    f->nth = nth;
    f->rest = false;
    atomic_init(&f->made, 0);
    atomic_init(&f->failed, false);
    atomic_init(&f->in_use, 0);
    ag_set_allocator(&(ag_allocator){failing_alloc, failing_resize, failing_release, f});
}

#endif
