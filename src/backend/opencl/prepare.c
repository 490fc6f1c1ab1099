/* SPDX-License-Identifier: Apache-2.0 */
/* Converts weights to the layout of kernels/weights.cl: separate planes of levels and factors, with
 * padded rows. Host threads convert a chunk of rows while the device receives the chunk before. */
#include "backend/cpu/kernels.h"
#include "backend/cpu/pool.h"
#include "backend/opencl/layout.h"
#include "backend/opencl/ops.h"
#include "core/alloc.h"
#include "core/backend_compose.h"
#include "core/fail.h"
#include "quant/quant.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { ALIGN = 256 };
enum { WORD = 4 }; /* kernels copy factors by words */

/* Returns the bytes of a row in planes [first, end). */
static size_t planes_bytes(ag_dtype dtype, unsigned first, unsigned end, size_t k) {
    size_t n = 0;
    for (unsigned p = first; p < end; p++) n += ag_cl_plane_bytes(dtype, p, k);
    return n;
}

size_t ag_cl_prepared_scales(ag_dtype dtype, size_t n, size_t k) {
    return (n * planes_bytes(dtype, 0, AG_CL_FACTORS, k) + ALIGN - 1) / ALIGN * ALIGN;
}

size_t ag_cl_prepared_bytes(const ag_backend *b, ag_dtype dtype, size_t n, size_t k) {
    (void)b;
    const size_t plain = ag_dtype_row_bytes(dtype, k);
    if (!ag_cl_has_layout(dtype)) return plain && n <= SIZE_MAX / plain ? n * plain : 0;
    const size_t row = planes_bytes(dtype, 0, AG_CL_PLANES, k);
    if (!n || !row || n > (SIZE_MAX - 2 * ALIGN) / row) return 0;
    const size_t factors = n * planes_bytes(dtype, AG_CL_FACTORS, AG_CL_PLANES, k);
    return ag_cl_prepared_scales(dtype, n, k) + (factors + WORD - 1) / WORD * WORD;
}

/* ---- host threads ---- */

/* Host threads that convert weights. */
struct ag_cl_loading {
    ag_pool *pool;               /* owned */
    ag_weight_rounding rounding; /* vectorised if possible, as in the CPU backend */
    unsigned char *scratch;      /* owned */
    size_t scratch_bytes;        /* scratch of each thread */
};

static ag_status make_loading(ag_cl_backend *cl) {
    ag_cl_loading *l = ag_calloc(1, sizeof *l);
    if (!l) return AG_FAIL(&cl->base.err, NOMEM, "weight loader");
    ag_cpu_kernels kernels;
    const char *cap = getenv("AG_CPU_ISA");
    if (!ag_cpu_kernels_init(&kernels, cap && *cap ? cap : NULL)) ag_cpu_kernels_common(&kernels);
    l->rounding = kernels.rounding;
    ag_status st = ag_pool_create(cl->n_threads, &l->pool, &cl->base.err);
    if (st == AG_OK) cl->loading = l;
    else ag_free(l);
    return st;
}

static ag_status need_scratch(ag_cl_backend *cl, size_t bytes) {
    enum { CACHE_LINE = 64 };
    ag_cl_loading *l = cl->loading;
    if (bytes <= l->scratch_bytes) return AG_OK;
    const size_t n = ag_pool_threads(l->pool), each = ag_cl_items(bytes, CACHE_LINE);
    const bool is_size = bytes <= (SIZE_MAX - CACHE_LINE) / n;
    unsigned char *grown = is_size ? ag_aligned_alloc(each * n) : NULL;
    if (!grown) {
        return AG_FAIL(&cl->base.err, NOMEM, "rows of %zu bytes for %zu threads", bytes, n);
    }
    ag_aligned_free(l->scratch);
    l->scratch = grown;
    l->scratch_bytes = each;
    return AG_OK;
}

/* Returns a thread's scratch memory. */
static void *scratch_of(const ag_cl_loading *l, uint32_t thread) {
    return l->scratch + thread * l->scratch_bytes;
}

