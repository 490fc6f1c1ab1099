/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of kernels/matmul_mma.cl: products on tensor cores. ops_pack.c packs rows of x; scratch
 * memory has the sums of work-groups that share a tile. */
#include "backend/opencl/layout.h"
#include "backend/opencl/ops.h"
#include "core/fail.h"

#include <stdio.h>

/* Equal to the constants of matmul_mma.cl. */
enum { TILE_N = 128, GROUP = 128, STEP = 64, MAX_WEIGHTS = 3 };
enum { MAX_TILE_M = 128, MIN_TILE_M = 16, MAX_STAGES = 4, MAX_SPLITS = 16, MIN_SPLIT_STEPS = 4 };

bool ag_cl_mma_fits(const ag_cl_backend *cl, const ag_tensor *x, ag_dtype type) {
    const bool has_type = ag_dtype_is_quantized(type) || type == AG_F16 || type == AG_BF16;
    return cl->mma && cl->device.max_group >= GROUP && has_type &&
           ag_shape_cols(&x->shape) % STEP == 0;
}

typedef struct tiling {
    size_t m, k, tile_m, rows, columns; /* rows, columns: of tiles */
    size_t n_splits;
    unsigned stages;
} tiling;

/* Returns an upper bound of the local memory that a stage takes. */
static size_t stage_bytes(ag_dtype type, size_t tile_m) {
    enum { BLOCK_K = 256, PADDING = 128, FACTORS = 2048 };
    const size_t levels = ag_cl_plane_bytes(type, 0, BLOCK_K) + ag_cl_plane_bytes(type, 1, BLOCK_K);
    return tile_m * STEP * ag_cl_packed_bytes(type) + TILE_N * levels * STEP / BLOCK_K + PADDING +
           (ag_dtype_is_quantized(type) ? FACTORS : 0);
}

/* Chooses the rows of a tile and the stages that fit. */
static void choose_stages(const ag_cl_backend *cl, ag_dtype type, tiling *t) {
    const size_t room = cl->mma_local - TILE_N; /* also holds a counter */
    t->tile_m = MAX_TILE_M;
    while (t->tile_m > MIN_TILE_M &&
           (t->tile_m / 2 >= t->m || 2 * stage_bytes(type, t->tile_m) > room)) {
        t->tile_m /= 2;
    }
    const size_t stages = room / stage_bytes(type, t->tile_m);
    t->stages = stages > MAX_STAGES ? MAX_STAGES : (unsigned)stages;
}

/* Divides k among work-groups if there are fewer tiles than groups that the device can run. */
static void choose_splits(const ag_cl_backend *cl, tiling *t) {
    const size_t resident = t->tile_m == MAX_TILE_M ? 2 : 4, steps = t->k / STEP;
    const size_t groups = resident * cl->device.compute_units, tiles = t->rows * t->columns;
    size_t n = groups / tiles;
    if (n > steps / MIN_SPLIT_STEPS) n = steps / MIN_SPLIT_STEPS;
    t->n_splits = n > MAX_SPLITS ? MAX_SPLITS : n ? n : 1;
}

static size_t parts_bytes(const tiling *t) {
    const size_t tiles = t->rows * t->columns * t->n_splits;
    return t->n_splits > 1 ? tiles * t->tile_m * TILE_N * sizeof(float) : 0;
}

static void write_options(char *out, size_t cap, ag_dtype type, const tiling *t) {
    snprintf(out, cap, "-DWTYPE=WEIGHT_%s -DTILE_M=%zu -DSTAGES=%u", ag_dtype_name(type), t->tile_m,
             t->stages);
}

static tiling tiling_for(const ag_cl_backend *cl, const ag_tensor *x, const ag_tensor *const w[],
                         size_t n) {
    tiling t = {.m = ag_shape_rows(&x->shape), .k = ag_shape_cols(&x->shape)};
    choose_stages(cl, w[0]->dtype, &t);
    t.rows = (t.m + t.tile_m - 1) / t.tile_m;
    for (size_t i = 0; i < n; i++) t.columns += (ag_shape_rows(&w[i]->shape) + TILE_N - 1) / TILE_N;
    choose_splits(cl, &t);
    return t;
}

/* Multiplies the packed rows with up to MAX_WEIGHTS weights of one type. */
static ag_status multiply(ag_cl_backend *cl, cl_mem scratch, const tiling *t, ag_tensor *const y[],
                          const ag_tensor *const w[], size_t n) {
    char options[96];
    write_options(options, sizeof options, w[0]->dtype, t);
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, cl, "matmul_mma.cl", "matmul_mma", options));
    ag_cl_arg_part(&l, cl->packed.mem, cl->packed.factors_at);
    for (size_t i = 0; i < MAX_WEIGHTS; i++) {
        const size_t rows = i < n ? ag_shape_rows(&w[i]->shape) : 0;
        ag_cl_arg_tensor(&l, i < n ? y[i] : NULL);
        ag_cl_arg_buffer(&l, i < n ? w[i]->buffer : NULL);
        ag_cl_arg_u64(&l, i < n ? ag_cl_prepared_scales(w[i]->dtype, rows, t->k) : 0);
        ag_cl_arg_u32(&l, (uint32_t)rows);
    }
    ag_cl_arg_u32(&l, (uint32_t)t->m);
    ag_cl_arg_u32(&l, (uint32_t)t->k);
    ag_cl_arg_u32(&l, (uint32_t)t->n_splits);
    ag_cl_arg_mem(&l, scratch);
    ag_cl_arg_mem(&l, cl->tile_counts.mem);
    return ag_cl_enqueue(&l, 3, (size_t[]){t->rows * GROUP, t->columns, t->n_splits},
                         (size_t[]){GROUP, 1, 1});
}

/* Returns the number of weights at the start of w that have one type. */
static size_t equal_types(const ag_tensor *const w[], size_t n) {
    size_t i = 1;
    while (i < n && i < MAX_WEIGHTS && w[i]->dtype == w[0]->dtype) i++;
    return i;
}

ag_status ag_cl_mma(ag_cl_backend *cl, ag_tensor *const y[], const ag_tensor *x,
                    const ag_tensor *const w[], size_t n) {
    size_t bytes = 0, tiles = 0;
    for (size_t i = 0, run; i < n; i += run) {
        run = equal_types(w + i, n - i);
        const tiling t = tiling_for(cl, x, w + i, run);
        if (parts_bytes(&t) > bytes) bytes = parts_bytes(&t);
        if (t.rows * t.columns > tiles) tiles = t.rows * t.columns;
    }
    cl_mem scratch;
    AG_TRY(ag_cl_need_scratch(cl, bytes, &scratch));
    AG_TRY(ag_cl_need_counts(cl, tiles));
    for (size_t i = 0, run; i < n; i += run) {
        run = equal_types(w + i, n - i);
        const tiling t = tiling_for(cl, x, w + i, run);
        AG_TRY(ag_cl_pack(cl, x, w[i]->dtype, i != 0));
        AG_TRY(multiply(cl, scratch, &t, y + i, w + i, run));
    }
    return AG_OK;
}
