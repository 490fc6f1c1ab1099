/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/imatrix_file.h"
#include "convert/out_model.h"
#include "convert/rows.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "formats/file.h"
#include "platform/file.h"

#include <stdio.h>
#include <string.h>

/* The version of ggml's quantised formats. */
enum { QUANTIZATION_VERSION = 2 };

/* ---- the path ---- */

/* Rejects a path that would replace a file of the source while it is read. */
static ag_status check_apart(const ag_weight_source *source, const char *path, ag_error *err) {
    ag_file_info to, from;
    if (!ag_file_stat(path, &to)) return AG_OK;
    for (size_t i = 0; i < ag_source_n_files(source); i++) {
        if (!ag_file_stat(ag_source_file_path(source, i), &from)) continue;
        if (!ag_file_is_same(&from, &to)) continue;
        return AG_FAIL(err, INVALID, "%s: is a file of the source model", path);
    }
    return AG_OK;
}

static ag_status check_path(const char *path, const ag_quantize_params *params, ag_error *err) {
    if (params->overwrite || !ag_file_is_named(path)) return AG_OK;
    return AG_FAIL(err, INVALID, "%s: file exists already", path);
}

/* ---- the file ---- */

static void declare_tensors(ag_out_model *m, ag_quantize_report *report) {
    for (size_t i = 0; i < m->n; i++) {
        const ag_out_tensor *t = &m->tensors[i];
        const uint64_t bytes = (uint64_t)ag_shape_rows(&t->shape) *
                               ag_dtype_row_bytes(t->type, ag_shape_cols(&t->shape));
        ag_gguf_add_tensor(&m->writer, t->name, t->type, &t->shape);
        const size_t n = ag_shape_numel(&t->shape);
        report->source_bytes += ag_dtype_row_bytes(ag_out_source_type(t), n);
        report->n_parameters += n;
        report->bytes += bytes;
        report->bytes_of[t->type] += bytes;
    }
    report->n_tensors = m->n;
}

/* Warns before a file is written that exceeds its source. Vectors alone, which become F32, do not
 * count. */
static void check_growth(const ag_quantize_report *r, const char *path,
                         const ag_quantize_params *params) {
    char line[256];
    if (!params->log || r->bytes <= r->source_bytes + r->source_bytes / 64) return;
    snprintf(line, sizeof line, "%.120s: the file grows: %.1f MiB of tensors from %.1f MiB", path,
             (double)r->bytes / 0x1p20, (double)r->source_bytes / 0x1p20);
    params->log(params->log_user, AG_LOG_WARN, line);
}

/* Passes the importance of the columns if the imatrix file has the tensor. The columns of an expert
 * that was not measured are equally important. */
static ag_status write_tensor(ag_row_writer *w, const ag_out_tensor *t, const ag_imatrix_file *im,
                              ag_error *err) {
    const size_t n = ag_shape_cols(&t->shape);
    const size_t n_experts = t->shape.n_dims == 3 ? t->shape.dim[0] : 1;
    float *importance = NULL, *counts = NULL;
    if (im->source && t->shape.n_dims >= 2) {
        AG_TRY(ag_imatrix_file_read(im, t->name, n_experts, n, &importance, &counts, err));
    }
    for (size_t i = 0; i < n_experts * n && importance; i++)
        importance[i] = counts[i / n] > 0 ? importance[i] / counts[i / n] : 1;
    const ag_status st = ag_write_tensor(w, t, importance, err);
    ag_free(importance);
    ag_free(counts);
    return st;
}

static ag_status write_file(ag_out_model *m, const char *path, const ag_quantize_params *params,
                            const ag_imatrix_file *im, ag_quantize_report *report, ag_error *err) {
    const ag_backend_params cpu = {.name = "cpu", .n_threads = params->n_threads};
    ag_row_writer w = {.model = m,
                       .progress = params->progress,
                       .progress_user = params->progress_user,
                       .total = report->bytes};
    AG_TRY(ag_gguf_writer_open(&m->writer, path, err));
    AG_TRY(ag_backend_create(&cpu, &w.backend, err));
    ag_status st = AG_OK;
    for (size_t i = 0; i < m->n && st == AG_OK; i++) {
        st = write_tensor(&w, &m->tensors[i], im, err);
    }
    if (st == AG_OK && !ag_gguf_source_header(m->source))
        st = ag_check_same_model(m->source, &m->writer, err);
    if (st == AG_OK) st = ag_gguf_writer_commit(&m->writer, err);
    ag_backend_destroy(w.backend);
    return st;
}

/* Writes the same keys as llama.cpp. */
static void put_importance(ag_gguf_writer *w, const ag_imatrix_file *im, const char *path) {
    if (!im->source) return;
    ag_gguf_put_string(w, "quantize.imatrix.file", (ag_source_string){path, strlen(path)});
    ag_gguf_put_u32(w, "quantize.imatrix.entries_count", (uint32_t)im->n_entries);
    if (im->n_chunks >= 0) {
        ag_gguf_put_u32(w, "quantize.imatrix.chunks_count", (uint32_t)im->n_chunks);
    }
}

static ag_status convert(ag_out_model *m, const char *path, const ag_quantize_params *params,
                         const ag_imatrix_file *im, ag_quantize_report *report, ag_error *err) {
    uint32_t number;
    AG_TRY(ag_file_type_number_for(params->type, &number, err));
    AG_TRY(check_path(path, params, err));
    AG_TRY(check_apart(m->source, path, err));
    AG_TRY(ag_gguf_source_header(m->source) ? ag_out_from_gguf(m, err)
                                            : ag_out_from_directory(m, params, err));
    AG_TRY(ag_choose_types(m, params, &report->n_fallback, err));
    ag_gguf_put_u32(&m->writer, "general.file_type", number);
    ag_gguf_put_u32(&m->writer, "general.quantization_version", QUANTIZATION_VERSION);
    put_importance(&m->writer, im, params->imatrix);
    declare_tensors(m, report);
    check_growth(report, path, params);
    AG_TRY(write_file(m, path, params, im, report, err));
    ag_file_info info;
    if (ag_file_stat(path, &info)) report->file_bytes = info.bytes;
    return AG_OK;
}

ag_status ag_quantize(const char *source, const char *path, const ag_quantize_params *params,
                      ag_quantize_report *report, ag_error *err) {
    ag_quantize_report any;
    if (!report) report = &any;
    *report = (ag_quantize_report){0};
    ag_weight_source *s;
    AG_TRY(ag_source_open(source, &s, err));
    ag_out_model m = {.source = s};
    ag_imatrix_file im = {.source = NULL};
    ag_status st = ag_source_open_tensors(s, err);
    if (st == AG_OK && params->imatrix) st = ag_imatrix_file_open(&im, params->imatrix, err);
    if (st == AG_OK) st = convert(&m, path, params, &im, report, err);
    ag_imatrix_file_close(&im);
    ag_out_model_free(&m);
    ag_source_destroy(s);
    return st;
}
