/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/imatrix_file.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "formats/file.h"
#include "formats/gguf.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char sums_suffix[] = ".in_sum2", counts_suffix[] = ".counts";

static ag_status check_file(ag_imatrix_file *im, const char *path, ag_error *err) {
    const ag_gguf *g = ag_gguf_source_header(im->source);
    ag_source_string type = {0};
    if (!g) return AG_FAIL(err, FORMAT, "%s: not an importance matrix: expected a GGUF file", path);
    AG_TRY(ag_gguf_string(g, "general.type", &type, err));
    if (type.n != 7 || memcmp(type.text, "imatrix", 7) != 0) {
        return AG_FAIL(err, FORMAT, "%s: not an importance matrix: general.type is not \"imatrix\"",
                       path);
    }
    im->n_chunks = -1;
    AG_TRY(ag_gguf_integer(g, "imatrix.chunk_count", &im->n_chunks, err));
    AG_TRY(ag_source_open_tensors(im->source, err));
    im->n_entries = ag_source_n_tensors(im->source) / 2;
    return AG_OK;
}

ag_status ag_imatrix_file_open(ag_imatrix_file *im, const char *path, ag_error *err) {
    *im = (ag_imatrix_file){.source = NULL};
    if (!ag_file_is_named(path)) return AG_FAIL(err, NOT_FOUND, "%s: no such file", path);
    AG_TRY(ag_source_open(path, &im->source, err));
    const ag_status st = check_file(im, path, err);
    if (st != AG_OK) ag_imatrix_file_close(im);
    return st;
}

void ag_imatrix_file_close(ag_imatrix_file *im) {
    ag_source_destroy(im->source);
    *im = (ag_imatrix_file){.source = NULL};
}

/* Reads the F32 values of the tensor named `tensor` + `suffix`. *out is NULL if the file does not
 * have it. */
static ag_status read_values(const ag_imatrix_file *im, const char *tensor, const char *suffix,
                             size_t n, float **out, ag_error *err) {
    char name[160];
    *out = NULL;
    snprintf(name, sizeof name, "%.120s%s", tensor, suffix);
    const ag_source_tensor *t = ag_source_find(im->source, name);
    if (!t) return AG_OK;
    const char *path = ag_source_file_path(im->source, t->file);
    if (t->dtype != AG_F32 || ag_shape_numel(&t->shape) != n) {
        return AG_FAIL(err, SHAPE,
                       "%s: tensor %s: expected %zu f32 values: the file belongs to another model",
                       path, name, n);
    }
    float *values = ag_malloc(n * sizeof *values);
    if (!values) return AG_FAIL(err, NOMEM, "%s: tensor %s", path, name);
    ag_status st = ag_source_read(im->source, t, 0, values, n * sizeof *values, err);
    for (size_t i = 0; i < n && st == AG_OK; i++) {
        if (isfinite(values[i]) && values[i] >= 0) continue;
        st = AG_FAIL(err, FORMAT, "%s: tensor %s: value %zu is %g; must be finite and not negative",
                     path, name, i, (double)values[i]);
    }
    if (st == AG_OK) *out = values;
    else ag_free(values);
    return st;
}

/* A count is a number of rows. Sums divided by a smaller one could exceed F32. */
static ag_status check_counts(const ag_imatrix_file *im, const char *tensor, const float *counts,
                              size_t n, ag_error *err) {
    for (size_t i = 0; i < n; i++) {
        if (counts[i] == 0 || counts[i] >= 1) continue;
        return AG_FAIL(err, FORMAT, "%s: tensor %.120s%s: value %zu is %g; must be 0 or at least 1",
                       ag_source_file_path(im->source, 0), tensor, counts_suffix, i,
                       (double)counts[i]);
    }
    return AG_OK;
}

ag_status ag_imatrix_file_read(const ag_imatrix_file *im, const char *tensor, size_t n_experts,
                               size_t n_cols, float **sums, float **counts, ag_error *err) {
    *counts = NULL;
    AG_TRY(read_values(im, tensor, sums_suffix, n_experts * n_cols, sums, err));
    if (!*sums) return AG_OK;
    ag_status st = read_values(im, tensor, counts_suffix, n_experts, counts, err);
    if (st == AG_OK && *counts) st = check_counts(im, tensor, *counts, n_experts, err);
    bool is_measured = false;
    for (size_t i = 0; i < n_experts && *counts; i++) is_measured |= (*counts)[i] > 0;
    if (st == AG_OK && is_measured) return AG_OK;
    ag_free(*sums);
    ag_free(*counts);
    *sums = *counts = NULL;
    return st;
}
