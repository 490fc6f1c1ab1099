/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/galloc.h"

#include "core/alloc.h"
#include "core/buffer_ops.h"
#include "core/fail.h"
#include "memory/shared_buffer.h"

typedef struct galloc {
    ag_memory base;
    ag_byte_counter *counter; /* shared with the buffers */
} galloc;

static ag_status galloc_alloc(ag_memory *mem, size_t bytes, ag_usage usage, ag_buffer **out,
                              ag_error *err) {
    return ag_shared_buffer_create(bytes, usage, ((galloc *)mem)->counter, out, err);
}

static size_t galloc_bytes_in_use(const ag_memory *mem) {
    return ag_byte_counter_get(((const galloc *)mem)->counter);
}

static const ag_memory_ops galloc_ops = {
    .alloc = galloc_alloc,
    .bytes_in_use = galloc_bytes_in_use,
};

ag_status ag_galloc_create(ag_memory **out, ag_error *err) {
    *out = NULL;
    galloc *g = ag_malloc(sizeof *g);
    ag_byte_counter *counter = ag_byte_counter_create();
    if (!g || !counter) {
        ag_byte_counter_release(counter);
        ag_free(g);
        return AG_FAIL(err, NOMEM, "allocator of %zu bytes", sizeof *g);
    }
    *g = (galloc){.base.ops = &galloc_ops, .counter = counter};
    *out = &g->base;
    return AG_OK;
}

void ag_galloc_destroy(ag_memory *mem) {
    if (!mem) return;
    galloc *g = (galloc *)mem;
    ag_byte_counter_release(g->counter);
    ag_free(g);
}
