/* SPDX-License-Identifier: Apache-2.0 */
/* What weights go through on their way to the device: threads of the host that convert them, and
 * pinned memory in two halves. One is filled while the driver fetches the other. */
#ifndef AG_OPENCL_LOADING_H
#define AG_OPENCL_LOADING_H

#include "backend/cpu/pool.h"
#include "backend/opencl/opencl.h"
#include "quant/quant.h"

struct ag_cl_loading {
    ag_pool *pool;               /* owned */
    ag_weight_rounding rounding; /* in vectors where there are some, as the CPU backend's */
    unsigned char *scratch;      /* owned */
    size_t scratch_bytes;        /* of each thread */
    cl_mem pinned;               /* owned */
    unsigned char *host;         /* pinned, as the host sees it */
    size_t half_bytes;
    unsigned half;    /* the one that is being filled */
    cl_event left[2]; /* owned; the last copy out of each half, NULL if none is under way */
};

/* Makes cl->loading or enlarges it: so many bytes in each half, and of scratch for each thread. */
ag_status ag_cl_loading_need(ag_cl_backend *cl, size_t half_bytes, size_t scratch_bytes);
void ag_cl_loading_close(ag_cl_backend *cl);

void *ag_cl_loading_scratch(const ag_cl_loading *l, uint32_t thread);

/* The other half from now on; *out is free to be written when this returns. */
ag_status ag_cl_loading_turn(ag_cl_backend *cl, unsigned char **out);
/* n bytes of the half that was filled go to dst; nothing is waited for. */
ag_status ag_cl_loading_send(ag_cl_backend *cl, cl_mem dst, size_t dst_offset,
                             const unsigned char *from, size_t n);

#endif
