/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of kernels/matmul_mma.cl: products on tensor cores. ops_pack.c packs rows of x; scratch
 * memory has the sums of work-groups that share a tile. */
#include "backend/opencl/layout.h"
#include "backend/opencl/ops.h"
#include "core/fail.h"

#include <stdio.h>

/* Equal to the constants of matmul_mma.cl. */
enum { STEP = 64, TILE_N = 128 };
enum { MAX_TILE_M = 128, MIN_TILE_M = 16, MIN_STAGES = 2, MAX_STAGES = 4, MANY_STAGES = 3 };
enum { MAX_TEAMS = 4, MAX_RUN = 4, MAX_SPLITS = 16, MIN_SPLIT_STEPS = 4 };

bool ag_cl_mma_fits(const ag_cl_backend *cl, const ag_tensor *x, ag_dtype type) {
    const bool has_type = ag_dtype_is_quantized(type) || type == AG_F16 || type == AG_BF16;
    return cl->mma && cl->device.max_group >= TILE_N && has_type &&
           ag_shape_cols(&x->shape) % STEP == 0;
}

typedef struct tiling {
    size_t m, k, tile_m, rows, columns; /* rows, columns: of tiles */
    size_t n_splits;
    size_t steps, run; /* steps of a stage, and those whose factors are copied together */
    size_t teams;      /* teams of TILE_N work-items in a group */
    size_t stages;
} tiling;

/* Returns an upper bound of the bytes of local memory of a stage. */
static size_t stage_bytes(ag_dtype type, const tiling *t) {
    enum { BLOCK_K = 256, PADDING = 272 };
    size_t levels = 0;
    for (unsigned p = 0; p < AG_CL_FACTORS; p++) levels += ag_cl_plane_bytes(type, p, BLOCK_K);
    const size_t x = t->tile_m * STEP * ag_cl_packed_bytes(type);
    return t->steps * (x + TILE_N * levels * STEP / BLOCK_K + PADDING);
}

/* Returns the bytes of local memory for factors: their bits, and halves; or an upper bound. */
static size_t factor_bytes(ag_dtype type, const tiling *t, size_t stages) {
    enum { BLOCK_K = 256, TWO_BITS = BLOCK_K / 4, WORD = 4, HALVES = 8 };
    const size_t others = ag_cl_plane_bytes(type, AG_CL_PLANES - 1, BLOCK_K);
    const size_t levels = ag_cl_plane_bytes(type, 0, BLOCK_K) + ag_cl_plane_bytes(type, 1, BLOCK_K);
    const size_t runs = t->run > t->steps ? 2 : stages;
    const size_t bits = WORD * t->run + (others > WORD ? WORD * t->run : others ? WORD : 0);
    const size_t factors = !others ? 1 : levels == TWO_BITS ? 4 : 2;
    if (!ag_dtype_is_quantized(type)) return 0;
    return TILE_N * (runs * bits + t->steps * factors * HALVES);
}

/* Returns the stages that fit, at most MAX_STAGES, with the largest tiles MANY_STAGES, which are
 * faster on an H200; 0: too few. Where two work-groups share the
 * local memory of a multiprocessor of Hopper, one with all teams has nearly all of it. */
static size_t count_stages(const ag_cl_backend *cl, ag_dtype type, const tiling *t) {
    enum { COUNTER = 128, WHOLE = 200 << 10 };
    size_t room = cl->mma_local - COUNTER, n = t->tile_m == MAX_TILE_M ? MANY_STAGES : MAX_STAGES;
    if (t->teams == MAX_TEAMS && room > WHOLE / 2) room = WHOLE;
    const size_t sums = t->teams > 1 ? t->teams * t->tile_m * TILE_N * sizeof(float) : 0;
    for (; n >= MIN_STAGES; n--) {
        const size_t stages = n * stage_bytes(type, t);
        if ((stages > sums ? stages : sums) + factor_bytes(type, t, n) <= room) return n;
    }
    return 0;
}

/* Tries runs of MAX_RUN steps, then of one. Returns whether stages fit. */
static bool fit_stages(const ag_cl_backend *cl, ag_dtype type, tiling *t) {
    t->run = t->k % (MAX_RUN * STEP) ? 1 : MAX_RUN;
    t->stages = count_stages(cl, type, t);
    if (t->stages || t->run == 1) return t->stages;
    t->run = 1;
    t->stages = count_stages(cl, type, t);
    return t->stages;
}

/* Chooses the rows of a tile, the stages that fit, and longer runs if they fit. */
static void choose_stages(const ag_cl_backend *cl, ag_dtype type, tiling *t) {
    t->steps = t->teams = 1;
    t->tile_m = MAX_TILE_M;
    while (t->tile_m > MIN_TILE_M && t->tile_m / 2 >= t->m) t->tile_m /= 2;
    while (!fit_stages(cl, type, t) && t->tile_m > MIN_TILE_M) t->tile_m /= 2;
}

/* Has several steps in a stage, each for a team, if there are few tiles of few rows. More
 * work-items then share the sums of the work-groups of a tile. */
