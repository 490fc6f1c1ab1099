/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AG_OPENCL_STAGING_H
#define AG_OPENCL_STAGING_H

#include "backend/opencl/opencl.h"

/* Enqueues a copy of n bytes to dst through the ring. The caller may reuse data when this returns.
 */
ag_status ag_cl_stage_into(ag_cl_backend *cl, cl_mem dst, size_t dst_offset, const void *data,
                           size_t n, ag_error *err);

#endif
