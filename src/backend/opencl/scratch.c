/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/ops.h"
#include "core/alloc.h"
#include "core/fail.h"

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
