/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of kernels/pack.cl: rows that a product on tensor cores will read. cl->packed holds the
 * rows of one tensor. They are valid until the next command that may write a tensor. */
#include "backend/opencl/ops.h"
#include "core/fail.h"

#include <stdio.h>

enum { MIN_WG = 128, MAX_WG = 512, PIECE = 4, MIN_PIECES = 4, ALIGN = 16 };
enum { PAST_LAST = 128 * 128 }; /* bytes that the last tile reads past the last row */

/* Returns the type that stands for all types with the same order of x. */
static ag_dtype order_of(ag_dtype type) { return ag_dtype_is_quantized(type) ? AG_Q4_0 : type; }

/* Makes cl->packed hold m rows of k values in its order. */
static ag_status need_packed(ag_cl_backend *cl, size_t m, size_t k) {
    const size_t factors_at = ag_cl_items(m * k * ag_cl_packed_bytes(cl->packed.order), 256);
    const size_t bytes = factors_at + m * sizeof(float) + PAST_LAST;
    cl->packed.valid_at = UINT64_MAX;
    cl->packed.factors_at = factors_at;
    if (bytes <= cl->packed.bytes) return AG_OK;
    cl_mem mem;
    AG_TRY(ag_cl_new_mem(cl, CL_MEM_READ_WRITE, bytes, "of packed rows", &mem, &cl->base.err));
    if (cl->packed.mem) ag_cl_release_mem(cl, cl->packed.mem);
    cl->packed.mem = mem;
    cl->packed.bytes = bytes;
    return AG_OK;
}

/* Returns the work-items for a row: MIN_PIECES for each, if they suffice. */
static size_t group_for(const ag_cl_backend *cl, size_t k) {
    size_t wg = MIN_WG;
    while (wg < MAX_WG && 2 * wg <= cl->device.max_group && k > wg * PIECE * MIN_PIECES) wg *= 2;
    return wg;
}

ag_status ag_cl_begin_pack(ag_cl_launch *l, ag_cl_backend *cl, const char *kernel,
                           const ag_tensor *x, const char *more) {
    const size_t m = ag_shape_rows(&x->shape), k = ag_shape_cols(&x->shape), wg = group_for(cl, k);
    char options[128];
    snprintf(options, sizeof options, "-DWTYPE=WEIGHT_%s -DWG=%zu -DCHUNKS=%zu%s",
             ag_dtype_name(cl->packed.order), wg, (k + wg * PIECE - 1) / (wg * PIECE), more);
    AG_TRY(need_packed(cl, m, k));
    AG_TRY(ag_cl_begin(l, cl, "pack.cl", kernel, options));
    ag_cl_arg_mem(l, cl->packed.mem);
    ag_cl_arg_u64(l, cl->packed.factors_at);
    return AG_OK;
}

ag_status ag_cl_finish_pack(ag_cl_launch *l, const ag_tensor *of) {
    ag_cl_backend *cl = l->cl;
    const size_t wg = group_for(cl, ag_shape_cols(&of->shape));
    const size_t m = ag_shape_rows(&of->shape);
    AG_TRY(ag_cl_enqueue(l, 1, (size_t[]){m * wg}, (size_t[]){wg}));
    cl->packed.of = *of;
    cl->packed.valid_at = cl->n_writes;
    return AG_OK;
}

static bool is_packed(const ag_cl_backend *cl, const ag_tensor *x) {
    const ag_tensor *of = &cl->packed.of;
    return cl->packed.mem && cl->packed.valid_at == cl->n_writes && of->buffer == x->buffer &&
           of->offset == x->offset && ag_shape_cols(&of->shape) == ag_shape_cols(&x->shape) &&
           ag_shape_rows(&of->shape) >= ag_shape_rows(&x->shape);
}

ag_status ag_cl_pack(ag_cl_backend *cl, const ag_tensor *x, ag_dtype type, bool again) {
    ag_cl_launch l;
    const bool has_order = cl->packed.order == order_of(type);
    if (has_order && (again || is_packed(cl, x))) return AG_OK;
    cl->packed.order = order_of(type);
    AG_TRY(ag_cl_begin_pack(&l, cl, "pack_rows", x, ""));
    ag_cl_arg_tensor(&l, x);
    ag_cl_arg_u32(&l, (uint32_t)ag_shape_cols(&x->shape));
    return ag_cl_finish_pack(&l, x);
}

bool ag_cl_packs(const ag_cl_backend *cl, const ag_tensor *x) {
    return cl->packed.is_used && ag_shape_rows(&x->shape) > AG_CL_MATVEC_MOST_MMA &&
           x->offset % ALIGN == 0 && ag_cl_mma_fits(cl, x, cl->packed.order);
}
