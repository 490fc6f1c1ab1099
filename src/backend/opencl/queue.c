/* SPDX-License-Identifier: Apache-2.0 */
/* The queue, and errors of OpenCL as messages. */
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

ag_status ag_cl_finish(ag_cl_backend *cl, ag_error *err) {
    cl_int code = cl->api.clFinish(cl->queue);
    return code == CL_SUCCESS ? AG_OK : ag_cl_fail(cl, err, code, "waiting for the queue");
}

static const char *format_sizes(char out[64], cl_uint dims, const size_t *sizes) {
    if (!sizes) return "any";
    int n = 0;
    for (cl_uint i = 0; i < dims && n < 64; i++) {
        n += snprintf(out + n, 64 - (size_t)n, "%s%zu", i ? "x" : "", sizes[i]);
    }
    return out;
}

ag_status ag_cl_launch_kernel(ag_cl_backend *cl, cl_kernel kernel, const char *file,
                              const char *name, cl_uint dims, const size_t *global,
                              const size_t *local) {
    cl_int code =
        cl->api.clEnqueueNDRangeKernel(cl->queue, kernel, dims, NULL, global, local, 0, NULL, NULL);
    if (code == CL_SUCCESS) return AG_OK;
    char of[64], by[64];
    return ag_cl_fail(cl, &cl->base.err, code, "kernel %s (%s), %s items in groups of %s", name,
                      file, format_sizes(of, dims, global), format_sizes(by, dims, local));
}

ag_status ag_cl_max_group(ag_cl_backend *cl, cl_kernel kernel, size_t *out) {
    cl_int code = cl->api.clGetKernelWorkGroupInfo(kernel, cl->device.id, CL_KERNEL_WORK_GROUP_SIZE,
                                                   sizeof *out, out, NULL);
    if (code == CL_SUCCESS) return AG_OK;
    return ag_cl_fail(cl, &cl->base.err, code, "the work-group size of a kernel");
}
