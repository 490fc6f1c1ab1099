/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/shared_buffer.h"

#include "core/alloc.h"
#include "core/buffer_ops.h"
#include "core/fail.h"
#include "memory/weight_arena.h"
#include "platform/map.h"

#include <stdatomic.h>
#include <string.h>

struct ag_shared_pool {
    atomic_uint refs;
    atomic_size_t bytes;
    ag_weight_arenas weights;
};

ag_shared_pool *ag_shared_pool_create(void) {
    ag_shared_pool *pool = ag_malloc(sizeof *pool);
    if (!pool) return NULL;
    atomic_init(&pool->refs, 1);
    atomic_init(&pool->bytes, 0);
    ag_weight_arenas_init(&pool->weights);
    return pool;
}

void ag_shared_pool_release(ag_shared_pool *pool) {
    if (!pool || atomic_fetch_sub_explicit(&pool->refs, 1, memory_order_acq_rel) != 1) return;
    ag_weight_arenas_finish(&pool->weights);
    ag_free(pool);
}

size_t ag_shared_pool_bytes(const ag_shared_pool *pool) {
    return atomic_load_explicit(&pool->bytes, memory_order_relaxed);
}

typedef struct shared_buffer {
    ag_buffer base;
    unsigned char *data;
    ag_weight_arena *arena; /* NULL: not in an arena of weights */
    ag_shared_pool *pool;
    size_t counted; /* bytes of this buffer that the pool includes */
} shared_buffer;

static void *shared_map(ag_buffer *buf) { return ((shared_buffer *)buf)->data; }

/* Frees the buffer except its data. */
static void free_all_but_data(shared_buffer *s) {
    atomic_fetch_sub_explicit(&s->pool->bytes, s->counted, memory_order_relaxed);
    ag_shared_pool_release(s->pool);
    ag_free(s);
}

static void heap_destroy(ag_buffer *buf) {
    shared_buffer *s = (shared_buffer *)buf;
    ag_aligned_free(s->data);
    free_all_but_data(s);
}

static void pages_destroy(ag_buffer *buf) {
    shared_buffer *s = (shared_buffer *)buf;
    if (s->arena) ag_weight_free(s->arena, s->data, buf->size);
    else ag_unmap(s->data, buf->size);
    free_all_but_data(s);
}

static size_t pages_discard(ag_buffer *buf, size_t offset, size_t n) {
    return ag_pages_discard(((shared_buffer *)buf)->data, buf->size, offset, n);
}

static void kv_commit(ag_buffer *buf, size_t n) {
    shared_buffer *s = (shared_buffer *)buf;
    s->counted += n;
    atomic_fetch_add_explicit(&s->pool->bytes, n, memory_order_relaxed);
}

static void kv_uncommit(ag_buffer *buf, size_t n) {
    shared_buffer *s = (shared_buffer *)buf;
    const size_t unused = n < s->counted ? n : s->counted;
    s->counted -= unused;
    atomic_fetch_sub_explicit(&s->pool->bytes, unused, memory_order_relaxed);
}

/* Full small pages become huge ones: the rows of a head are pieces of a few pages, and with small
 * pages an eighth of the time of reading them goes into address translation. */
static void kv_promote(ag_buffer *buf, size_t begin, size_t from, size_t end) {
    unsigned char *data = ((shared_buffer *)buf)->data;
    size_t at = from > begin + AG_HUGE_PAGE ? from - AG_HUGE_PAGE : begin;
    at += (AG_HUGE_PAGE - (uintptr_t)(data + at) % AG_HUGE_PAGE) % AG_HUGE_PAGE;
    for (; at + AG_HUGE_PAGE <= end; at += AG_HUGE_PAGE) {
        if (at + AG_HUGE_PAGE > from) ag_pages_collapse(data + at);
    }
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

static unsigned char *allocate_heap(size_t bytes) {
    unsigned char *p = ag_aligned_alloc(bytes);
    if (!p) return NULL;
    ag_pages_prefer_huge(p, bytes);
    memset(p, 0, bytes);
    return p;
}

ag_status ag_shared_buffer_create(ag_shared_pool *pool, size_t bytes, ag_usage usage,
                                  ag_buffer **out, ag_error *err) {
    *out = NULL;
    bool heap = usage == AG_USAGE_SCRATCH;
    if (bytes > SIZE_MAX - AG_HUGE_PAGE) return AG_FAIL(err, NOMEM, "buffer of %zu bytes", bytes);
    shared_buffer *s = ag_malloc(sizeof *s);
    if (!s) return AG_FAIL(err, NOMEM, "buffer header of %zu bytes", sizeof *s);
    *s = (shared_buffer){.pool = pool, .counted = usage == AG_USAGE_KV ? 0 : bytes};
    s->data = heap                        ? allocate_heap(bytes)
              : usage == AG_USAGE_WEIGHTS ? ag_weight_alloc(&pool->weights, bytes, &s->arena)
                                          : ag_map_small(bytes);
    if (!s->data) {
        ag_free(s);
        return AG_FAIL(err, NOMEM, "buffer of %zu bytes", bytes);
    }
    atomic_fetch_add_explicit(&pool->refs, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&pool->bytes, s->counted, memory_order_relaxed);
    const ag_buffer_ops *pages = usage == AG_USAGE_KV ? &kv_ops : &pages_ops;
    ag_buffer_init(&s->base, heap ? &heap_ops : pages, bytes);
    *out = &s->base;
    return AG_OK;
}
