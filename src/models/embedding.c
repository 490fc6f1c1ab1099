/* SPDX-License-Identifier: Apache-2.0 */
#include "models/embedding.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "quant/quant.h"

#include <string.h>

ag_status ag_embedding_open(ag_embedding *e, const ag_weight_source *source,
                            const ag_source_tensor *table, const ag_table_shape *shape,
                            ag_error *err) {
    const size_t dim = shape->dim;
    *e = (ag_embedding){.source = source,
                        .table = table,
                        .type = AG_F16,
                        .n_rows = shape->n_rows,
                        .dim = dim,
                        .scale = shape->scale};
    if (dim % ag_dtype_block(AG_Q4_0) == 0) e->type = AG_Q4_0;
    if (table) e->type = table->dtype;
    e->row = ag_malloc(dim * sizeof(float));
    return e->row ? AG_OK : AG_FAIL(err, NOMEM, "embedding row of %zu values", dim);
}

void ag_embedding_close(ag_embedding *e) {
    ag_free(e->row);
    *e = (ag_embedding){0};
}

/* Fills a row of F16 or Q4_0 with bits that depend only on the id (splitmix64, Steele et al. 2014).
 * Each block begins with a half, whose exponent is fixed: F16 values are below 1/4 in magnitude,
 * those of Q4_0 at most 2. */
static void synthetic_row(const ag_embedding *e, unsigned char *dst, int32_t id) {
    const size_t bytes = ag_dtype_row_bytes(e->type, e->dim);
    uint64_t state = (uint64_t)id * 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < bytes; i += sizeof state) {
        uint64_t z = (state += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        z ^= z >> 31;
        memcpy(dst + i, &z, bytes - i < sizeof z ? bytes - i : sizeof z);
    }
    for (size_t i = 0; i < bytes; i += ag_dtype_block_bytes(e->type)) {
        uint16_t half;
        memcpy(&half, dst + i, sizeof half);
        half = (uint16_t)((half & 0x83ff) | 0x3000);
        memcpy(dst + i, &half, sizeof half);
    }
}

static ag_status read_row(const ag_embedding *e, void *dst, int32_t id, ag_error *err) {
    const size_t bytes = ag_dtype_row_bytes(e->type, e->dim);
    if (e->table) return ag_source_read(e->source, e->table, (uint64_t)id * bytes, dst, bytes, err);
    synthetic_row(e, dst, id);
    return AG_OK;
}

static ag_status check_ids(const ag_embedding *e, const int32_t *ids, size_t n, ag_error *err) {
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (size_t)ids[i] >= e->n_rows) {
            return AG_FAIL(err, INVALID, "token id %d is outside the vocabulary of %zu", ids[i],
                           e->n_rows);
        }
    }
    return AG_OK;
}

/* Fails if a row of a type has a value that is not finite. values [dim]: scratch. */
static ag_status check_row(const ag_embedding *e, ag_dtype type, const void *row, float *values,
                           int32_t id, ag_error *err) {
    const size_t bad = ag_first_not_finite(type, row, values, e->dim);
    if (bad == e->dim) return AG_OK;
    return AG_FAIL(err, FORMAT, "tensor %s: value %zu of row %d is not finite", e->table->name, bad,
                   id);
}

ag_status ag_embedding_lookup(ag_embedding *e, float *dst, const int32_t *ids, size_t n,
                              ag_error *err) {
    AG_TRY(check_ids(e, ids, n, err));
    for (size_t i = 0; i < n; i++, dst += e->dim) {
        AG_TRY(read_row(e, e->row, ids[i], err));
        ag_dequantize_row(e->type, dst, e->row, e->dim);
        AG_TRY(check_row(e, AG_F32, dst, NULL, ids[i], err));
        for (size_t k = 0; e->scale != 1 && k < e->dim; k++) dst[k] *= e->scale;
    }
    return AG_OK;
}

ag_status ag_embedding_read(ag_embedding *e, void *dst, const int32_t *ids, size_t n,
                            ag_error *err) {
    const size_t bytes = ag_dtype_row_bytes(e->type, e->dim);
    AG_TRY(check_ids(e, ids, n, err));
    for (size_t i = 0; i < n; i++) {
        unsigned char *row = (unsigned char *)dst + i * bytes;
        AG_TRY(read_row(e, row, ids[i], err));
        AG_TRY(check_row(e, e->type, row, e->row, ids[i], err));
    }
    return AG_OK;
}
