/* SPDX-License-Identifier: Apache-2.0 */
/* Paths for extensions that some vendors' devices have: which are taken. None is by itself; a
 * variable of the environment each asks for them. */
#ifndef AG_OPENCL_VENDOR_H
#define AG_OPENCL_VENDOR_H

#include "backend/opencl/device.h"
#include "backend/opencl/switches.h"

/* The values of the options of the same names, 0: not taken. */
typedef struct ag_cl_vendor {
    unsigned subgroups;   /* kernels/subgroup.cl */
    unsigned dot;         /* kernels/dot_bytes.cl */
    unsigned half;        /* kernels/matmul_half.cl */
    char options[64];     /* all of it, to go behind other options; "": none is taken */
    char description[64]; /* ", sub-groups, halves" */
} ag_cl_vendor;

/* Options for kernels whose only such path is sums over work-items. */
static inline const char *ag_cl_vendor_sums(const ag_cl_vendor *v) {
    return v->subgroups ? v->options : "";
}

/* As AG_OPENCL_SUBGROUPS, AG_OPENCL_DOT and AG_OPENCL_HALF say, or as AG_OPENCL_EMULATE stands in
 * for them. AG_UNSUPPORTED if the device does not list what was asked for. */
ag_status ag_cl_vendor_choose(const ag_cl_device *d, const ag_cl_switches *sw, ag_cl_vendor *out,
                              ag_error *err);

#endif
