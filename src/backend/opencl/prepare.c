/* SPDX-License-Identifier: Apache-2.0 */
/* Weights become what kernels/weights.cl describes: quants and scales apart, rows padded. Converted
 * on the host, some rows at a time, and uploaded. */
#include "backend/opencl/ops.h"
#include "core/alloc.h"
#include "core/backend_compose.h"
#include "core/fail.h"
#include "quant/quant.h"

#include <string.h>

enum { CHUNK_BYTES = 1 << 20, ALIGN = 256, HALF = 2 };

static size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

/* Bytes of one row without its scales, and halves that belong to each block. */
static size_t quant_bytes(ag_dtype dtype, size_t k) {
    if (!ag_dtype_is_quantized(dtype)) return ag_dtype_row_bytes(dtype, round_up(k, AG_QK));
    return k / AG_QK * (dtype == AG_Q8_0 ? AG_QK : AG_QK / 2);
}

static size_t scales_of(ag_dtype dtype) {
    return !ag_dtype_is_quantized(dtype) ? 0 : dtype == AG_Q4_1 ? 2 : 1;
}

size_t ag_cl_prepared_scales(ag_dtype dtype, size_t n, size_t k) {
    return round_up(n * quant_bytes(dtype, k), ALIGN);
}

size_t ag_cl_prepared_bytes(ag_dtype dtype, size_t n, size_t k) {
    const size_t row = quant_bytes(dtype, k) + scales_of(dtype) * HALF * (k / AG_QK);
    if (!n || !row || n > (SIZE_MAX - ALIGN) / row) return 0;
    return ag_cl_prepared_scales(dtype, n, k) + n * scales_of(dtype) * HALF * (k / AG_QK);
}

/* Some rows on the host, as they will lie on the device. */
typedef struct chunk {
    unsigned char *quants; /* [rows][quant_bytes] */
    uint16_t *scales[2];   /* [rows][k / 32] each: d, m */
} chunk;

typedef struct preparing {
    ag_cl_backend *cl;
    const ag_tensor *src;
    const unsigned char *bytes; /* of src */
    ag_dtype want;
    size_t n, k, n_blocks; /* rows, columns, blocks of a row */
    size_t chunk_rows;
    float *values; /* one row */
    unsigned char *packed;
    chunk chunk;
} preparing;

static void release(preparing *p) {
    ag_free(p->values);
    ag_free(p->packed);
    ag_free(p->chunk.quants);
    ag_free(p->chunk.scales[0]);
    ag_free(p->chunk.scales[1]);
}

static ag_status reserve(preparing *p) {
    const size_t row = quant_bytes(p->want, p->k), rows = CHUNK_BYTES / row + 1;
    p->chunk_rows = rows < p->n ? rows : p->n;
    p->values = ag_malloc(p->k * sizeof *p->values);
    p->packed = ag_malloc(ag_dtype_row_bytes(p->want, p->k));
    p->chunk.quants = ag_calloc(p->chunk_rows, row);
    bool whole = p->values && p->packed && p->chunk.quants;
    for (size_t i = 0; i < scales_of(p->want); i++) {
        p->chunk.scales[i] = ag_calloc(p->chunk_rows * p->n_blocks, HALF);
        whole = whole && p->chunk.scales[i];
    }
    return whole ? AG_OK
                 : AG_FAIL(&p->cl->base.err, NOMEM, "%zu rows of a weight on the host",
                           p->chunk_rows);
}

/* A row of blocks is taken apart; a row of floats is copied in front of its padding. */
static void take_apart(const preparing *p, size_t row) {
    unsigned char *to = p->chunk.quants + row * quant_bytes(p->want, p->k);
    if (!ag_dtype_is_quantized(p->want)) {
        memcpy(to, p->packed, ag_dtype_row_bytes(p->want, p->k));
        return;
    }
    const size_t block = ag_dtype_block_bytes(p->want), n_scales = scales_of(p->want);
    const size_t quants = block - n_scales * HALF;
    for (size_t i = 0; i < p->n_blocks; i++) {
        const unsigned char *from = p->packed + i * block;
        for (size_t s = 0; s < n_scales; s++) {
            memcpy(&p->chunk.scales[s][row * p->n_blocks + i], from + s * HALF, HALF);
        }
        memcpy(to + i * quants, from + n_scales * HALF, quants);
    }
}

static ag_status convert(const preparing *p, size_t row, size_t chunk_row) {
    const size_t src_bytes = ag_dtype_row_bytes(p->src->dtype, p->k);
    size_t bad = 0;
    ag_status st = ag_convert_row(p->want, p->packed, p->src->dtype, p->bytes + row * src_bytes,
                                  p->values, p->k, AG_ROUND_WEIGHT, &bad);
    if (st != AG_OK) {
        return AG_FAIL(&p->cl->base.err, FORMAT, "row %zu, column %zu: %g cannot be kept as %s",
                       row, bad, (double)p->values[bad], ag_dtype_name(p->want));
    }
    take_apart(p, chunk_row);
    return AG_OK;
}

static ag_status upload(const preparing *p, ag_buffer *to, size_t row0, size_t rows) {
    ag_error *err = &p->cl->base.err;
    const size_t row = quant_bytes(p->want, p->k), scales = p->n_blocks * HALF;
    AG_TRY(ag_buffer_upload(to, row0 * row, p->chunk.quants, rows * row, err));
    size_t at = ag_cl_prepared_scales(p->want, p->n, p->k);
    for (size_t s = 0; s < scales_of(p->want); s++, at += p->n * scales) {
        AG_TRY(ag_buffer_upload(to, at + row0 * scales, p->chunk.scales[s], rows * scales, err));
    }
    return AG_OK;
}

static ag_status prepare_rows(preparing *p, ag_buffer *to, ag_consumed_fn consumed, void *user) {
    AG_TRY(reserve(p));
    for (size_t row0 = 0; row0 < p->n; row0 += p->chunk_rows) {
        const size_t rest = p->n - row0, rows = rest < p->chunk_rows ? rest : p->chunk_rows;
        for (size_t i = 0; i < rows; i++) AG_TRY(convert(p, row0 + i, i));
        AG_TRY(upload(p, to, row0, rows));
        if (consumed) consumed(user, row0, rows);
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
    if (!p.n || !p.k) return ag_compose_prepare_weight(b, w, owner, src, want, consumed, user);
    p.n_blocks = p.k / AG_QK;
    const size_t bytes = ag_cl_prepared_bytes(want, p.n, p.k);
    if (!bytes || p.n > UINT32_MAX || p.k > UINT32_MAX / 2) {
        return AG_FAIL(&b->err, SHAPE, "a weight of %zu rows of %zu values", p.n, p.k);
    }
    AG_TRY(ag_memory_alloc(ag_backend_memory(b), bytes, AG_USAGE_WEIGHTS, owner, &b->err));
    ag_status st = prepare_rows(&p, *owner, consumed, user);
    release(&p);
    if (st != AG_OK) {
        ag_buffer_release(owner);
        return st;
    }
    *w = (ag_tensor){
        .dtype = want, .shape = src->shape, .buffer = *owner, .layout = AG_CL_LAYOUT_PREPARED};
    return AG_OK;
}
