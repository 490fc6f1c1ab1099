/* SPDX-License-Identifier: Apache-2.0 */
/* Weights become what kernels/weights.cl describes: quants and scales apart, rows padded. Converted
 * by threads of the host, some rows at a time; the device receives the rows before meanwhile. */
#include "backend/opencl/loading.h"
#include "backend/opencl/ops.h"
#include "core/backend_compose.h"
#include "core/fail.h"
#include "quant/superblock.h"

#include <stdatomic.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 21, ALIGN = 256, HALF = 2 };

static size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

/* ---- the layout: planes, of which each has its part of all rows ---- */

enum { MOST_PLANES = 4 };

typedef struct plane {
    uint16_t cols, bytes; /* bytes for so many columns */
} plane;

typedef struct layout {
    plane planes[MOST_PLANES]; /* ends with bytes 0; scales are the last */
    size_t n_quants;           /* planes in front of the scales */
} layout;

static const layout layouts[AG_DTYPE_COUNT] = {
    [AG_F32] = {{{1, 4}}, 1},
    [AG_F16] = {{{1, 2}}, 1},
    [AG_BF16] = {{{1, 2}}, 1},
    [AG_Q4_0] = {{{32, 16}, {32, 2}}, 1},
    [AG_Q4_1] = {{{32, 16}, {32, 2}, {32, 2}}, 1},
    [AG_Q8_0] = {{{32, 32}, {32, 2}}, 1},
    [AG_Q5_0] = {{{32, 16}, {32, 4}, {32, 2}}, 2},
    [AG_Q5_1] = {{{32, 16}, {32, 4}, {32, 2}, {32, 2}}, 2},
    [AG_Q4_K] = {{{32, 16}, {256, 16}}, 1},
    [AG_Q5_K] = {{{32, 16}, {32, 4}, {256, 16}}, 2},
    [AG_Q6_K] = {{{32, 16}, {32, 8}, {256, 16}, {256, 2}}, 2},
};

bool ag_cl_has_layout(ag_dtype t) { return layouts[t].n_quants > 0; }

/* Of one row of k columns. */
static size_t plane_bytes(ag_dtype dtype, size_t i, size_t k) {
    const plane *p = &layouts[dtype].planes[i];
    return p->bytes ? round_up(k, AG_QK) / p->cols * p->bytes : 0;
}

/* Planes [first, end) of a row. */
static size_t planes_bytes(ag_dtype dtype, size_t first, size_t end, size_t k) {
    size_t bytes = 0;
    for (size_t i = first; i < end; i++) bytes += plane_bytes(dtype, i, k);
    return bytes;
}

/* Where plane i of n rows begins; the scales are aligned. */
static size_t plane_at(ag_dtype dtype, size_t i, size_t n, size_t k) {
    const size_t n_quants = layouts[dtype].n_quants;
    if (i < n_quants) return n * planes_bytes(dtype, 0, i, k);
    return round_up(n * planes_bytes(dtype, 0, n_quants, k), ALIGN) +
           n * planes_bytes(dtype, n_quants, i, k);
}

size_t ag_cl_prepared_scales(ag_dtype dtype, size_t n, size_t k) {
    return plane_at(dtype, layouts[dtype].n_quants, n, k);
}

size_t ag_cl_prepared_bytes(ag_dtype dtype, size_t n, size_t k) {
    const bool in_planes = ag_cl_has_layout(dtype);
    const size_t row =
        in_planes ? planes_bytes(dtype, 0, MOST_PLANES, k) : ag_dtype_row_bytes(dtype, k);
    if (!n || !row || n > (SIZE_MAX - ALIGN) / row) return 0;
    return in_planes ? plane_at(dtype, MOST_PLANES, n, k) : n * row;
}

/* Some rows on the host, as they will lie on the device. */
typedef struct chunk {
    size_t row0, rows;
    unsigned char *planes[MOST_PLANES]; /* [rows][plane_bytes] */
} chunk;

typedef struct preparing {
    ag_cl_backend *cl;
    const ag_tensor *src;
    const unsigned char *bytes; /* of src */
    ag_dtype want;
    size_t n, k; /* rows, columns */
    size_t chunk_rows;
    chunk chunk;
    atomic_size_t bad_row; /* the lowest found that cannot be converted; SIZE_MAX: none */
} preparing;

