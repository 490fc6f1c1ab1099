/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the read bandwidth of the device's memory, which bounds the speed of decoding. */
#include "backend/opencl/ops.h"
#include "core/fail.h"
#include "platform/clock.h"

enum { WG = 256, GROUPS_A_UNIT = 16, ROUNDS = 8, MIB = 1 << 20 };

/* Returns a size above that of caches. */
static size_t bytes_to_read(const ag_cl_device *d) {
    size_t bytes = (size_t)(d->is_cpu ? 256 : 2048) * MIB;
    if (bytes > d->global_bytes / 4) bytes = (size_t)d->global_bytes / 4;
    if (bytes > d->max_alloc) bytes = (size_t)d->max_alloc;
    return bytes / MIB * MIB;
}

/* Reads all data `rounds` times. */
static ag_status read_all(ag_cl_backend *cl, ag_buffer *data, size_t bytes, int rounds) {
    cl_mem sink;
    AG_TRY(ag_cl_need_scratch(cl, sizeof(cl_uint), &sink));
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, cl, "bandwidth.cl", "read_all", NULL));
    ag_cl_arg_buffer(&l, data);
    ag_cl_arg_u64(&l, bytes / sizeof(cl_uint4));
    ag_cl_arg_mem(&l, sink);
    /* On processors each work-item reads adjacent data; on GPUs adjacent work-items do. */
    const size_t units = cl->device.compute_units, max_group = cl->device.max_group;
    const size_t group = cl->device.is_cpu ? 1 : max_group < WG ? max_group : WG;
    const size_t items = cl->device.is_cpu ? units : units * GROUPS_A_UNIT * group;
    for (int i = 0; i < rounds; i++) AG_TRY(ag_cl_enqueue(&l, 1, &items, &group));
    return ag_cl_finish(cl, &cl->base.err);
}

ag_status ag_cl_read_rate(ag_backend *b, double *bytes_per_s) {
    ag_cl_backend *cl = ag_cl_of(b);
    const size_t bytes = bytes_to_read(&cl->device);
    if (!bytes) return AG_OK;
    ag_buffer *data;
    AG_TRY(ag_memory_alloc(&cl->memory->base, bytes, AG_USAGE_SCRATCH, &data, &b->err));
    ag_status st = read_all(cl, data, bytes, 2);
    const double begin = ag_now_s();
    if (st == AG_OK) st = read_all(cl, data, bytes, ROUNDS);
    const double s = ag_now_s() - begin;
    if (st == AG_OK && s > 0) *bytes_per_s = (double)bytes * ROUNDS / s;
    ag_buffer_release(&data);
    return st;
}
