/* SPDX-License-Identifier: Apache-2.0 */
#include "models/embedding.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "quant/quant.h"

#include <math.h>

ag_status ag_embedding_open(ag_embedding *e, const ag_weight_source *source,
                            const ag_source_tensor *table, const ag_table_shape *shape,
                            ag_error *err) {
    const size_t dim = shape->dim;
    *e = (ag_embedding){.source = source,
                        .table = table,
                        .n_rows = shape->n_rows,
                        .dim = dim,
                        .scale = shape->scale};
    if (!table) return AG_OK;
    e->row = ag_malloc(ag_dtype_row_bytes(table->dtype, dim));
    return e->row ? AG_OK : AG_FAIL(err, NOMEM, "embedding row of %zu values", dim);
}

void ag_embedding_close(ag_embedding *e) {
    ag_free(e->row);
    *e = (ag_embedding){0};
}

/* Fills a row with values in [-1, 1) that depend only on the id (splitmix64, Steele et al. 2014).
 */
static void synthetic_row(float *dst, int32_t id, size_t dim) {
    uint64_t state = (uint64_t)id * 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < dim; i++) {
        uint64_t z = (state += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        dst[i] = (float)(int32_t)(uint32_t)(z >> 32) * 0x1p-31f;
    }
}

static ag_status file_row(const ag_embedding *e, float *dst, int32_t id, ag_error *err) {
    size_t row_bytes = ag_dtype_row_bytes(e->table->dtype, e->dim);
    AG_TRY(ag_source_read(e->source, e->table, (uint64_t)id * row_bytes, e->row, row_bytes, err));
    ag_dequantize_row(e->table->dtype, dst, e->row, e->dim);
    for (size_t i = 0; i < e->dim; i++) {
        if (!isfinite(dst[i])) {
            return AG_FAIL(err, FORMAT, "tensor %s: value %zu of row %d is not finite",
                           e->table->name, i, id);
        }
    }
    return AG_OK;
}

ag_status ag_embedding_lookup(ag_embedding *e, float *dst, const int32_t *ids, size_t n,
                              ag_error *err) {
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (size_t)ids[i] >= e->n_rows) {
            return AG_FAIL(err, INVALID, "token id %d is outside the vocabulary of %zu", ids[i],
                           e->n_rows);
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (e->table) {
            AG_TRY(file_row(e, dst + i * e->dim, ids[i], err));
        } else {
            synthetic_row(dst + i * e->dim, ids[i], e->dim);
        }
        for (size_t k = 0; e->scale != 1 && k < e->dim; k++) dst[i * e->dim + k] *= e->scale;
    }
    return AG_OK;
}
