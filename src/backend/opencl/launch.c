/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of kernels, and launches. */
#include "backend/opencl/ops.h"
#include "core/fail.h"

#include <stdio.h>
#include <string.h>

/* ---- arguments ---- */

ag_status ag_cl_begin(ag_cl_launch *l, ag_cl_backend *cl, const char *file, const char *name,
                      const char *options) {
    *l = (ag_cl_launch){.cl = cl, .file = file, .name = name, .code = CL_SUCCESS};
    return ag_cl_kernel(cl, file, name, options, &l->kernel, &l->known);
}

static void set_arg(ag_cl_launch *l, size_t bytes, const void *value) {
    const cl_uint i = l->n_args++;
    if (l->code != CL_SUCCESS) return;
    l->code = l->cl->api.clSetKernelArg(l->kernel, i, bytes, value);
    l->refused_arg = i;
}

/* Sets the next argument unless the kernel already has this value. */
static void set_unknown(ag_cl_launch *l, size_t bytes, const void *value, uint32_t released) {
    const cl_uint i = l->n_args;
    ag_cl_known_arg arg = {.bytes = (uint32_t)bytes, .released = released};
    memcpy(&arg.value, value, bytes);
    if (i >= AG_CL_KNOWN_ARGS) {
        set_arg(l, bytes, value);
    } else if (l->code == CL_SUCCESS && memcmp(&l->known[i], &arg, sizeof arg) == 0) {
        l->n_args++;
    } else {
        set_arg(l, bytes, value);
        l->known[i] = l->code == CL_SUCCESS ? arg : (ag_cl_known_arg){0};
    }
}

void ag_cl_arg_local(ag_cl_launch *l, size_t bytes) { set_arg(l, bytes, NULL); }

void ag_cl_arg_u32(ag_cl_launch *l, uint32_t v) { set_unknown(l, sizeof v, &v, 0); }

void ag_cl_arg_u64(ag_cl_launch *l, uint64_t v) { set_unknown(l, sizeof v, &v, 0); }

void ag_cl_arg_f32(ag_cl_launch *l, float v) { set_unknown(l, sizeof v, &v, 0); }

void ag_cl_arg_mem(ag_cl_launch *l, cl_mem mem) {
    set_unknown(l, sizeof mem, &mem, mem ? atomic_load(&l->cl->released) + 1 : 0);
}

static void refuse(ag_cl_launch *l, cl_int code) {
    if (l->code == CL_SUCCESS) {
        l->code = code;
        l->refused_arg = l->n_args;
    }
    l->n_args++;
}

void ag_cl_arg_buffer(ag_cl_launch *l, ag_buffer *buf) {
    ag_cl_buffer *b = buf ? ag_cl_buffer_of(l->cl, buf) : NULL;
    if (buf && !b) {
        refuse(l, CL_INVALID_MEM_OBJECT);
        return;
    }
    if (b && b->mapped) ag_buffer_unmap(buf);
    ag_cl_arg_mem(l, b ? b->mem : NULL);
}

/* Sets a null pointer and an address. */
static void arg_address(ag_cl_launch *l, ag_status st, uint64_t address) {
    if (st != AG_OK) {
        l->staged = st;
        refuse(l, CL_OUT_OF_RESOURCES);
        return;
    }
    ag_cl_arg_mem(l, NULL);
    ag_cl_arg_u64(l, address);
}

void ag_cl_arg_at(ag_cl_launch *l, ag_buffer *buf, uint64_t offset) {
    uint64_t address = 0;
    if (l->cl->by_address && buf && ag_cl_buffer_of(l->cl, buf)) {
        const ag_status st = ag_cl_buffer_address(l->cl, buf, &address);
        arg_address(l, st, address + offset);
    } else {
        ag_cl_arg_buffer(l, buf);
        ag_cl_arg_u64(l, offset);
    }
}

void ag_cl_arg_tensor(ag_cl_launch *l, const ag_tensor *t) {
    ag_cl_arg_at(l, t ? t->buffer : NULL, t ? t->offset : 0);
}

void ag_cl_arg_tensors(ag_cl_launch *l, const ag_tensor *const t[], size_t n) {
    for (size_t i = 0; i < n; i++) ag_cl_arg_tensor(l, t[i]);
}

void ag_cl_arg_u32s(ag_cl_launch *l, const size_t v[], size_t n) {
    for (size_t i = 0; i < n; i++) ag_cl_arg_u32(l, (uint32_t)v[i]);
}

void ag_cl_arg_part(ag_cl_launch *l, cl_mem mem, uint64_t offset) {
    uint64_t address = 0;
    if (l->cl->by_address && mem) {
        const ag_status st = ag_cl_part_address(l->cl, mem, &address);
        arg_address(l, st, address + offset);
    } else {
        ag_cl_arg_mem(l, mem);
        ag_cl_arg_u64(l, offset);
    }
}

void ag_cl_arg_staged(ag_cl_launch *l, const void *data, size_t n) {
    cl_mem mem = NULL;
    size_t offset = 0;
    if (l->code == CL_SUCCESS) {
        l->staged = ag_cl_stage(l->cl, data, n, &mem, &offset, &l->cl->base.err);
        if (l->staged != AG_OK) l->code = CL_OUT_OF_RESOURCES;
    }
    ag_cl_arg_part(l, mem, offset);
}

/* ---- launching ---- */

static const char *format_sizes(char out[64], cl_uint dims, const size_t *sizes) {
    int n = 0;
    for (cl_uint i = 0; i < dims && n < 64; i++) {
        n += snprintf(out + n, 64 - (size_t)n, "%s%zu", i ? "x" : "", sizes[i]);
    }
    return out;
}

ag_status ag_cl_enqueue(ag_cl_launch *l, cl_uint dims, const size_t *global, const size_t *local) {
    ag_cl_backend *cl = l->cl;
    ag_error *err = &cl->base.err;
    if (l->staged != AG_OK) return l->staged;
    if (l->code != CL_SUCCESS) {
        return ag_cl_fail(cl, err, l->code, "argument %u of kernel %s (%s)",
                          (unsigned)l->refused_arg, l->name, l->file);
    }
    cl_event event;
    cl_int code = cl->api.clEnqueueNDRangeKernel(cl->queue, l->kernel, dims, NULL, global, local, 0,
                                                 NULL, cl->times ? &event : NULL);
    cl->n_writes++;
    if (code == CL_SUCCESS) {
        return cl->times ? ag_cl_times_add(cl, l->name, dims, global, local, event) : AG_OK;
    }
    char of[64], by[64];
    return ag_cl_fail(cl, err, code, "kernel %s (%s), %s items in groups of %s", l->name, l->file,
                      format_sizes(of, dims, global), format_sizes(by, dims, local));
}
