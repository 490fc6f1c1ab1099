/* SPDX-License-Identifier: Apache-2.0 */
/* The allocator of the library's heap memory. */
#ifndef ANTIGRAVITY_ALLOC_H
#define ANTIGRAVITY_ALLOC_H

#include <antigravity/status.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Functions with the contracts of malloc, realloc and free. They must be thread-safe. */
typedef struct ag_allocator {
    void *(*alloc)(void *user, size_t bytes);
    void *(*resize)(void *user, void *p, size_t bytes);
    void (*release)(void *user, void *p);
    void *user;
} ag_allocator;

/* Replaces the allocator; NULL restores malloc. Must be called while no object of the library
 * exists. Copies *a. Large buffers (prepared weights, the KV cache) come from the system's page
 * allocator instead. */
AG_API void ag_set_allocator(const ag_allocator *a);

/* Returns the number of allocations (not releases) of all threads since the process started. The
 * count does not change while a token is decoded on the CPU. */
AG_API size_t ag_allocation_count(void);

#ifdef __cplusplus
}
#endif
#endif
