/* SPDX-License-Identifier: Apache-2.0 */
#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/fail.h"
#include "memory/galloc.h"
#include "models/weights.h"
#include "platform/thread.h"
#include "quant/quant.h"

#include <antigravity/process.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* State of loading. Several threads convert rows of a tensor. Only the caller's thread reports
 * progress. */
typedef struct loading {
    ag_model_weights *w;
    ag_backend *backend;
    const ag_weight_source *source;
    const ag_model_params *params;
    uint64_t done, total;       /* bytes of the files; done: finished tensors */
    ag_os_thread thread;        /* the caller's thread */
    _Atomic uint64_t part_done; /* finished bytes of the current tensor */
    atomic_bool cancelled;
    ag_memory *host;                 /* for rows that must be reordered */
    const ag_source_tensor *current; /* the current tensor; NULL: its rows were copied */
    size_t first_row, row_bytes;     /* rows of the current tensor in its file */
} loading;

/* Called after rows are converted: drops their pages, which stay in the page cache, and reports
 * progress. Returns false to cancel. */
static bool consume_rows(void *user, size_t row0, size_t n_rows) {
    loading *ld = user;
    if (ld->current) {
        const uint64_t first = (uint64_t)(ld->first_row + row0) * ld->row_bytes;
        ag_source_drop(ld->source, ld->current, first, (uint64_t)n_rows * ld->row_bytes);
    }
    const uint64_t bytes = (uint64_t)n_rows * ld->row_bytes;
    const uint64_t part_done = atomic_fetch_add(&ld->part_done, bytes) + bytes;
    const ag_model_params *p = ld->params;
    if (p->progress && ag_os_thread_is_current(&ld->thread) &&
        !p->progress(p->progress_user, ld->done + part_done, ld->total)) {
        atomic_store(&ld->cancelled, true);
    }
    return !atomic_load(&ld->cancelled);
}

static ag_status cancelled_at(const ag_source_tensor *t, ag_error *err) {
    return AG_FAIL(err, CANCELLED, "loading was cancelled at %s", t->name);
}

static ag_status advance(loading *ld, const ag_source_tensor *t, const ag_weight_spec *spec,
                         ag_error *err) {
    ld->done += ag_weight_file_bytes(ag_weight_file_type(spec, t), spec);
    ag_memory_usage here; /* records the peak of memory while loading */
    ag_process_memory(&here);
    const ag_model_params *p = ld->params;
    if (p->progress && !p->progress(p->progress_user, ld->done, ld->total)) {
        return cancelled_at(t, err);
    }
    return AG_OK;
}

/* Copies columns of a transposed tensor as rows. value_bytes: of one value. */
static void transpose(const ag_weight_spec *spec, size_t value_bytes, const char *from, char *to) {
    for (size_t i = 0; i < spec->rows; i++) {
        for (size_t k = 0; k < spec->cols; k++, to += value_bytes)
            memcpy(to, from + ag_weight_value_at(spec, i, k) * value_bytes, value_bytes);
    }
}

/* Makes *out the weight's rows of the file's tensor `all`: in place if they are adjacent, else
 * copied into *copy. */
static ag_status select_rows(const loading *ld, const ag_weight_spec *spec, const ag_tensor *all,
                             ag_tensor *out, ag_buffer **copy, ag_error *err) {
    const ag_row_order *order = &spec->order;
    const ag_shape shape = ag_shape_2d(spec->rows, spec->cols);
    *copy = NULL;
    if (ag_row_order_is_range(order) && !spec->transposed) {
        return ag_tensor_make(out, all->dtype, shape, all->buffer,
                              all->offset + order->first * ld->row_bytes, err);
    }
    AG_TRY(ag_tensor_alloc(out, copy, ld->host, AG_USAGE_SCRATCH, all->dtype, shape, err));
    const char *from = ag_tensor_data(all);
    char *to = ag_tensor_data(out);
    if (spec->transposed) {
        transpose(spec, ag_dtype_block_bytes(all->dtype), from, to);
        return AG_OK;
    }
    for (size_t i = 0; i < spec->rows; i++) {
        memcpy(to + i * ld->row_bytes, from + ag_row_order_at(order, i) * ld->row_bytes,
               ld->row_bytes);
    }
    return AG_OK;
}

/* Makes *out the weight's rows of MXFP4, joined from two tensors of the file. */
static ag_status join_rows(const loading *ld, const ag_weight_spec *spec, const ag_source_tensor *t,
                           ag_tensor *out, ag_buffer **copy, ag_error *err) {
    const size_t n = spec->cols / AG_MXFP4_BLOCK;
    const ag_source_tensor *exponents;
    ag_tensor halves, scales;
    *copy = NULL;
    AG_TRY(ag_model_weights_find_exponents(ld->source, spec, &exponents, err));
    AG_TRY(ag_source_map(ld->source, t, &halves, err));
    AG_TRY(ag_source_map(ld->source, exponents, &scales, err));
    AG_TRY(ag_tensor_alloc(out, copy, ld->host, AG_USAGE_SCRATCH, AG_MXFP4,
                           ag_shape_2d(spec->rows, spec->cols), err));
    unsigned char *to = ag_tensor_data(out);
    for (size_t i = 0; i < spec->rows; i++, to += ld->row_bytes) {
        const size_t row = ag_row_order_at(&spec->order, i);
        ag_join_mxfp4(to, ag_tensor_u8(&halves) + row * n * AG_MXFP4_BLOCK / 2,
                      ag_tensor_u8(&scales) + row * n, n);
    }
    return AG_OK;
}

