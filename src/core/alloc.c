/* SPDX-License-Identifier: Apache-2.0 */
#include "core/alloc.h"

#include "core/fail.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void *system_alloc(void *user, size_t bytes) {
    (void)user;
    return malloc(bytes);
}

static void *system_resize(void *user, void *p, size_t bytes) {
    (void)user;
    return realloc(p, bytes);
}

static void system_release(void *user, void *p) {
    (void)user;
    free(p);
}

static const ag_allocator system_allocator = {system_alloc, system_resize, system_release, NULL};
static ag_allocator allocator = {system_alloc, system_resize, system_release, NULL};
static atomic_size_t n_allocations;

void ag_set_allocator(const ag_allocator *a) { allocator = a ? *a : system_allocator; }

size_t ag_allocation_count(void) {
    return atomic_load_explicit(&n_allocations, memory_order_relaxed);
}

static void count_one(void) { atomic_fetch_add_explicit(&n_allocations, 1, memory_order_relaxed); }

void *ag_malloc(size_t bytes) {
    count_one();
    return allocator.alloc(allocator.user, bytes ? bytes : 1);
}

void *ag_calloc(size_t n, size_t bytes) {
    if (bytes && n > SIZE_MAX / bytes) return NULL;
    void *p = ag_malloc(n * bytes);
    if (p) memset(p, 0, n * bytes);
    return p;
}

void *ag_realloc(void *p, size_t bytes) {
    count_one();
    return allocator.resize(allocator.user, p, bytes ? bytes : 1);
}

void ag_free(void *p) {
    if (p) allocator.release(allocator.user, p);
}

char *ag_strndup(const char *s, size_t n) {
    char *p = ag_malloc(n + 1);
    if (!p) return NULL;
    memcpy(p, s, n);
    p[n] = '\0';
    return p;
}

char *ag_strdup(const char *s) { return ag_strndup(s, strlen(s)); }

enum { ALIGNMENT = 64 };

void *ag_aligned_alloc(size_t bytes) {
    if (bytes > SIZE_MAX - ALIGNMENT) return NULL;
    unsigned char *p = ag_malloc(bytes + ALIGNMENT);
    if (!p) return NULL;
    /* The byte before the aligned address holds the distance back to p: 1 to 64. */
    size_t shift = ALIGNMENT - (uintptr_t)p % ALIGNMENT;
    p += shift;
    p[-1] = (unsigned char)shift;
    return p;
}

void ag_aligned_free(void *p) {
    if (!p) return;
    unsigned char *q = p;
    ag_free(q - q[-1]);
}

ag_status ag_array_grow(void *array, size_t *cap, size_t need, size_t size, ag_error *err) {
    void *p;
    if (need <= *cap) return AG_OK;
    size_t n = *cap + *cap / 2;
    if (n < need) n = need;
    if (n < 16) n = 16;
    if (n > SIZE_MAX / 2 / size)
        return AG_FAIL(err, NOMEM, "list of %zu elements of %zu bytes", n, size);
    memcpy(&p, array, sizeof p);
    p = ag_realloc(p, n * size);
    if (!p) return AG_FAIL(err, NOMEM, "list of %zu bytes", n * size);
    memcpy(array, &p, sizeof p);
    *cap = n;
    return AG_OK;
}

ag_status ag_array_assign(void *array, size_t *cap, const void *from, size_t n, size_t size,
                          ag_error *err) {
    void *p;
    AG_TRY(ag_array_grow(array, cap, n, size, err));
    memcpy(&p, array, sizeof p);
    if (n) memcpy(p, from, n * size);
    return AG_OK;
}
