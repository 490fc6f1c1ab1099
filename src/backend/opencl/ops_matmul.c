/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of products, and the choice of their kernels. */
#include "backend/opencl/ops.h"
#include "core/fail.h"

#include <stdio.h>

enum { WG = 64 }; /* as in matmul_any.cl */
enum { BLOCK = 32 };
/* Work-groups of matvec for each compute unit. */
enum { GROUPS_EACH = 16 };
/* Maximum rows of x for matvec.cl, without tensor cores. */
enum { MATVEC_MOST = 8 };

ag_status ag_cl_matmul(ag_backend *b, ag_tensor *y, const ag_tensor *a, const ag_tensor *x) {
    const size_t m = ag_shape_rows(&y->shape), n = ag_shape_cols(&y->shape);
    if (!m || !n) return AG_OK;
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, ag_cl_of(b), "matmul_any.cl", "matmul_plain", NULL));
    AG_CL_ARG_TENSORS(&l, y, a, x);
    AG_CL_ARG_U32S(&l, n, ag_shape_cols(&a->shape));
    return ag_cl_enqueue(&l, 2, (size_t[]){ag_cl_items(n, WG), m}, (size_t[]){WG, 1});
}

static ag_status multiply_any(ag_cl_backend *cl, ag_tensor *y, const ag_tensor *x,
                              const ag_tensor *w) {
    const size_t m = ag_shape_rows(&y->shape), n = ag_shape_cols(&y->shape);
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, cl, "matmul_any.cl", "matmul_any", NULL));
    AG_CL_ARG_TENSORS(&l, y, x, w);
    AG_CL_ARG_U32S(&l, w->dtype, n, ag_shape_cols(&x->shape));
    return ag_cl_enqueue(&l, 2, (size_t[]){n * WG, m}, (size_t[]){WG, 1});
}

typedef enum variant { ROWS, MATVEC, TILE, MMA } variant;

static bool may_use_mma(ag_cl_backend *cl, const ag_tensor *x, ag_dtype type) {
    if (!ag_cl_mma_fits(cl, x, type)) return false;
    if (!cl->mma_checked) ag_cl_mma_check(cl);
    return cl->mma;
}

/* Chooses the kind of kernel. Kernels for GPUs read x in vectors of four. */
static variant choose_variant(ag_cl_backend *cl, const ag_tensor *x, ag_dtype type) {
    const size_t k = ag_shape_cols(&x->shape);
    const bool is_many = ag_shape_rows(&x->shape) > AG_CL_MATVEC_MOST_MMA;
    const size_t step = ag_dtype_is_quantized(type) ? BLOCK : 8;
    if (!cl->is_gpu || x->offset % 16 || k % 4) return ROWS;
    if (is_many) cl->packed.is_used = may_use_mma(cl, x, type);
    if (is_many && cl->packed.is_used) return MMA;
    if (ag_shape_rows(&x->shape) > MATVEC_MOST) return TILE;
    return k % step ? ROWS : MATVEC;
}

/* Sets two arguments. w NULL: no weight. */
static void arg_weight(ag_cl_launch *l, const ag_tensor *w) {
    ag_cl_arg_buffer(l, w ? w->buffer : NULL);
    ag_cl_arg_u64(
        l, w ? ag_cl_prepared_scales(w->dtype, ag_shape_rows(&w->shape), ag_shape_cols(&w->shape))
             : 0);
}

void ag_cl_arg_weights(ag_cl_launch *l, ag_tensor *const y[], const ag_tensor *const w[],
                       size_t n) {
    for (size_t i = 0; i < AG_CL_WEIGHTS; i++) {
        ag_cl_arg_tensor(l, i < n ? y[i] : NULL);
        arg_weight(l, i < n ? w[i] : NULL);
        ag_cl_arg_u32(l, i < n ? (uint32_t)ag_shape_rows(&w[i]->shape) : 0);
    }
}

/* ---- few rows of x ---- */

static size_t group_items(const ag_cl_sizes *s) {
    return (size_t)s->matvec_lanes * s->matvec_teams;
}

/* Returns whether local memory suffices for that many rows of x rounded to bytes. */
static bool fits_rounded(const ag_cl_backend *cl, size_t rows, size_t k) {
    const size_t pair = 2 * sizeof(float), bytes = rows * (k + k / BLOCK * pair);
    return bytes + group_items(&cl->sizes) * sizeof(float) <= cl->device.local_bytes;
}

/* Returns the number of work-groups: one for each group of rows, but if each rounds x first, at
 * most the number that the device can run at a time. */
static size_t matvec_groups(const ag_cl_backend *cl, const ag_tensor *const w[], size_t n,
                            bool rounds) {
    const size_t most = (size_t)cl->device.compute_units * GROUPS_EACH;
    const size_t rows = (size_t)cl->sizes.matvec_teams * cl->sizes.matvec_rows;
    size_t groups = 0;
    for (size_t i = 0; i < n; i++) groups += (ag_shape_rows(&w[i]->shape) + rows - 1) / rows;
    return rounds && groups > most ? most : groups;
}

