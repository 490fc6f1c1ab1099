/* SPDX-License-Identifier: Apache-2.0 */
/* Code paths for extensions of some vendors' devices. Each is off unless an environment variable
 * enables it. */
#ifndef AG_OPENCL_VENDOR_H
#define AG_OPENCL_VENDOR_H

#include "backend/opencl/device.h"
#include "backend/opencl/switches.h"

/* Values of the kernel options of the same names; 0: off. */
typedef struct ag_cl_vendor {
    unsigned subgroups;   /* kernels/subgroup.cl */
    unsigned dot;         /* kernels/dot_bytes.cl */
    unsigned half;        /* kernels/matmul_tile.cl */
    char options[64];     /* build options for all, appended to others; "": all off */
    char description[64]; /* ", sub-groups, halves" */
} ag_cl_vendor;

/* Returns the options for kernels that only use sub-group sums. */
static inline const char *ag_cl_vendor_sums(const ag_cl_vendor *v) {
    return v->subgroups ? v->options : "";
}

/* Chooses the paths that AG_OPENCL_SUBGROUPS, AG_OPENCL_DOT and AG_OPENCL_HALF enable, or that
 * AG_OPENCL_EMULATE emulates. Fails with AG_UNSUPPORTED if the device lacks the extension. */
ag_status ag_cl_vendor_choose(const ag_cl_device *d, const ag_cl_switches *sw, ag_cl_vendor *out,
                              ag_error *err);

#endif
