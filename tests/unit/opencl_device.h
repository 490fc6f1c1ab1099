/* SPDX-License-Identifier: Apache-2.0 */
/* The device that OpenCL tests run on, or a message why they do not. */
#ifndef AG_TESTS_OPENCL_DEVICE_H
#define AG_TESTS_OPENCL_DEVICE_H

#include "backend/opencl/opencl.h"
#include "support/named_backend.h"

/* For main(): NULL after saying why. */
static inline ag_backend *open_opencl(void) {
    ag_backend *be;
    ag_error err;
    if (ag_cl_backend_create(NULL, &be, &err) != AG_OK) {
        printf("skipped: %s\n", err.msg);
        return NULL;
    }
    printf("on %s\n", ag_backend_describe(be));
    return be;
}

#endif
