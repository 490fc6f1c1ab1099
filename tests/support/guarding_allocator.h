/* SPDX-License-Identifier: Apache-2.0 */
/* Allocator that detects, when a block is released, writes past its end. The guard bytes are many
 * enough that such writes hit no other block. */
#ifndef AG_TESTS_SUPPORT_GUARDING_ALLOCATOR_H
#define AG_TESTS_SUPPORT_GUARDING_ALLOCATOR_H

#include <antigravity/alloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { GUARDING_HEADER = 64, GUARDING_TAIL = 1 << 14, GUARDING_BYTE = 0xa5 };

static atomic_size_t guarding_n_overrun; /* blocks */

/* Writes the size, the caller's bytes, and guard bytes that no code may change. */
static inline void *guarding_lay_out(unsigned char *block, size_t bytes) {
    if (!block) return NULL;
    memcpy(block, &bytes, sizeof bytes);
    memset(block + GUARDING_HEADER + bytes, GUARDING_BYTE, GUARDING_TAIL);
    return block + GUARDING_HEADER;
}

static inline unsigned char *guarding_check(void *p) {
    if (!p) return NULL;
    unsigned char *block = (unsigned char *)p - GUARDING_HEADER;
    size_t bytes, i = 0;
    memcpy(&bytes, block, sizeof bytes);
    while (i < GUARDING_TAIL && block[GUARDING_HEADER + bytes + i] == GUARDING_BYTE) i++;
    if (i < GUARDING_TAIL) atomic_fetch_add(&guarding_n_overrun, 1);
    return block;
}

static inline void *guarding_alloc(void *user, size_t bytes) {
    (void)user;
    return guarding_lay_out(malloc(bytes + GUARDING_HEADER + GUARDING_TAIL), bytes);
}

static inline void *guarding_resize(void *user, void *p, size_t bytes) {
    (void)user;
    unsigned char *block = guarding_check(p);
    return guarding_lay_out(realloc(block, bytes + GUARDING_HEADER + GUARDING_TAIL), bytes);
}

static inline void guarding_release(void *user, void *p) {
    (void)user;
    free(guarding_check(p));
}

/* Before anything is allocated. */
static inline void guarding_install(void) {
    ag_set_allocator(&(ag_allocator){guarding_alloc, guarding_resize, guarding_release, NULL});
}

#endif
