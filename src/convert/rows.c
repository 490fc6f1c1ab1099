/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/rows.h"

#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/fail.h"
#include "quant/quant.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { CHUNK_BYTES = 8 << 20, GROUP_VALUES = 1 << 14 };

typedef struct job {
    const ag_out_tensor *tensor;
    const float *importance;
    const ag_weight_rounding *rounding;
    size_t rows, cols, row_bytes, group; /* group: rows that a thread converts at once */
    ag_dtype from;
    const unsigned char **source; /* [rows] the address of each source row */
    const uint8_t **exponents;    /* [rows] of MXFP4 in two tensors; NULL: blocks in one */
    size_t stride;          /* values between two values of a source row; 1: they are adjacent */
    unsigned char *out;     /* the converted rows of the chunk */
    size_t chunk, first, n; /* full chunk: rows; current chunk: first row, rows */
    float *scratch;         /* [threads][2 * cols] */
    atomic_size_t bad_row;  /* the first row that the type cannot hold; SIZE_MAX: none */
} job;

/* ---- source rows ---- */

/* Finds the rows of nibbles and exponents that make rows of MXFP4. */
static ag_status map_nibbles(const ag_row_writer *w, job *j, const ag_out_section *p,
                             ag_error *err) {
    const size_t n = j->cols / AG_QK;
    ag_tensor nibbles, exponents;
    if (!j->exponents) j->exponents = ag_calloc(j->rows, sizeof *j->exponents);
    if (!j->exponents) return AG_FAIL(err, NOMEM, "rows of tensor %s", j->tensor->name);
    AG_TRY(ag_source_map(w->model->source, p->source, &nibbles, err));
    AG_TRY(ag_source_map(w->model->source, p->exponents, &exponents, err));
    for (size_t i = 0; i < p->rows; i++) {
        const size_t to = ag_row_order_at(&p->to, i), from = ag_row_order_at(&p->from, i);
        j->source[to] = ag_tensor_u8(&nibbles) + from * n * AG_QK / 2;
        j->exponents[to] = ag_tensor_u8(&exponents) + from * n;
    }
    return AG_OK;
}

static ag_status map_section(const ag_row_writer *w, job *j, const ag_out_section *p,
                             ag_error *err) {
    const size_t bytes = ag_dtype_row_bytes(j->from, j->cols);
    ag_tensor all;
    if (p->exponents) return map_nibbles(w, j, p, err);
    if (p->source->dtype != j->from) {
        return AG_FAIL(err, UNSUPPORTED,
                       "tensor %s: its source tensors have different types, %s and %s",
                       j->tensor->name, ag_dtype_name(j->from), p->source->dtype_name);
    }
    AG_TRY(ag_source_map(w->model->source, p->source, &all, err));
    const unsigned char *data = ag_tensor_data(&all);
    const size_t each = p->transposed, value_bytes = ag_dtype_block_bytes(j->from);
    for (size_t i = 0; i < p->rows; i++) {
        const size_t at = ag_row_order_at(&p->from, i);
        const size_t first = each ? (at / each * j->cols * each + at % each) * value_bytes : 0;
        j->source[ag_row_order_at(&p->to, i)] = data + (each ? first : at * bytes);
    }
    if (each) j->stride = each;
    return AG_OK;
}

static ag_status find_rows(const ag_row_writer *w, job *j, ag_error *err) {
    const ag_out_tensor *t = j->tensor;
    for (size_t i = 0; i < t->n_sections; i++) AG_TRY(map_section(w, j, &t->sections[i], err));
    for (size_t i = 0; i < j->rows && t->values; i++) {
        j->source[i] = (const unsigned char *)(t->values + i * j->cols);
    }
    for (size_t i = 0; i < j->rows; i++) assert(j->source[i]);
    return AG_OK;
}

static void drop_source(const ag_row_writer *w, const ag_out_tensor *t) {
    for (size_t i = 0; i < t->n_sections; i++) {
        ag_source_drop(w->model->source, t->sections[i].source, 0, t->sections[i].source->n_bytes);
    }
}

/* Returns the bytes of a source row. Collects them in `raw` if they are not adjacent. */
static const unsigned char *row_bytes_of(const job *j, size_t row, unsigned char *raw) {
    const size_t bytes = ag_dtype_block_bytes(j->from);
    if (j->exponents) {
        ag_join_mxfp4(raw, j->source[row], j->exponents[row], j->cols / AG_QK);
        return raw;
    }
    if (j->stride == 1) return j->source[row];
    for (size_t i = 0; i < j->cols; i++)
        memcpy(raw + i * bytes, j->source[row] + i * j->stride * bytes, bytes);
    return raw;
}

/* ---- chunks ---- */

