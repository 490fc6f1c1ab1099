/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of work-groups: the kernels' preferred sizes, reduced to the device's limits. */
#ifndef AG_OPENCL_SIZES_H
#define AG_OPENCL_SIZES_H

#include "backend/opencl/device.h"

typedef struct ag_cl_sizes {
    unsigned matvec_lanes, matvec_teams, matvec_rows; /* matvec.cl: LANES, TEAMS, TEAM_ROWS */
    unsigned tile_m, tile_n, tile_wg;                 /* matmul_tile.cl */
    unsigned attention_wg;                            /* attention.cl */
    unsigned attention_queries;                       /* attention.cl: QUERIES in prefill */
    unsigned top_wg;                                  /* top_k.cl */
} ag_cl_sizes;

/* Writes the sizes. Fails with AG_UNSUPPORTED if the device is too small. */
ag_status ag_cl_sizes_for(const ag_cl_device *d, ag_cl_sizes *out, ag_error *err);

#endif
