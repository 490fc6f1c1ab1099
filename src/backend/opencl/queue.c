/* SPDX-License-Identifier: Apache-2.0 */
/* The queue, and messages of OpenCL errors. */
#include "backend/opencl/opencl.h"
#include "core/fail.h"

#include <stdarg.h>
#include <stdio.h>

ag_status ag_cl_fail(const ag_cl_backend *cl, ag_error *err, cl_int code, const char *doing, ...) {
    char text[256];
    va_list ap;
    va_start(ap, doing);
    vsnprintf(text, sizeof text, doing, ap);
    va_end(ap);
    return ag_fail(err, ag_cl_status(code), __FILE__, __LINE__, "OpenCL: %s: %s (%d) on %s", text,
                   ag_cl_error_name(code), code, cl->device.name);
}

void ag_cl_release_mem(ag_cl_backend *cl, cl_mem mem) {
    atomic_fetch_add(&cl->released, 1);
    /* The driver does not know the memory that commands use by address. */
    if (cl->by_address) (void)cl->api.clFinish(cl->queue);
    (void)cl->api.clReleaseMemObject(mem);
}

ag_status ag_cl_finish(ag_cl_backend *cl, ag_error *err) {
    cl_int code = cl->api.clFinish(cl->queue);
    return code == CL_SUCCESS ? AG_OK : ag_cl_fail(cl, err, code, "waiting for the queue");
}

ag_status ag_cl_new_mem(ag_cl_backend *cl, cl_mem_flags flags, size_t bytes, const char *what,
                        cl_mem *out, ag_error *err) {
    cl_int code;
    cl_mem mem = cl->api.clCreateBuffer(cl->context, flags, bytes, NULL, &code);
    *out = code == CL_SUCCESS ? mem : NULL;
    return *out ? AG_OK : ag_cl_fail(cl, err, code, "%zu bytes %s", bytes, what);
}

ag_status ag_cl_clear(ag_cl_backend *cl, cl_mem mem, size_t offset, size_t n, ag_error *err) {
    static const unsigned char zeros[16];
    cl_int code =
        cl->api.clEnqueueFillBuffer(cl->queue, mem, zeros, sizeof zeros, offset, n, 0, NULL, NULL);
    return code == CL_SUCCESS ? AG_OK : ag_cl_fail(cl, err, code, "clearing %zu bytes", n);
}

ag_status ag_cl_read(ag_cl_backend *cl, cl_mem mem, size_t offset, size_t n, void *out,
                     ag_error *err) {
    cl_int code =
        cl->api.clEnqueueReadBuffer(cl->queue, mem, CL_TRUE, offset, n, out, 0, NULL, NULL);
    return code == CL_SUCCESS ? AG_OK : ag_cl_fail(cl, err, code, "reading %zu bytes", n);
}

ag_status ag_cl_max_group(ag_cl_backend *cl, cl_kernel kernel, size_t *out) {
    cl_int code = cl->api.clGetKernelWorkGroupInfo(kernel, cl->device.id, CL_KERNEL_WORK_GROUP_SIZE,
                                                   sizeof *out, out, NULL);
    if (code == CL_SUCCESS) return AG_OK;
    return ag_cl_fail(cl, &cl->base.err, code, "the work-group size of a kernel");
}
