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
    size_t counted;           /* bytes of it */
} shared_buffer;

static void *shared_map(ag_buffer *buf) { return ((shared_buffer *)buf)->data; }

/* All but the data. */
static void free_all_but_data(shared_buffer *s) {
    if (s->counter) {
        atomic_fetch_sub_explicit(&s->counter->bytes, s->counted, memory_order_relaxed);
        ag_byte_counter_release(s->counter);
    }
    ag_free(s);
}

static void heap_destroy(ag_buffer *buf) {
    shared_buffer *s = (shared_buffer *)buf;
    ag_aligned_free(s->data);
    free_all_but_data(s);
}

static void pages_destroy(ag_buffer *buf) {
    shared_buffer *s = (shared_buffer *)buf;
    munmap(s->data, ag_pages_round_up(buf->size));
    free_all_but_data(s);
}

static size_t pages_discard(ag_buffer *buf, size_t offset, size_t n) {
    return ag_pages_discard(((shared_buffer *)buf)->data, buf->size, offset, n);
}

enum { HUGE_PAGE = 2 << 20 };

/* The advice may be refused (a kernel without huge pages): the memory is as good, only slower. */
static void advise(void *p, size_t bytes, int advice) { (void)madvise(p, bytes, advice); }

/* Small pages, so that a token does not commit 2 MiB. */
static void advise_small(void *p, size_t bytes) {
#ifdef MADV_NOHUGEPAGE
    advise(p, bytes, MADV_NOHUGEPAGE);
#else
    (void)p, (void)bytes;
#endif
}

static void kv_commit(ag_buffer *buf, size_t n) {
    shared_buffer *s = (shared_buffer *)buf;
    s->counted += n;
    if (s->counter) atomic_fetch_add_explicit(&s->counter->bytes, n, memory_order_relaxed);
}

static void kv_uncommit(ag_buffer *buf, size_t n) {
    shared_buffer *s = (shared_buffer *)buf;
    const size_t unused = n < s->counted ? n : s->counted;
    s->counted -= unused;
    if (s->counter) atomic_fetch_sub_explicit(&s->counter->bytes, unused, memory_order_relaxed);
}

/* Small pages that are full become a huge one, 2 MiB at a time: the rows of a head lie in pieces of
 * a few pages, and with small pages an eighth of the time of reading them goes into finding these.
 * The advice is young: kernels before 6.1 refuse it. The wish for large pages is taken back at
 * once: the page stays as it is, and what comes in its place later is small again. */
static void kv_promote(ag_buffer *buf, size_t begin, size_t from, size_t end) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    enum { COLLAPSE = 25 }; /* MADV_COLLAPSE, which not every C library knows */
    unsigned char *data = ((shared_buffer *)buf)->data;
    size_t at = from > begin + HUGE_PAGE ? from - HUGE_PAGE : begin;
    at += (HUGE_PAGE - (uintptr_t)(data + at) % HUGE_PAGE) % HUGE_PAGE;
    for (; at + HUGE_PAGE <= end; at += HUGE_PAGE) {
        if (at + HUGE_PAGE <= from) continue;
        advise(data + at, HUGE_PAGE, MADV_HUGEPAGE);
        advise(data + at, HUGE_PAGE, COLLAPSE);
        advise_small(data + at, HUGE_PAGE);
    }
#else
    (void)buf, (void)begin, (void)from, (void)end;
#endif
}

static const ag_buffer_ops heap_ops = {.destroy = heap_destroy, .map = shared_map};
static const ag_buffer_ops pages_ops = {
    .destroy = pages_destroy,
    .map = shared_map,
    .discard = pages_discard,
};
static const ag_buffer_ops kv_ops = {
    .destroy = pages_destroy,
    .map = shared_map,
    .discard = pages_discard,
    .commit = kv_commit,
    .uncommit = kv_uncommit,
    .promote = kv_promote,
};

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

static unsigned char *map_weights(size_t bytes) {
    size_t rounded = ag_pages_round_up(bytes);
    bool huge = bytes >= HUGE_PAGE;
    unsigned char *p = map_aligned(rounded, huge ? HUGE_PAGE : ag_page_size(), 0);
#ifdef MADV_HUGEPAGE
    if (p && huge) advise(p, rounded, MADV_HUGEPAGE);
#endif
    return p;
}

static unsigned char *map_kv(size_t bytes) {
    size_t rounded = ag_pages_round_up(bytes);
    unsigned char *p = map_aligned(rounded, ag_page_size(), MAP_NORESERVE);
    if (p) advise_small(p, rounded);
    return p;
}

static unsigned char *allocate_heap(size_t bytes) {
    unsigned char *p = ag_aligned_alloc(bytes);
    if (!p) return NULL;
    ag_pages_want_huge(p, bytes);
    memset(p, 0, bytes);
    return p;
}

ag_status ag_shared_buffer_create(size_t bytes, ag_usage usage, ag_byte_counter *counter,
                                  ag_buffer **out, ag_error *err) {
    *out = NULL;
    bool heap = usage == AG_USAGE_SCRATCH;
    if (bytes > SIZE_MAX - HUGE_PAGE) return AG_FAIL(err, NOMEM, "buffer of %zu bytes", bytes);
    shared_buffer *s = ag_malloc(sizeof *s);
    if (!s) return AG_FAIL(err, NOMEM, "buffer header of %zu bytes", sizeof *s);
    s->data = heap                        ? allocate_heap(bytes)
              : usage == AG_USAGE_WEIGHTS ? map_weights(bytes)
                                          : map_kv(bytes);
    if (!s->data) {
        ag_free(s);
        return AG_FAIL(err, NOMEM, "buffer of %zu bytes", bytes);
    }
    s->counter = counter;
    s->counted = usage == AG_USAGE_KV ? 0 : bytes;
    if (counter) {
        atomic_fetch_add_explicit(&counter->refs, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&counter->bytes, s->counted, memory_order_relaxed);
    }
    const ag_buffer_ops *pages = usage == AG_USAGE_KV ? &kv_ops : &pages_ops;
    ag_buffer_init(&s->base, heap ? &heap_ops : pages, bytes);
    *out = &s->base;
    return AG_OK;
}
