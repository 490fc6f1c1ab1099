/* SPDX-License-Identifier: Apache-2.0 */
/* One allocator for everything the library takes from the heap. */
#ifndef ANTIGRAVITY_ALLOC_H
#define ANTIGRAVITY_ALLOC_H

#include <antigravity/status.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Contracts of malloc, realloc and free; called from several threads at once. */
typedef struct ag_allocator {
    void *(*alloc)(void *user, size_t bytes);
    void *(*resize)(void *user, void *p, size_t bytes);
    void (*release)(void *user, void *p);
    void *user;
} ag_allocator;

/* Replaces the allocator (NULL: back to malloc). To be called before anything else of the library,
 * or while nothing of it is alive. Copies *a. Large buffers (prepared weights, the KV cache) come
 * from the system's page allocator instead. */
AG_API void ag_set_allocator(const ag_allocator *a);

/* Allocations (not releases) made through the allocator since the process began, from all threads:
 * the difference over a decoded token is zero. */
AG_API size_t ag_allocation_count(void);

#ifdef __cplusplus
}
#endif
#endif