void ag_cl_loading_close(ag_cl_backend *cl) {
    if (!cl->loading) return;
    ag_pool_destroy(cl->loading->pool);
    ag_aligned_free(cl->loading->scratch);
    ag_free(cl->loading);
    cl->loading = NULL;
}

/* ---- chunks of rows ---- */

typedef struct preparing {
    ag_cl_backend *cl;
    const ag_tensor *src;
    const unsigned char *bytes; /* bytes of src */
    ag_dtype want;
    size_t n, k; /* rows, columns */
    size_t chunk_rows;
    struct {
        size_t row0, rows;
        unsigned char *planes[AG_CL_PLANES];
    } chunk;               /* rows in pinned memory, in the device's layout */
    atomic_size_t bad_row; /* lowest row that could not be converted; SIZE_MAX: none */
} preparing;

/* Reserves for each thread one row of floats and one packed row. */
static ag_status reserve_memory(preparing *p) {
    const size_t row = planes_bytes(p->want, 0, AG_CL_PLANES, p->k);
    const size_t rows = p->cl->staging.bytes / 2 / row; /* the driver copies one half of the ring */
    p->chunk_rows = rows ? rows : 1;
    if (!p->cl->loading) AG_TRY(make_loading(p->cl));
    return need_scratch(p->cl, p->k * sizeof(float) + ag_dtype_row_bytes(p->want, p->k));
}

/* Begins a chunk in pinned memory. */
static ag_status begin_chunk(preparing *p, size_t row0) {
    const size_t row = planes_bytes(p->want, 0, AG_CL_PLANES, p->k);
    unsigned char *at;
    p->chunk.row0 = row0;
    p->chunk.rows = p->n - row0 < p->chunk_rows ? p->n - row0 : p->chunk_rows;
    AG_TRY(ag_cl_stage_reserve(p->cl, p->chunk.rows * row, &at, &p->cl->base.err));
    for (unsigned i = 0; i < AG_CL_PLANES; i++) {
        p->chunk.planes[i] = at;
        at += p->chunk.rows * ag_cl_plane_bytes(p->want, i, p->k);
    }
    return AG_OK;
}

/* Writes row i of the chunk to the planes. */
static void take_apart(const preparing *p, size_t i, const unsigned char *packed) {
    unsigned char *to[AG_CL_PLANES];
    for (unsigned plane = 0; plane < AG_CL_PLANES; plane++) {
        to[plane] = p->chunk.planes[plane] + i * ag_cl_plane_bytes(p->want, plane, p->k);
    }
    ag_cl_take_apart(p->want, to, packed, p->k);
}

/* Converts one row to `packed`. values: scratch for its floats. */
static ag_status convert(const preparing *p, size_t row, float *values, unsigned char *packed,
                         size_t *bad) {
    const ag_dtype from = p->src->dtype;
    const unsigned char *src = p->bytes + row * ag_dtype_row_bytes(from, p->k);
    return ag_convert_weights(&p->cl->loading->rounding, p->want, packed, from, src, values, p->k,
                              bad);
}

static void note_bad_row(preparing *p, size_t row) {
    size_t lowest = atomic_load(&p->bad_row);
    while (row < lowest && !atomic_compare_exchange_weak(&p->bad_row, &lowest, row)) {}
}

/* Converts rows [begin, end) of the chunk. Rows before a bad one are still converted, because one
 * of them may be the first bad one. */
static void convert_rows(void *ctx, size_t begin, size_t end, uint32_t thread) {
    preparing *p = ctx;
    float *values = scratch_of(p->cl->loading, thread);
    unsigned char *packed = (unsigned char *)(values + p->k);
    for (size_t i = begin; i < end; i++) {
        const size_t row = p->chunk.row0 + i;
        size_t bad;
        if (row > atomic_load_explicit(&p->bad_row, memory_order_relaxed)) return;
        if (convert(p, row, values, packed, &bad) == AG_OK) take_apart(p, i, packed);
        else note_bad_row(p, row);
    }
}

/* Converts the bad row again for the message. */
static ag_status report_bad_row(const preparing *p, size_t row) {
    float *values = scratch_of(p->cl->loading, 0);
    size_t bad = 0;
    (void)convert(p, row, values, (unsigned char *)(values + p->k), &bad);
    return AG_FAIL(&p->cl->base.err, FORMAT, "row %zu, column %zu: %g cannot be kept as %s", row,
                   bad, (double)values[bad], ag_dtype_name(p->want));
}