static ag_status convert_row(const job *j, size_t row, unsigned char *out, float *values,
                             size_t *bad) {
    const ag_dtype to = j->tensor->type;
    const ag_out_tensor *t = j->tensor;
    const bool moves = t->columns.file_rows != 0;
    float *decoded = moves ? values + j->cols : values;
    unsigned char *raw = (unsigned char *)(values + j->cols); /* moved columns are adjacent */
    if (j->from == to && ag_dtype_is_quantized(to) && t->factor == 1 && !moves) {
        memcpy(out, row_bytes_of(j, row, raw), j->row_bytes);
        return AG_OK;
    }
    ag_dequantize_row(j->from, decoded, row_bytes_of(j, row, raw), j->cols);
    for (size_t i = 0; i < j->cols && moves; i++)
        values[ag_row_order_at(&t->columns, i)] = decoded[i];
    for (size_t i = 0; i < j->cols && t->minus_exp; i++) values[i] = -expf(values[i]);
    for (size_t i = 0; i < j->cols && t->add != 0; i++) values[i] += t->add;
    for (size_t i = 0; i < j->cols && t->factor != 1; i++) values[i] *= t->factor;
    const size_t each = t->shape.n_dims == 3 ? j->rows / t->shape.dim[0] : j->rows;
    const float *importance = j->importance ? j->importance + row / each * j->cols : NULL;
    return ag_quantize_weights(j->rounding, to, out, values, j->cols, importance, bad);
}

static void convert_groups(void *ctx, size_t begin, size_t end, uint32_t thread) {
    job *j = ctx;
    float *values = j->scratch + (size_t)thread * 2 * j->cols;
    size_t bad, last = end * j->group < j->n ? end * j->group : j->n;
    for (size_t i = begin * j->group; i < last; i++) {
        const size_t row = j->first + i;
        if (convert_row(j, row, j->out + i * j->row_bytes, values, &bad) == AG_OK) continue;
        size_t first = atomic_load(&j->bad_row);
        while (row < first && !atomic_compare_exchange_weak(&j->bad_row, &first, row)) {}
        return;
    }
}

/* Converts the row again to find the value. */
static ag_status fail_at(const job *j, ag_error *err) {
    const size_t row = atomic_load(&j->bad_row);
    size_t bad = 0;
    (void)convert_row(j, row, j->out, j->scratch, &bad);
    return AG_FAIL(err, FORMAT, "tensor %s: row %zu, column %zu: %g cannot be stored as %s",
                   j->tensor->name, row, bad, (double)j->scratch[bad],
                   ag_dtype_name(j->tensor->type));
}

static ag_status write_chunks(ag_row_writer *w, job *j, ag_error *err) {
    for (j->first = 0; j->first < j->rows; j->first += j->n) {
        const size_t remaining = j->rows - j->first;
        j->n = remaining < j->chunk ? remaining : j->chunk;
        ag_for_each(w->backend, (j->n + j->group - 1) / j->group, convert_groups, j);
        if (atomic_load(&j->bad_row) != SIZE_MAX) return fail_at(j, err);
        AG_TRY(ag_gguf_write(&w->model->writer, j->out, j->n * j->row_bytes, err));
        w->done += j->n * j->row_bytes;
        if (w->progress && !w->progress(w->progress_user, w->done, w->total)) {
            return AG_FAIL(err, CANCELLED, "tensor %s: writing was cancelled", j->tensor->name);
        }
    }
    return ag_gguf_end_tensor(&w->model->writer, err);
}

ag_status ag_write_tensor(ag_row_writer *w, const ag_out_tensor *t, const float *importance,
                          ag_error *err) {
    job j = {.tensor = t,
             .importance = importance,
             .rounding = ag_backend_rounding(w->backend),
             .from = ag_out_source_type(t),
             .stride = 1};
    /* A vector that is reordered is converted value by value. */
    j.cols = t->by_value ? 1 : ag_shape_cols(&t->shape);
    j.rows = t->by_value ? ag_shape_numel(&t->shape) : ag_shape_rows(&t->shape);
    j.row_bytes = ag_dtype_row_bytes(t->type, j.cols);
    j.group = GROUP_VALUES / j.cols + 1;
    j.chunk = CHUNK_BYTES / j.row_bytes + 1;
    atomic_init(&j.bad_row, SIZE_MAX);
    j.source = ag_calloc(j.rows, sizeof *j.source);
    j.out = ag_malloc((j.chunk < j.rows ? j.chunk : j.rows) * j.row_bytes);
    j.scratch = ag_malloc(ag_backend_threads(w->backend) * 2 * j.cols * sizeof *j.scratch);
    ag_status st =
        j.source && j.out && j.scratch ? AG_OK : AG_FAIL(err, NOMEM, "rows of tensor %s", t->name);
    if (st == AG_OK) st = find_rows(w, &j, err);
    if (st == AG_OK) st = write_chunks(w, &j, err);
    if (st == AG_OK) drop_source(w, t);
    ag_free(j.scratch);
    ag_free(j.out);
    ag_free(j.exponents);
    ag_free(j.source);
    return st;
}
