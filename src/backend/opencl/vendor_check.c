/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the code paths for extensions by running kernels/vendor_check.cl once. */
#include "backend/opencl/ops.h"
#include "core/fail.h"

enum { CHECK_WG = 64 }; /* as in the file */

static ag_status count_faults(ag_cl_backend *cl, cl_uint faults[3]) {
    ag_error *err = &cl->base.err;
    cl_mem found;
    ag_cl_launch l;
    AG_TRY(ag_cl_need_scratch(cl, 3 * sizeof *faults, &found));
    AG_TRY(ag_cl_begin(&l, cl, "vendor_check.cl", "vendor_check", cl->vendor.options));
    ag_cl_arg_mem(&l, found);
    AG_TRY(ag_cl_enqueue(&l, 1, (size_t[]){CHECK_WG}, (size_t[]){CHECK_WG}));
    const cl_int code = cl->api.clEnqueueReadBuffer(cl->queue, found, CL_TRUE, 0,
                                                    3 * sizeof *faults, faults, 0, NULL, NULL);
    return code == CL_SUCCESS ? AG_OK : ag_cl_fail(cl, err, code, "trying a vendor's path");
}

ag_status ag_cl_vendor_check(ag_cl_backend *cl, ag_error *err) {
    static const char *const variables[3] = {"AG_OPENCL_SUBGROUPS", "AG_OPENCL_DOT",
                                             "AG_OPENCL_HALF"};
    cl_uint faults[3] = {0, 0, 0};
    const ag_status st = cl->vendor.options[0] ? count_faults(cl, faults) : AG_OK;
    if (st != AG_OK && err) *err = cl->base.err;
    for (int i = 0; i < 3 && st == AG_OK; i++) {
        if (!faults[i]) continue;
        return AG_FAIL(err, DEVICE, "%s: %s computes otherwise than its extension says (%u faults)",
                       variables[i], cl->device.name, (unsigned)faults[i]);
    }
    return st;
}