/* Pinned memory for some rows, and for each thread one row of floats and one packed. */
static ag_status reserve_staging(preparing *p) {
    const size_t row = planes_bytes(p->want, 0, MOST_PLANES, p->k);
    const size_t rows = CHUNK_BYTES / row + 1;
    p->chunk_rows = rows < p->n ? rows : p->n;
    return ag_cl_loading_need(p->cl, p->chunk_rows * row,
                              p->k * sizeof(float) + ag_dtype_row_bytes(p->want, p->k));
}

/* The next rows go where those before the last went: these have arrived. */
static ag_status begin_chunk(preparing *p, size_t row0) {
    chunk *c = &p->chunk;
    unsigned char *at;
    AG_TRY(ag_cl_loading_turn(p->cl, &at));
    c->row0 = row0;
    c->rows = p->n - row0 < p->chunk_rows ? p->n - row0 : p->chunk_rows;
    for (size_t i = 0; i < MOST_PLANES; i++) {
        c->planes[i] = at;
        at += c->rows * plane_bytes(p->want, i, p->k);
    }
    return AG_OK;
}

/* ---- a row taken apart; to: where the parts of a block go ---- */

/* Halves lie in front of a block, then its fifth bits, then the rest. */
static void split_32(ag_dtype dtype, unsigned char *const *to, const unsigned char *block) {
    const layout *l = &layouts[dtype];
    const size_t n_scales = ag_dtype_scales(dtype);
    for (size_t s = 0; s < n_scales; s++, block += HALF) memcpy(to[l->n_quants + s], block, HALF);
    if (l->n_quants == 2) {
        uint8_t q[AG_QK] = {0};
        ag_unpack_fifths(q, block);
        ag_put_bit_words(to[1], q, 4);
        block += AG_QK / 8;
    }
    memcpy(to[0], block, l->planes[0].bytes);
}

static void split_256(ag_dtype dtype, unsigned char *const *to, const unsigned char *bytes) {
    union {
        ag_block_q4_k q4;
        ag_block_q5_k q5;
        ag_block_q6_k q6;
    } block;
    uint8_t levels[AG_QK_K];
    memcpy(&block, bytes, ag_dtype_block_bytes(dtype));
    if (dtype == AG_Q4_K) ag_get_fields(levels, block.q4.qs, 4, 32);
    else if (dtype == AG_Q5_K) ag_q5_k_levels(levels, &block.q5);
    else ag_q6_k_levels(levels, &block.q6);
    for (size_t b = 0; b < AG_QK_K / AG_QK; b++) {
        const uint8_t *q = levels + b * AG_QK;
        ag_pack_nibbles(to[0] + b * AG_QK / 2, q);
        if (dtype == AG_Q5_K) ag_put_bit_words(to[1] + b * 4, q, 4);
        if (dtype == AG_Q6_K) ag_put_pair_words(to[1] + b * 8, q, 4);
    }
    if (dtype == AG_Q6_K) {
        memcpy(to[2], block.q6.scales, sizeof block.q6.scales);
        memcpy(to[3], &block.q6.d, HALF);
    } else { /* d, dmin and the scales are the first bytes of both types */
        memcpy(to[layouts[dtype].n_quants], bytes, 2 * HALF + sizeof block.q4.scales);
    }
}

/* Floats are copied in front of their padding. */
static void take_apart(const preparing *p, size_t row, const unsigned char *packed) {
    const size_t block = ag_dtype_block(p->want), bytes = ag_dtype_block_bytes(p->want);
    unsigned char *to[MOST_PLANES];
    for (size_t i = 0; i < MOST_PLANES; i++) {
        to[i] = p->chunk.planes[i] + row * plane_bytes(p->want, i, p->k);
    }
    if (block == 1) {
        memcpy(to[0], packed, p->k * bytes);
        memset(to[0] + p->k * bytes, 0, plane_bytes(p->want, 0, p->k) - p->k * bytes);
        return;
    }
    for (size_t b = 0; b < p->k / block; b++, packed += bytes) {
        if (block == AG_QK) split_32(p->want, to, packed);
        else split_256(p->want, to, packed);
        for (size_t i = 0; i < MOST_PLANES; i++) to[i] += plane_bytes(p->want, i, block);
    }
}

