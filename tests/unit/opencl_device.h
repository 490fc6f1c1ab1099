/* SPDX-License-Identifier: Apache-2.0 */
/* The device that OpenCL tests run on, or a message why they do not. */
#ifndef AG_TESTS_OPENCL_DEVICE_H
#define AG_TESTS_OPENCL_DEVICE_H

#include "backend/opencl/steps.h"
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

/* The entry of the session that had the last token in one launch. */
static inline const ag_cl_token *newest_token(ag_backend *be) {
    const ag_cl_steps *steps = ag_cl_of(be)->steps;
    size_t i = 0;
    while (steps->entries[i].used != steps->clock) i++;
    return &steps->entries[i].token;
}

#endif
