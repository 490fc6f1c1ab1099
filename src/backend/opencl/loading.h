/* SPDX-License-Identifier: Apache-2.0 */
/* Loading of weights: host threads that convert them, and pinned memory in two halves. One half is
 * filled while the driver copies the other. */
#ifndef AG_OPENCL_LOADING_H
#define AG_OPENCL_LOADING_H

#include "backend/cpu/pool.h"
#include "backend/opencl/opencl.h"
#include "quant/quant.h"

struct ag_cl_loading {
    ag_pool *pool;               /* owned */
    ag_weight_rounding rounding; /* vectorised if possible, as in the CPU backend */
    unsigned char *scratch;      /* owned */
    size_t scratch_bytes;        /* scratch of each thread */
    cl_mem pinned;               /* owned */
    unsigned char *host;         /* host address of `pinned` */
    size_t half_bytes;
    unsigned half;    /* the half being filled */
    cl_event left[2]; /* owned; last copy from each half; NULL: none pending */
};

/* Creates or grows cl->loading to these sizes, of each half and of each thread's scratch. */
ag_status ag_cl_loading_need(ag_cl_backend *cl, size_t half_bytes, size_t scratch_bytes);
void ag_cl_loading_close(ag_cl_backend *cl);

void *ag_cl_loading_scratch(const ag_cl_loading *l, uint32_t thread);

/* Switches to the other half and returns its address in *out when it may be written. */
ag_status ag_cl_loading_turn(ag_cl_backend *cl, unsigned char **out);
/* Enqueues a copy of n bytes of the filled half to dst. Does not wait. */
ag_status ag_cl_loading_send(ag_cl_backend *cl, cl_mem dst, size_t dst_offset,
                             const unsigned char *from, size_t n);

#endif