static ag_status convert_chunk(preparing *p) {
    enum { CHUNKS_A_THREAD = 4, MIN_WEIGHTS = 1 << 15 };
    ag_pool *pool = p->cl->loading->pool;
    size_t grain = p->chunk.rows / (ag_pool_threads(pool) * CHUNKS_A_THREAD);
    if (grain < MIN_WEIGHTS / p->k + 1) grain = MIN_WEIGHTS / p->k + 1;
    ag_pool_run(pool, p->chunk.rows, grain, convert_rows, p);
    const size_t bad = atomic_load(&p->bad_row);
    return bad == SIZE_MAX ? AG_OK : report_bad_row(p, bad);
}

static ag_status upload(const preparing *p, cl_mem to) {
    size_t at = 0;
    for (unsigned i = 0; i < AG_CL_PLANES; i++) {
        const size_t row = ag_cl_plane_bytes(p->want, i, p->k);
        if (i == AG_CL_FACTORS) at = ag_cl_prepared_scales(p->want, p->n, p->k);
        if (row) {
            AG_TRY(ag_cl_stage_send(p->cl, to, at + p->chunk.row0 * row, p->chunk.planes[i],
                                    p->chunk.rows * row, &p->cl->base.err));
        }
        at += p->n * row;
    }
    /* Starts the copies while more rows are converted. */
    const cl_int code = p->cl->api.clFlush(p->cl->queue);
    if (code == CL_SUCCESS) return AG_OK;
    return ag_cl_fail(p->cl, &p->cl->base.err, code, "writing rows of a weight");
}

static ag_status prepare_rows(preparing *p, cl_mem to, ag_consumed_fn consumed, void *user) {
    AG_TRY(reserve_memory(p));
    for (size_t row0 = 0; row0 < p->n; row0 += p->chunk_rows) {
        AG_TRY(begin_chunk(p, row0));
        AG_TRY(convert_chunk(p));
        AG_TRY(upload(p, to));
        if (consumed && !consumed(user, row0, p->chunk.rows)) {
            return AG_FAIL(&p->cl->base.err, CANCELLED, "given up after row %zu of %zu",
                           row0 + p->chunk.rows, p->n);
        }
    }
    return AG_OK;
}

ag_status ag_cl_prepare_weight(ag_backend *b, ag_tensor *w, ag_buffer **owner, const ag_tensor *src,
                               ag_dtype want, ag_consumed_fn consumed, void *user) {
    preparing p = {.cl = ag_cl_of(b),
                   .src = src,
                   .bytes = ag_tensor_data(src),
                   .want = want,
                   .n = ag_shape_rows(&src->shape),
                   .k = ag_shape_cols(&src->shape)};
    if (!ag_cl_has_kernels(want)) return ag_cl_refuse_type(p.cl, "weights", want);
    if (!p.n || !p.k || !ag_cl_has_layout(want)) {
        return ag_compose_prepare_weight(b, w, owner, src, want, consumed, user);
    }
    const size_t bytes = ag_cl_prepared_bytes(b, want, p.n, p.k);
    if (!bytes || p.n > UINT32_MAX || p.k > UINT32_MAX / 2) {
        return AG_FAIL(
            &b->err, SHAPE,
            "weight of %zu rows of %zu values: its size exceeds what the kernels address", p.n,
            p.k);
    }
    AG_TRY(ag_memory_alloc(ag_backend_memory(b), bytes, AG_USAGE_WEIGHTS, owner, &b->err));
    atomic_init(&p.bad_row, SIZE_MAX);
    ag_status st = prepare_rows(&p, ag_cl_buffer_of(p.cl, *owner)->mem, consumed, user);
    if (st != AG_OK) {
        ag_buffer_release(owner);
        return st;
    }
    *w = (ag_tensor){
        .dtype = want, .shape = src->shape, .buffer = *owner, .layout = AG_CL_LAYOUT_PREPARED};
    return AG_OK;
}
