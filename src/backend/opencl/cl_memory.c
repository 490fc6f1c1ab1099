/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory: counts the bytes in use and rejects allocations that do not fit, before the driver
 * starts to swap; memory that all operations share; device addresses. */
#include "backend/opencl/ops.h"
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

/* ---- memory for any operation ---- */

enum { LEAST_BYTES = 1 << 16 };

/* The old memory lasts until enqueued commands are done. */
ag_status ag_cl_need_scratch(ag_cl_backend *cl, size_t bytes, cl_mem *out) {
    if (!cl->scratch.mem || bytes > cl->scratch.bytes) {
        size_t size = LEAST_BYTES;
        while (size < bytes && size <= SIZE_MAX / 2) size *= 2;
        cl_mem mem;
        AG_TRY(ag_cl_new_mem(cl, CL_MEM_READ_WRITE, size, "of scratch", &mem, &cl->base.err));
        if (cl->scratch.mem) ag_cl_release_part(cl, cl->scratch.mem);
        cl->scratch.mem = mem;
        cl->scratch.bytes = size;
    }
    *out = cl->scratch.mem;
    return AG_OK;
}

ag_status ag_cl_need_counts(ag_cl_backend *cl, size_t n) {
    enum { MIN_COUNTS = 4096 };
    if (n <= cl->tile_counts.n) return AG_OK;
    const size_t cap = n < MIN_COUNTS ? MIN_COUNTS : 4 * n, bytes = cap * sizeof(cl_uint);
    cl_mem mem;
    AG_TRY(ag_cl_new_mem(cl, CL_MEM_READ_WRITE, bytes, "of counts", &mem, &cl->base.err));
    if (cl->tile_counts.mem) ag_cl_release_mem(cl, cl->tile_counts.mem);
    cl->tile_counts.mem = mem;
    cl->tile_counts.n = 0;
    AG_TRY(ag_cl_clear(cl, mem, 0, bytes, &cl->base.err));
    cl->tile_counts.n = cap;
    return AG_OK;
}

ag_status ag_cl_need_joined(ag_cl_backend *cl, size_t bytes, unsigned char **out) {
    if (bytes > cl->joined.bytes) {
        unsigned char *grown = ag_malloc(2 * bytes);
        if (!grown) return AG_FAIL(&cl->base.err, NOMEM, "tables of sequences, %zu bytes", bytes);
        ag_free(cl->joined.memory);
        cl->joined.memory = grown;
        cl->joined.bytes = 2 * bytes;
    }
    *out = cl->joined.memory;
    return AG_OK;
}

/* ---- addresses ----
 *
 * A launch takes NVIDIA's driver 0.3 us longer for each memory object among its arguments, so
 * kernels get a null pointer and an address as the offset. */

/* Writes the address that a kernel sees. Waits for the queue. */
static ag_status read_address(ag_cl_backend *cl, cl_mem mem, uint64_t *out) {
    ag_error *err = &cl->base.err;
    cl_ulong address = 0;
    if (!cl->address_result) {
        AG_TRY(ag_cl_new_mem(cl, CL_MEM_READ_WRITE, sizeof address, "for an address",
                             &cl->address_result, err));
    }
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, cl, "address.cl", "address_of", NULL));
    ag_cl_arg_mem(&l, mem);
    ag_cl_arg_mem(&l, cl->address_result);
    AG_TRY(ag_cl_enqueue(&l, 1, (size_t[]){1}, (size_t[]){1}));
    AG_TRY(ag_cl_read(cl, cl->address_result, 0, sizeof address, &address, err));
    *out = address;
    return AG_OK;
}

ag_status ag_cl_buffer_address(ag_cl_backend *cl, ag_buffer *buf, uint64_t *out) {
    ag_cl_buffer *b = ag_cl_buffer_of(cl, buf);
    if (!b) return AG_FAIL(&cl->base.err, INVALID, "a buffer that is not on this device");
    if (!b->address) AG_TRY(read_address(cl, b->mem, &b->address));
    *out = b->address;
    return AG_OK;
}

ag_status ag_cl_part_address(ag_cl_backend *cl, cl_mem mem, uint64_t *out) {
    for (size_t i = 0; i < AG_CL_PARTS; i++) {
        if (cl->parts[i].mem == mem) {
            *out = cl->parts[i].address;
            return AG_OK;
        }
    }
    AG_TRY(read_address(cl, mem, out));
    cl->parts[cl->next_part] = (ag_cl_part){mem, *out};
    cl->next_part = (cl->next_part + 1) % AG_CL_PARTS;
    return AG_OK;
}

void ag_cl_release_part(ag_cl_backend *cl, cl_mem mem) {
    for (size_t i = 0; i < AG_CL_PARTS; i++) {
        if (cl->parts[i].mem == mem) cl->parts[i] = (ag_cl_part){0};
    }
    ag_cl_release_mem(cl, mem);
}
