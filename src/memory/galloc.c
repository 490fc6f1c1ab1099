/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/galloc.h"

#include "core/alloc.h"
#include "core/buffer_ops.h"
#include "core/fail.h"
#include "memory/shared_buffer.h"

typedef struct galloc {
    ag_memory base;
    ag_shared_pool *pool; /* shared with the buffers */
} galloc;

static ag_status galloc_alloc(ag_memory *mem, size_t bytes, ag_usage usage, ag_buffer **out,
                              ag_error *err) {
    return ag_shared_buffer_create(((galloc *)mem)->pool, bytes, usage, out, err);
}

static size_t galloc_bytes_in_use(const ag_memory *mem) {
    return ag_shared_pool_bytes(((const galloc *)mem)->pool);
}

static const ag_memory_ops galloc_ops = {
    .alloc = galloc_alloc,
    .bytes_in_use = galloc_bytes_in_use,
};

ag_status ag_galloc_create(ag_memory **out, ag_error *err) {
    *out = NULL;
    galloc *g = ag_malloc(sizeof *g);
    ag_shared_pool *pool = ag_shared_pool_create();
    if (!g || !pool) {
        ag_shared_pool_release(pool);
        ag_free(g);
        return AG_FAIL(err, NOMEM, "allocator of %zu bytes", sizeof *g);
    }
    *g = (galloc){.base.ops = &galloc_ops, .pool = pool};
    *out = &g->base;
    return AG_OK;
}

void ag_galloc_destroy(ag_memory *mem) {
    if (!mem) return;
    galloc *g = (galloc *)mem;
    ag_shared_pool_release(g->pool);
    ag_free(g);
}
