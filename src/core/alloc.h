/* SPDX-License-Identifier: Apache-2.0 */
/* Heap of the library. Every allocation calls the allocator of antigravity/alloc.h. The functions
 * return NULL without memory. */
#ifndef AG_CORE_ALLOC_H
#define AG_CORE_ALLOC_H

#include <antigravity/alloc.h>
#include <antigravity/status.h>

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

/* Grows an array of *cap elements of `size` bytes to at least `need` elements. array: the address
 * of a pointer to elements of any type. AG_GROW() evaluates `cap` and `need` twice. */
ag_status ag_array_grow(void *array, size_t *cap, size_t need, size_t size, ag_error *err);
#define AG_GROW(array, cap, need, err) \
    ((need) <= *(cap) ? AG_OK : ag_array_grow(&(array), (cap), (need), sizeof *(array), (err)))
/* Grows an array to at least n elements, if necessary, and copies `from` to its start. */
ag_status ag_array_assign(void *array, size_t *cap, const void *from, size_t n, size_t size,
                          ag_error *err);
#define AG_ASSIGN(array, cap, from, n, err) \
    ag_array_assign(&(array), (cap), (from), (n), sizeof *(array), (err))

#endif