static void choose_teams(const ag_cl_backend *cl, ag_dtype type, tiling *t) {
    enum { ROWS = 64 }; /* with tiles of 64 rows, one for each compute unit is few */
    const bool is_few = t->columns * ROWS <= cl->device.compute_units * t->tile_m;
    tiling more = *t;
    more.steps = more.teams = MAX_TEAMS;
    if (t->tile_m == MAX_TILE_M || !is_few || t->k % (MAX_RUN * STEP)) return;
    more.run = MAX_RUN;
    more.stages = count_stages(cl, type, &more);
    if (more.stages && cl->device.max_group >= more.teams * TILE_N) *t = more;
}

/* Divides k among work-groups if there are fewer tiles than groups that the device can run. */
static void choose_splits(const ag_cl_backend *cl, tiling *t) {
    const size_t stages = t->k / (STEP * t->steps), min = t->steps > 1 ? 1 : MIN_SPLIT_STEPS;
    const size_t resident = t->teams > 1 ? 1 : t->tile_m == MAX_TILE_M ? 2 : 4;
    size_t n = resident * cl->device.compute_units / (t->rows * t->columns);
    if (n > stages / min) n = stages / min;
    t->n_splits = n > MAX_SPLITS ? MAX_SPLITS : n ? n : 1;
}

static size_t parts_bytes(const tiling *t) {
    const size_t tiles = t->rows * t->columns * t->n_splits;
    return t->n_splits > 1 ? tiles * t->tile_m * TILE_N * sizeof(float) : 0;
}

static tiling tiling_for(const ag_cl_backend *cl, const ag_tensor *x, const ag_tensor *const w[],
                         size_t n) {
    tiling t = {.m = ag_shape_rows(&x->shape), .k = ag_shape_cols(&x->shape)};
    choose_stages(cl, w[0]->dtype, &t);
    t.rows = (t.m + t.tile_m - 1) / t.tile_m;
    for (size_t i = 0; i < n; i++) {
        t.columns += (ag_shape_rows(&w[i]->shape) + TILE_N - 1) / TILE_N;
    }
    choose_teams(cl, w[0]->dtype, &t);
    choose_splits(cl, &t);
    return t;
}

/* Multiplies the packed rows with up to AG_CL_WEIGHTS weights of one type. */
static ag_status multiply(ag_cl_backend *cl, cl_mem scratch, const tiling *t, ag_tensor *const y[],
                          const ag_tensor *const w[], size_t n) {
    char options[128];
    snprintf(options, sizeof options,
             "-DWTYPE=WEIGHT_%s -DTILE_M=%zu -DSTAGES=%zu -DSTEPS=%zu -DRUN=%zu -DTEAMS=%zu",
             ag_dtype_name(w[0]->dtype), t->tile_m, t->stages, t->steps, t->run, t->teams);
    const size_t group = TILE_N * t->teams;
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, cl, "matmul_mma.cl", "matmul_mma", options));
    ag_cl_arg_mem(&l, cl->packed.mem);
    ag_cl_arg_u64(&l, cl->packed.factors_at);
    ag_cl_arg_u32(&l, (uint32_t)ag_shape_rows(&cl->packed.of.shape));
    ag_cl_arg_weights(&l, y, w, n);
    AG_CL_ARG_U32S(&l, t->m, t->k, t->n_splits);
    ag_cl_arg_mem(&l, scratch);
    ag_cl_arg_mem(&l, cl->tile_counts.mem);
    return ag_cl_enqueue(&l, 3, (size_t[]){t->rows * group, t->columns, t->n_splits},
                         (size_t[]){group, 1, 1});
}

/* Returns the number of weights at the start of w that have one type. */
static size_t equal_types(const ag_tensor *const w[], size_t n) {
    size_t i = 1;
    while (i < n && i < AG_CL_WEIGHTS && w[i]->dtype == w[0]->dtype) i++;
    return i;
}

ag_status ag_cl_mma(ag_cl_backend *cl, ag_tensor *const y[], const ag_tensor *x,
                    const ag_tensor *const w[], size_t n) {
    size_t bytes = 0, tiles = 0;
    for (size_t i = 0, n_equal; i < n; i += n_equal) {
        n_equal = equal_types(w + i, n - i);
        const tiling t = tiling_for(cl, x, w + i, n_equal);
        if (!t.stages) {
            return AG_FAIL(&cl->base.err, UNSUPPORTED,
                           "tensor cores: weights in %s need more than %zu bytes of local memory",
                           ag_dtype_name(w[i]->dtype), cl->mma_local);
        }
        if (parts_bytes(&t) > bytes) bytes = parts_bytes(&t);
        if (t.rows * t.columns > tiles) tiles = t.rows * t.columns;
    }
    cl_mem scratch;
    AG_TRY(ag_cl_need_scratch(cl, bytes, &scratch));
    AG_TRY(ag_cl_need_counts(cl, tiles));
    for (size_t i = 0, n_equal; i < n; i += n_equal) {
        n_equal = equal_types(w + i, n - i);
        const tiling t = tiling_for(cl, x, w + i, n_equal);
        AG_TRY(ag_cl_pack(cl, x, w[i]->dtype, i != 0));
        AG_TRY(multiply(cl, scratch, &t, y + i, w + i, n_equal));
    }
    return AG_OK;
}