/* One row to packed; values: scratch for its floats. */
static ag_status convert(const preparing *p, size_t row, float *values, unsigned char *packed,
                         size_t *bad) {
    const ag_dtype from = p->src->dtype;
    const unsigned char *src = p->bytes + row * ag_dtype_row_bytes(from, p->k);
    if (p->want != AG_Q4_0 || from == AG_Q4_0) {
        return ag_convert_row(p->want, packed, from, src, values, p->k, AG_ROUND_WEIGHT, bad);
    }
    ag_dequantize_row(from, values, src, p->k);
    *bad = p->cl->loading->quantize_q4_0(packed, values, p->k);
    return *bad == p->k ? AG_OK : AG_FORMAT;
}

static void note_bad_row(preparing *p, size_t row) {
    size_t lowest = atomic_load(&p->bad_row);
    while (row < lowest && !atomic_compare_exchange_weak(&p->bad_row, &lowest, row)) {}
}

/* Rows [begin, end) of the chunk. Those before a bad one are converted all the same: one of them
 * may be the first that is bad. */
static void convert_rows(void *ctx, size_t begin, size_t end, uint32_t thread) {
    preparing *p = ctx;
    float *values = ag_cl_loading_scratch(p->cl->loading, thread);
    unsigned char *packed = (unsigned char *)(values + p->k);
    for (size_t i = begin; i < end; i++) {
        const size_t row = p->chunk.row0 + i;
        size_t bad;
        if (row > atomic_load_explicit(&p->bad_row, memory_order_relaxed)) return;
        if (convert(p, row, values, packed, &bad) == AG_OK) take_apart(p, i, packed);
        else note_bad_row(p, row);
    }
}

/* The row at fault is converted once more, for the message. */
static ag_status report_bad_row(const preparing *p, size_t row) {
    float *values = ag_cl_loading_scratch(p->cl->loading, 0);
    size_t bad = 0;
    (void)convert(p, row, values, (unsigned char *)(values + p->k), &bad);
    return AG_FAIL(&p->cl->base.err, FORMAT, "row %zu, column %zu: %g cannot be kept as %s", row,
                   bad, (double)values[bad], ag_dtype_name(p->want));
}

static ag_status convert_chunk(preparing *p) {
    enum { CHUNKS_A_THREAD = 4, LEAST_WEIGHTS = 1 << 15 };
    ag_pool *pool = p->cl->loading->pool;
    size_t grain = p->chunk.rows / (ag_pool_threads(pool) * CHUNKS_A_THREAD);
    if (grain < LEAST_WEIGHTS / p->k + 1) grain = LEAST_WEIGHTS / p->k + 1;
    ag_pool_run(pool, p->chunk.rows, grain, convert_rows, p);
    const size_t bad = atomic_load(&p->bad_row);
    return bad == SIZE_MAX ? AG_OK : report_bad_row(p, bad);
}

static ag_status upload(const preparing *p, cl_mem to) {
    const chunk *c = &p->chunk;
    for (size_t i = 0; i < MOST_PLANES; i++) {
        const size_t bytes = plane_bytes(p->want, i, p->k);
        const size_t at = plane_at(p->want, i, p->n, p->k) + c->row0 * bytes;
        if (bytes) AG_TRY(ag_cl_loading_send(p->cl, to, at, c->planes[i], c->rows * bytes));
    }
    return AG_OK;
}

static ag_status prepare_rows(preparing *p, cl_mem to, ag_consumed_fn consumed, void *user) {
    AG_TRY(reserve_staging(p));
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
    const size_t bytes = ag_cl_prepared_bytes(want, p.n, p.k);
    if (!bytes || p.n > UINT32_MAX || p.k > UINT32_MAX / 2) {
        return AG_FAIL(&b->err, SHAPE, "a weight of %zu rows of %zu values", p.n, p.k);
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
