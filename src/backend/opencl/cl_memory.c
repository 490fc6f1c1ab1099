/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory: counts the bytes in use and rejects allocations that do not fit, before the driver
 * starts to swap. */
#include "backend/opencl/opencl.h"
#include "core/alloc.h"
#include "core/fail.h"

static ag_cl_memory *self(ag_memory *mem) { return (ag_cl_memory *)(void *)mem; }

/* Reserves the bytes atomically, so that two threads cannot both get the last ones. */
static ag_status reserve_bytes(ag_cl_memory *m, size_t bytes, ag_error *err) {
    const ag_cl_device *d = &m->cl->device;
    size_t in_use = atomic_fetch_add_explicit(&m->in_use, bytes, memory_order_relaxed);
    if (bytes <= SIZE_MAX - in_use && in_use + bytes <= d->global_bytes) return AG_OK;
    atomic_fetch_sub_explicit(&m->in_use, bytes, memory_order_relaxed);
    return AG_FAIL(err, NOMEM,
                   "device buffer of %zu bytes does not fit: %zu of %llu bytes of %s are in use",
                   bytes, in_use, (unsigned long long)d->global_bytes, d->name);
}

static ag_status memory_alloc(ag_memory *mem, size_t bytes, ag_usage usage, ag_buffer **out,
                              ag_error *err) {
    (void)usage;
    ag_cl_memory *m = self(mem);
    AG_TRY(reserve_bytes(m, bytes, err));
    ag_status st = ag_cl_buffer_create(m, bytes, out, err);
    if (st != AG_OK) atomic_fetch_sub_explicit(&m->in_use, bytes, memory_order_relaxed);
    return st;
}

static size_t memory_in_use(const ag_memory *mem) {
    const ag_cl_memory *m = (const ag_cl_memory *)(const void *)mem;
    return atomic_load_explicit(&m->in_use, memory_order_relaxed);
}

static void memory_available(const ag_memory *mem, ag_memory_available *out) {
    const ag_cl_device *d = &((const ag_cl_memory *)(const void *)mem)->cl->device;
    const uint64_t in_use = memory_in_use(mem);
    *out = (ag_memory_available){
        .name = d->name,
        .bytes = d->global_bytes,
        .free = d->global_bytes > in_use ? d->global_bytes - in_use : 0,
        .largest = d->max_alloc,
    };
}

static const ag_memory_ops memory_ops = {
    .alloc = memory_alloc,
    .bytes_in_use = memory_in_use,
    .available = memory_available,
    .commits_at_once = true,
};

ag_status ag_cl_memory_create(ag_cl_backend *cl, ag_cl_memory **out, ag_error *err) {
    *out = ag_calloc(1, sizeof **out);
    if (!*out) return AG_FAIL(err, NOMEM, "device memory");
    (*out)->base.ops = &memory_ops;
    (*out)->cl = cl;
    atomic_init(&(*out)->in_use, 0);
    return AG_OK;
}

void ag_cl_memory_destroy(ag_cl_memory *m) { ag_free(m); }
