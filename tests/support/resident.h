/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the resident pages of a host buffer. */
#ifndef TEST_RESIDENT_H
#define TEST_RESIDENT_H

#include <antigravity/tensor.h>

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static inline size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }
static inline size_t pages_in(size_t bytes) { return (bytes + page_bytes() - 1) / page_bytes(); }

/* One byte for each page of the buffer, 1: it is there; the caller frees them. NULL: not known. */
static inline unsigned char *resident_pages(ag_buffer *buffer) {
    const size_t n = pages_in(ag_buffer_size(buffer));
    unsigned char *pages = calloc(n, 1);
    if (!pages || mincore(ag_buffer_map(buffer), n * page_bytes(), pages) != 0) {
        free(pages);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) pages[i] &= 1;
    return pages;
}

static inline size_t resident_bytes(ag_buffer *buffer) {
    unsigned char *pages = resident_pages(buffer);
    size_t n = 0;
    for (size_t i = 0; pages && i < pages_in(ag_buffer_size(buffer)); i++) n += pages[i];
    free(pages);
    return n * page_bytes();
}

#endif
