/* SPDX-License-Identifier: Apache-2.0 */
/* Heap of the library. Every allocation calls the allocator of antigravity/alloc.h. The functions
 * return NULL without memory. */
#ifndef AG_CORE_ALLOC_H
#define AG_CORE_ALLOC_H

#include <antigravity/alloc.h>

void *ag_malloc(size_t bytes);
void *ag_calloc(size_t n, size_t bytes); /* zeroed; NULL if n * bytes overflows */
void *ag_realloc(void *p, size_t bytes);
void ag_free(void *p);
char *ag_strdup(const char *s);
char *ag_strndup(const char *s, size_t n);

/* Returns memory aligned to 64 bytes, for vectors and cache lines. Release it with
 * ag_aligned_free(). */
void *ag_aligned_alloc(size_t bytes);
void ag_aligned_free(void *p);

#endif