/* Launches a product with up to AG_CL_WEIGHTS weights of one type, none of them empty. */
static ag_status launch_matvec(ag_cl_backend *cl, ag_tensor *const y[], const ag_tensor *x,
                               const ag_tensor *const w[], size_t n) {
    const size_t k = ag_shape_cols(&x->shape), m = ag_shape_rows(&x->shape);
    const bool rounds = cl->int_dot && ag_dtype_is_quantized(w[0]->dtype) && fits_rounded(cl, 1, k);
    const ag_cl_sizes *s = &cl->sizes;
    size_t x_rows = 1;
    while (x_rows < m && (!rounds || fits_rounded(cl, 2 * x_rows, k))) x_rows *= 2;
    char options[176];
    snprintf(options, sizeof options,
             "-DWTYPE=WEIGHT_%s -DINT_DOT=%d -DLANES=%u -DTEAMS=%u -DTEAM_ROWS=%u -DX_ROWS=%zu%s",
             ag_dtype_name(w[0]->dtype), rounds, s->matvec_lanes, s->matvec_teams, s->matvec_rows,
             x_rows, cl->vendor.subgroups || cl->vendor.dot ? cl->vendor.options : "");
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, cl, "matvec.cl", "matvec", options));
    ag_cl_arg_tensor(&l, x);
    AG_CL_ARG_U32S(&l, k, m);
    if (rounds) {
        ag_cl_arg_local(&l, x_rows * k);
        ag_cl_arg_local(&l, x_rows * (k / BLOCK) * 2 * sizeof(float));
    }
    ag_cl_arg_weights(&l, y, w, n);
    const size_t groups = matvec_groups(cl, w, n, rounds), items = group_items(s);
    return ag_cl_enqueue(&l, 2, (size_t[]){groups * items, (m + x_rows - 1) / x_rows},
                         (size_t[]){items, 1});
}

/* ---- any product ---- */

/* Launches matmul_tile.cl, or matmul_rows.cl, which covers all rows of x. */
static ag_status launch(ag_cl_backend *cl, variant v, ag_tensor *y, const ag_tensor *x,
                        const ag_tensor *w) {
    const size_t m = ag_shape_rows(&y->shape), n = ag_shape_cols(&y->shape);
    const bool tiled = v == TILE, halves = tiled && ag_dtype_is_quantized(w->dtype);
    const size_t tile_m = tiled ? cl->sizes.tile_m : m, tile_n = tiled ? cl->sizes.tile_n : 1;
    const size_t group = tiled ? cl->sizes.tile_wg : 1;
    char options[160], tile[64] = "";
    if (tiled) snprintf(tile, sizeof tile, " -DTILE_M=%zu -DTILE_N=%zu", tile_m, tile_n);
    snprintf(options, sizeof options, "-DWTYPE=WEIGHT_%s%s%s", ag_dtype_name(w->dtype), tile,
             halves && cl->vendor.half ? cl->vendor.options : "");
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, cl, tiled ? "matmul_tile.cl" : "matmul_rows.cl",
                       tiled ? "matmul_tile" : "matmul_rows", options));
    AG_CL_ARG_TENSORS(&l, y, x);
    arg_weight(&l, w);
    AG_CL_ARG_U32S(&l, m, n, ag_shape_cols(&x->shape));
    const size_t rows = (m + tile_m - 1) / tile_m, columns = (n + tile_n - 1) / tile_n;
    return ag_cl_enqueue(&l, 2, (size_t[]){columns * group, rows}, (size_t[]){group, 1});
}

ag_status ag_cl_matmul_transposed(ag_backend *b, ag_tensor *y, const ag_tensor *x,
                                  const ag_tensor *w) {
    ag_cl_backend *cl = ag_cl_of(b);
    if (!ag_shape_numel(&y->shape)) return AG_OK;
    if (!ag_cl_has_kernels(w->dtype)) return ag_cl_refuse_type(cl, "weights", w->dtype);
    if (w->layout != AG_CL_LAYOUT_PREPARED) return multiply_any(cl, y, x, w);
    const variant v = choose_variant(cl, x, w->dtype);
    if (v == MMA) return ag_cl_mma(cl, &y, x, &w, 1);
    return v == MATVEC ? launch_matvec(cl, &y, x, &w, 1) : launch(cl, v, y, x, w);
}

ag_status ag_cl_matmul_group(ag_backend *b, ag_tensor *const y[], const ag_tensor *x,
                             const ag_tensor *const w[], size_t n) {
    ag_cl_backend *cl = ag_cl_of(b);
    bool all_mma = ag_shape_rows(&x->shape) != 0;
    bool has_one_type = all_mma && n <= AG_CL_WEIGHTS;
    for (size_t i = 0; i < n; i++) {
        const bool is_prepared = w[i]->layout == AG_CL_LAYOUT_PREPARED;
        has_one_type = has_one_type && is_prepared && w[i]->dtype == w[0]->dtype;
        all_mma = all_mma && is_prepared && choose_variant(cl, x, w[i]->dtype) == MMA;
    }
    if (all_mma) return ag_cl_mma(cl, y, x, w, n);
    if (has_one_type && choose_variant(cl, x, w[0]->dtype) == MATVEC) {
        return launch_matvec(cl, y, x, w, n);
    }
    for (size_t i = 0; i < n; i++) AG_TRY(ag_cl_matmul_transposed(b, y[i], x, w[i]));
    return AG_OK;
}
