/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of kernels and their launches. */
#include "backend/opencl/recorded_launch.h"
#include "core/fail.h"

/* ---- arguments ---- */

ag_status ag_cl_begin(ag_cl_launch *l, ag_cl_backend *cl, const char *file, const char *name,
                      const char *options) {
    *l = (ag_cl_launch){.cl = cl, .file = file, .name = name, .code = CL_SUCCESS};
    AG_TRY(ag_cl_kernel(cl, file, name, options, &l->kernel));
    ag_cl_launch_list_begin(l, options);
    return AG_OK;
}

void ag_cl_arg(ag_cl_launch *l, size_t bytes, const void *value) {
    cl_uint i = l->n_args++;
    if (l->code != CL_SUCCESS || ag_cl_launch_list_has(l->recorded, i, bytes, value)) return;
    l->code = l->cl->api.clSetKernelArg(l->kernel, i, bytes, value);
    l->refused_arg = i;
    if (l->code == CL_SUCCESS) ag_cl_launch_list_set(l->recorded, i, bytes, value);
}

void ag_cl_arg_local(ag_cl_launch *l, size_t bytes) { ag_cl_arg(l, bytes, NULL); }

void ag_cl_arg_u32(ag_cl_launch *l, uint32_t v) { ag_cl_arg(l, sizeof v, &v); }

void ag_cl_arg_u64(ag_cl_launch *l, uint64_t v) { ag_cl_arg(l, sizeof v, &v); }

void ag_cl_arg_f32(ag_cl_launch *l, float v) { ag_cl_arg(l, sizeof v, &v); }

void ag_cl_arg_mem(ag_cl_launch *l, cl_mem mem) { ag_cl_arg(l, sizeof mem, &mem); }

static void refuse(ag_cl_launch *l, cl_int code) {
    if (l->code == CL_SUCCESS) {
        l->code = code;
        l->refused_arg = l->n_args;
    }
    l->n_args++;
}

void ag_cl_arg_buffer(ag_cl_launch *l, ag_buffer *buf) {
    ag_cl_buffer *b = ag_cl_buffer_of(l->cl, buf);
    if (!b) {
        refuse(l, CL_INVALID_MEM_OBJECT);
        return;
    }
    if (b->mapped) ag_buffer_unmap(buf);
    if (l->recorded) b->named_by |= l->cl->record_into->bit;
    ag_cl_arg_mem(l, b->mem);
}

void ag_cl_arg_tensor(ag_cl_launch *l, const ag_tensor *t) {
    ag_cl_arg_buffer(l, t->buffer);
    ag_cl_arg_u64(l, t->offset);
}

void ag_cl_arg_staged(ag_cl_launch *l, const void *data, size_t n) {
    cl_mem mem = NULL;
    size_t offset = 0;
    if (l->code == CL_SUCCESS && !ag_cl_launch_list_place(l, data, n, &mem, &offset)) {
        l->staged = ag_cl_stage(l->cl, data, n, &mem, &offset, &l->cl->base.err);
        if (l->staged != AG_OK) l->code = CL_OUT_OF_RESOURCES;
    }
    ag_cl_arg_mem(l, mem);
    ag_cl_arg_u64(l, offset);
}

/* ---- launching ---- */

ag_status ag_cl_enqueue(ag_cl_launch *l, cl_uint dims, const size_t *global, const size_t *local) {
    ag_cl_backend *cl = l->cl;
    if (l->staged != AG_OK) return l->staged;
    if (l->code != CL_SUCCESS) {
        return ag_cl_fail(cl, &cl->base.err, l->code, "argument %u of kernel %s (%s)",
                          (unsigned)l->refused_arg, l->name, l->file);
    }
    AG_TRY(ag_cl_launch_kernel(cl, l->kernel, l->file, l->name, dims, global, local));
    ag_cl_launch_list_add(l, dims, global, local);
    return AG_OK;
}
