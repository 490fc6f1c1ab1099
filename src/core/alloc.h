/* SPDX-License-Identifier: Apache-2.0 */
/* The library's heap: every allocation goes through here (see antigravity/alloc.h). */
#ifndef AG_CORE_ALLOC_H
#define AG_CORE_ALLOC_H

#include <antigravity/alloc.h>

void *ag_malloc(size_t bytes);
void *ag_calloc(size_t n, size_t bytes); /* zeroed; NULL when n * bytes overflows */
void *ag_realloc(void *p, size_t bytes);
void ag_free(void *p);
char *ag_strdup(const char *s);
char *ag_strndup(const char *s, size_t n);

/* 64-byte aligned, for vectors and cache lines; release with ag_aligned_free. */
void *ag_aligned_alloc(size_t bytes);
void ag_aligned_free(void *p);

#endif