/* Makes *src the weight's rows: in place or in *copy. */
static ag_status open_rows(const loading *ld, const ag_weight_spec *spec, const ag_source_tensor *t,
                           ag_tensor *src, ag_buffer **copy, ag_error *err) {
    ag_tensor all;
    *copy = NULL;
    if (spec->is_mxfp4) return join_rows(ld, spec, t, src, copy, err);
    AG_TRY(ag_source_map(ld->source, t, &all, err));
    return select_rows(ld, spec, &all, src, copy, err);
}

static ag_status load_matrix(loading *ld, ag_tensor *out, const ag_weight_spec *spec,
                             ag_error *err) {
    const ag_source_tensor *t;
    ag_tensor src;
    ag_buffer *copy;
    AG_TRY(ag_model_weights_find(ld->source, spec, &t, err));
    const ag_dtype file = ag_weight_file_type(spec, t);
    const ag_dtype type = ag_weight_type(spec, file, ld->params);
    atomic_store(&ld->part_done, 0);
    ld->row_bytes = ag_dtype_row_bytes(file, spec->cols);
    ag_status st = open_rows(ld, spec, t, &src, &copy, err);
    ld->current = copy ? NULL : t;
    ld->first_row = spec->order.first;
    if (st == AG_OK) {
        st = ag_model_weights_put_matrix(ld->w, ld->backend, out, spec, &src, type, consume_rows,
                                         ld, err);
    }
    ag_buffer_release(&copy);
    ag_source_drop(ld->source, t, 0, t->n_bytes);
    if (st == AG_CANCELLED) return cancelled_at(t, err);
    if (st != AG_OK)
        return ag_error_prefix(err, st, "%s", ag_source_file_path(ld->source, t->file));
    return advance(ld, t, spec, err);
}

/* Reads the values of a vector or filter in the weight's order of rows, column after column. */
static ag_status read_vector(const loading *ld, const ag_source_tensor *t,
                             const ag_weight_spec *spec, float *values, ag_error *err) {
    const size_t n = ag_shape_numel(&t->shape), bytes = (size_t)t->n_bytes;
    void *raw = ag_malloc(bytes);
    float *all = ag_malloc(n * sizeof *all);
    ag_status st = raw && all ? AG_OK : AG_FAIL(err, NOMEM, "tensor %s", spec->name);
    if (st == AG_OK) st = ag_source_read(ld->source, t, 0, raw, bytes, err);
    if (st == AG_OK) {
        ag_dequantize_row(t->dtype, all, raw, n);
        for (size_t i = 0; i < spec->rows; i++) {
            const size_t row = ag_row_order_at(&spec->order, i);
            for (size_t k = 0; k < spec->cols; k++)
                values[k * spec->rows + i] = all[row * spec->cols + k];
        }
    }
    ag_free(all);
    ag_free(raw);
    return st;
}

static ag_status load_vector(loading *ld, ag_tensor *out, const ag_weight_spec *spec,
                             ag_error *err) {
    const ag_source_tensor *t;
    AG_TRY(ag_model_weights_find(ld->source, spec, &t, err));
    float *values = ag_calloc(spec->rows, spec->cols * sizeof *values);
    if (!values) return AG_FAIL(err, NOMEM, "tensor %s", spec->name);
    ag_status st = read_vector(ld, t, spec, values, err);
    if (st == AG_OK) {
        st = ag_model_weights_put_vector(ld->w, ld->backend, out, spec, values, err);
        if (st != AG_OK) ag_error_prefix(err, st, "%s", ag_source_file_path(ld->source, t->file));
    }
    ag_free(values);
    return st == AG_OK ? advance(ld, t, spec, err) : st;
}

static ag_status load_layers(loading *ld, const ag_model_spec *s, ag_error *err) {
    for (uint32_t l = 0; l < s->n_layers; l++) {
        for (size_t i = 0; i < ag_layer_weight_count(s, l); i++) {
            ag_weight_spec spec = ag_layer_weight(s, l, i);
            ag_tensor *out = ag_model_weights_slot(ld->w, l, &spec);
            if (spec.kind == AG_WEIGHT_MATRIX) {
                AG_TRY(load_matrix(ld, out, &spec, err));
            } else {
                AG_TRY(load_vector(ld, out, &spec, err));
            }
        }
    }
    return AG_OK;
}

ag_status ag_model_weights_load(ag_model_weights *w, ag_backend *be, const ag_model_spec *s,
                                const ag_weight_source *source, const ag_weights_summary *summary,
                                const ag_model_params *params, ag_error *err) {
    loading ld = {.w = w, .backend = be, .source = source, .params = params};
    ld.thread = ag_os_thread_current();
    ld.total = summary->source_bytes;
    ag_status st = ag_model_weights_begin(w, s, err);
    if (st == AG_OK) st = ag_galloc_create(&ld.host, err);
    if (st == AG_OK) st = load_layers(&ld, s, err);
    if (st == AG_OK) {
        ag_weight_spec spec = ag_norm_weight(s);
        st = load_vector(&ld, &w->norm, &spec, err);
    }
    if (st == AG_OK) {
        ag_weight_spec spec = ag_lm_head_weight(s);
        if (summary->tied) snprintf(spec.name, sizeof spec.name, "%s", summary->embedding->name);
        st = load_matrix(&ld, &w->lm_head, &spec, err);
    }
    if (st != AG_OK) ag_model_weights_release(w);
    ag_galloc_destroy(ld.host);
    return st;
}
