/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of work-groups, as large as kernels like them or as the device can hold. */
#ifndef AG_OPENCL_SIZES_H
#define AG_OPENCL_SIZES_H

#include "backend/opencl/device.h"

typedef struct ag_cl_sizes {
    unsigned matvec_teams, matvec_rows; /* matvec.cl: TEAMS of 32 items, TEAM_ROWS */
    unsigned tile_m, tile_n, tile_wg;   /* matmul_tile.cl, matmul_half.cl */
    unsigned attention_wg;              /* attention.cl */
    unsigned attention_queries;         /* QUERIES of it in prefill */
    unsigned top_wg;                    /* top_k.cl; 0: it does not fit */
} ag_cl_sizes;

/* AG_UNSUPPORTED if there are none for such a device. */
ag_status ag_cl_sizes_for(const ag_cl_device *d, ag_cl_sizes *out, ag_error *err);

#endif
