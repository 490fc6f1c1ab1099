/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/shared_buffer.h"

#include "core/alloc.h"
#include "core/buffer_ops.h"
#include "core/fail.h"
#include "memory/pages.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

struct ag_byte_counter {
    atomic_uint refs;
    atomic_size_t bytes;
};

ag_byte_counter *ag_byte_counter_create(void) {
    ag_byte_counter *c = ag_malloc(sizeof *c);
    if (!c) return NULL;
    atomic_init(&c->refs, 1);
    atomic_init(&c->bytes, 0);
    return c;
}

void ag_byte_counter_release(ag_byte_counter *c) {
    if (c && atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) == 1) ag_free(c);
}

size_t ag_byte_counter_get(const ag_byte_counter *c) {
    return atomic_load_explicit(&c->bytes, memory_order_relaxed);
}

typedef struct shared_buffer {
    ag_buffer base;
    unsigned char *data;
    ag_byte_counter *counter; /* may be NULL */
} shared_buffer;

static void *shared_map(ag_buffer *buf) { return ((shared_buffer *)buf)->data; }

/* All but the data. */
static void forget(shared_buffer *s) {
    if (s->counter) {
        atomic_fetch_sub_explicit(&s->counter->bytes, s->base.size, memory_order_relaxed);
        ag_byte_counter_release(s->counter);
    }
    ag_free(s);
}

static void heap_destroy(ag_buffer *buf) {
    shared_buffer *s = (shared_buffer *)buf;
    ag_aligned_free(s->data);
    forget(s);
}

static void pages_destroy(ag_buffer *buf) {
    shared_buffer *s = (shared_buffer *)buf;
    munmap(s->data, ag_pages_round_up(buf->size));
    forget(s);
}

static size_t pages_discard(ag_buffer *buf, size_t offset, size_t n) {
    return ag_pages_discard(((shared_buffer *)buf)->data, buf->size, offset, n);
}

static const ag_buffer_ops heap_ops = {.destroy = heap_destroy, .map = shared_map};
static const ag_buffer_ops pages_ops = {
    .destroy = pages_destroy,
    .map = shared_map,
    .discard = pages_discard,
};

enum { HUGE_PAGE = 2 << 20 };

/* `bytes` (whole pages) of anonymous memory whose address is a multiple of `alignment` (a power of
 * two, at least a page); NULL if the system refuses. */
static unsigned char *map_aligned(size_t bytes, size_t alignment, int flags) {
    size_t page = ag_page_size();
    size_t slack = alignment > page ? alignment : 0;
    if (bytes > SIZE_MAX - slack) return NULL;
    unsigned char *p = mmap(NULL, bytes + slack, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (p == MAP_FAILED) return NULL;
    if (slack == 0) return p;
    size_t head = (alignment - (uintptr_t)p % alignment) % alignment;
    if (head > 0) munmap(p, head);
    if (slack > head) munmap(p + head + bytes, slack - head);
    return p + head;
}

/* The advice may be refused (a kernel without huge pages): the memory is as good, only slower. */
static void advise(void *p, size_t bytes, int advice) { (void)madvise(p, bytes, advice); }

static unsigned char *map_weights(size_t bytes) {
    size_t whole = ag_pages_round_up(bytes);
    bool huge = bytes >= HUGE_PAGE;
    unsigned char *p = map_aligned(whole, huge ? HUGE_PAGE : ag_page_size(), 0);
#ifdef MADV_HUGEPAGE
    if (p && huge) advise(p, whole, MADV_HUGEPAGE);
#endif
    return p;
}

/* Huge pages would commit 2 MiB for one token, and could not be given back in parts. */
static unsigned char *map_kv(size_t bytes) {
    size_t whole = ag_pages_round_up(bytes);
    unsigned char *p = map_aligned(whole, ag_page_size(), MAP_NORESERVE);
#ifdef MADV_NOHUGEPAGE
    if (p) advise(p, whole, MADV_NOHUGEPAGE);
#endif
    return p;
}

static unsigned char *allocate_heap(size_t bytes) {
    unsigned char *p = ag_aligned_alloc(bytes);
    if (p) memset(p, 0, bytes);
    return p;
}

ag_status ag_shared_buffer_create(size_t bytes, ag_usage usage, ag_byte_counter *counter,
                                  ag_buffer **out, ag_error *err) {
    *out = NULL;
    bool heap = usage == AG_USAGE_SCRATCH;
    if (bytes > SIZE_MAX - HUGE_PAGE) return AG_FAIL(err, NOMEM, "a buffer of %zu bytes", bytes);
    shared_buffer *s = ag_malloc(sizeof *s);
    if (!s) return AG_FAIL(err, NOMEM, "a buffer's %zu bytes of bookkeeping", sizeof *s);
    s->data = heap                        ? allocate_heap(bytes)
              : usage == AG_USAGE_WEIGHTS ? map_weights(bytes)
                                          : map_kv(bytes);
    if (!s->data) {
        ag_free(s);
        return AG_FAIL(err, NOMEM, "a buffer of %zu bytes", bytes);
    }
    s->counter = counter;
    if (counter) {
        atomic_fetch_add_explicit(&counter->refs, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&counter->bytes, bytes, memory_order_relaxed);
    }
    ag_buffer_init(&s->base, heap ? &heap_ops : &pages_ops, bytes);
    *out = &s->base;
    return AG_OK;
}
