/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of kernels/matmul.cl and matmul_any.cl: which kernel for which product. */
#include "backend/opencl/ops.h"
#include "core/fail.h"

#include <stdio.h>

enum { WG = 64 }; /* of matmul_any.cl */
/* As in matmul.cl. */
enum { MATVEC_WG = 128, MATVEC_ROWS = 8, TILE_M = 64, TILE_N = 64, TILE_WG = 256 };
/* Rows of x up to which each goes over the weight by itself; the weight stays in the cache. */
enum { MATVEC_MOST = 4 };

ag_status ag_cl_matmul(ag_backend *b, ag_tensor *y, const ag_tensor *a, const ag_tensor *x) {
    const size_t m = ag_shape_rows(&y->shape), n = ag_shape_cols(&y->shape);
    if (!m || !n) return AG_OK;
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, ag_cl_of(b), "matmul_any.cl", "matmul_plain", NULL));
    ag_cl_arg_tensor(&l, y);
    ag_cl_arg_tensor(&l, a);
    ag_cl_arg_tensor(&l, x);
    ag_cl_arg_u32(&l, (uint32_t)n);
    ag_cl_arg_u32(&l, (uint32_t)ag_shape_cols(&a->shape));
    return ag_cl_enqueue(&l, 2, (size_t[]){ag_cl_items(n, WG), m}, (size_t[]){WG, 1});
}

static ag_status multiply_any(ag_cl_backend *cl, ag_tensor *y, const ag_tensor *x,
                              const ag_tensor *w) {
    const size_t m = ag_shape_rows(&y->shape), n = ag_shape_cols(&y->shape);
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, cl, "matmul_any.cl", "matmul_any", NULL));
    ag_cl_arg_tensor(&l, y);
    ag_cl_arg_tensor(&l, x);
    ag_cl_arg_tensor(&l, w);
    ag_cl_arg_u32(&l, (uint32_t)w->dtype);
    ag_cl_arg_u32(&l, (uint32_t)n);
    ag_cl_arg_u32(&l, (uint32_t)ag_shape_cols(&x->shape));
    return ag_cl_enqueue(&l, 2, (size_t[]){n * WG, m}, (size_t[]){WG, 1});
}

typedef enum variant { ROWS, MATVEC, TILE } variant;

/* Kernels for GPUs read x in vectors of four. */
static variant choose(const ag_cl_backend *cl, const ag_tensor *x, ag_dtype type, size_t m) {
    const size_t k = ag_shape_cols(&x->shape);
    const size_t step = ag_dtype_is_quantized(type) ? 32 : 8;
    if (!cl->many_lanes || x->offset % 16 || k % 4) return ROWS;
    if (m > MATVEC_MOST) return TILE;
    return k % step ? ROWS : MATVEC;
}

static ag_status multiply_prepared(ag_cl_backend *cl, ag_tensor *y, const ag_tensor *x,
                                   const ag_tensor *w) {
    static const char *const kernels[] = {"matmul_rows", "matvec", "matmul_tile"};
    const size_t m = ag_shape_rows(&y->shape), n = ag_shape_cols(&y->shape);
    const size_t k = ag_shape_cols(&x->shape);
    const variant v = choose(cl, x, w->dtype, m);
    char options[32];
    snprintf(options, sizeof options, "-DWTYPE=%d", (int)w->dtype);
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, cl, "matmul.cl", kernels[v], options));
    ag_cl_arg_tensor(&l, y);
    ag_cl_arg_tensor(&l, x);
    ag_cl_arg_buffer(&l, w->buffer);
    ag_cl_arg_u64(&l, ag_cl_prepared_scales(w->dtype, n, k));
    ag_cl_arg_u32(&l, (uint32_t)m);
    ag_cl_arg_u32(&l, (uint32_t)n);
    ag_cl_arg_u32(&l, (uint32_t)k);
    switch (v) {
    case ROWS:
        return ag_cl_enqueue(&l, 1, (size_t[]){n}, (size_t[]){1});
    case MATVEC:
        return ag_cl_enqueue(&l, 2, (size_t[]){(n + MATVEC_ROWS - 1) / MATVEC_ROWS * MATVEC_WG, m},
                             (size_t[]){MATVEC_WG, 1});
    case TILE:
        break;
    }
    const size_t columns = (n + TILE_N - 1) / TILE_N, rows = (m + TILE_M - 1) / TILE_M;
    return ag_cl_enqueue(&l, 2, (size_t[]){columns * TILE_WG, rows}, (size_t[]){TILE_WG, 1});
}

ag_status ag_cl_matmul_transposed(ag_backend *b, ag_tensor *y, const ag_tensor *x,
                                  const ag_tensor *w) {
    if (!ag_shape_numel(&y->shape)) return AG_OK;
    return (w->layout == AG_CL_LAYOUT_PREPARED ? multiply_prepared : multiply_any)(ag_cl_of(b), y,
                                                                                   x, w);
}
