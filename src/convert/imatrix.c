/* SPDX-License-Identifier: Apache-2.0 */
/* Sums the squares of the inputs of a model's matrices while its sessions decode. */
#include "convert/imatrix_file.h"
#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/fail.h"
#include "formats/gguf_writer.h"
#include "models/model_impl.h"

#include <antigravity/quantize.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef struct entry {
    char name[AG_GGUF_MAX_NAME + 1]; /* the name of the GGUF tensor */
    ag_layer_tensor tensor;          /* its number in the layer */
    size_t cols;
    ag_row_order columns; /* the position of each column in the file; file_rows 0: unchanged */
    size_t n_experts;     /* 1: the tensor is one matrix */
    double *sums;         /* owned; [n_experts][cols] */
    double *counts;       /* owned; [n_experts] the number of rows in the sums */
} entry;

struct ag_imatrix {
    ag_model *model; /* borrowed */
    entry *entries;  /* owned; grouped by layer */
    size_t *first;   /* owned; [n_layers + 1] the index of each layer's first entry */
};

/* ---- measurement ---- */

static ag_status add_layer(ag_imatrix *im, const ag_model_spec *gguf, uint32_t layer, size_t *n,
                           ag_error *err) {
    const ag_layer_spec *kind = ag_spec_layer(gguf, layer);
    im->first[layer] = *n;
    for (size_t i = 0; i < ag_layer_weight_count(gguf, layer); i++) {
        const ag_weight_spec w = ag_layer_weight(gguf, layer, i);
        /* Matrices that all layers share are small and are not quantised. */
        if (w.kind != AG_WEIGHT_MATRIX || strncmp(w.name, "blk.", 4) != 0) continue;
        /* Weights that form one tensor of the file have the same input. */
        size_t k = im->first[layer];
        while (k < *n && strcmp(im->entries[k].name, w.name) != 0) k++;
        if (k < *n) continue;
        entry *e = &im->entries[*n];
        e->tensor = w.tensor;
        if (w.tensor == AG_LT_DELTA_OUT && ag_spec_is_regrouped(gguf, kind)) {
            e->columns = ag_delta_value_order(kind);
        }
        e->cols = w.cols;
        snprintf(e->name, sizeof e->name, "%.*s", AG_GGUF_MAX_NAME, w.name);
        e->n_experts = w.n_experts ? w.n_experts : 1;
        e->sums = ag_calloc(e->n_experts * w.cols, sizeof *e->sums);
        e->counts = ag_calloc(e->n_experts, sizeof *e->counts);
        ++*n;
        if (!e->sums || !e->counts) return AG_FAIL(err, NOMEM, "sums of %s", w.name);
    }
    im->first[layer + 1] = *n;
    return AG_OK;
}

static ag_status list_entries(ag_imatrix *im, ag_error *err) {
    ag_model_spec *gguf = ag_malloc(sizeof *gguf);
    const uint32_t n_layers = im->model->spec.n_layers;
    size_t n = 0;
    im->first = ag_calloc(n_layers + (size_t)1, sizeof *im->first);
    im->entries = ag_calloc(n_layers * (size_t)AG_LAYER_TENSORS, sizeof *im->entries);
    ag_status st = gguf && im->first && im->entries
                       ? AG_OK
                       : AG_FAIL(err, NOMEM, "list of %u layers", n_layers);
    if (st == AG_OK) {
        *gguf = im->model->spec;
        ag_spec_name_as_gguf(gguf);
    }
    for (uint32_t l = 0; l < n_layers && st == AG_OK; l++) st = add_layer(im, gguf, l, &n, err);
    ag_free(gguf);
    return st;
}

static size_t n_entries(const ag_imatrix *im) { return im->first[im->model->spec.n_layers]; }

static entry *entry_of(const ag_imatrix *im, size_t layer, size_t tensor) {
    for (size_t i = im->first[layer]; i < im->first[layer + 1]; i++) {
        if (im->entries[i].tensor == tensor) return &im->entries[i];
    }
    return NULL;
}

/* Finds the matrix of an expert. */
static entry *find_expert(const ag_imatrix *im, const ag_tensor *w, size_t *expert) {
    const ag_model *m = im->model;
    for (uint32_t l = 0; l < m->spec.n_layers && m->weights.experts; l++) {
        const size_t n = ag_spec_layer(&m->spec, l)->experts.route.n_experts;
        const ag_tensor *first = m->weights.experts[l];
        if (!first || w < first || w >= first + n * AG_EXPERT_TABLES) continue;
        *expert = (size_t)(w - first) % n;
        return entry_of(im, l, AG_LT_EXPERT_GATE + (size_t)(w - first) / n);
    }
    return NULL;
}

/* Returns NULL if w is no tensor of a layer, such as the output matrix. */
static entry *find_entry(const ag_imatrix *im, const ag_tensor *w, size_t *expert) {
    const ag_model *m = im->model;
    const ag_tensor *first = m->weights.layers[0].of;
    *expert = 0;
    if (w < first || w >= first + (size_t)m->spec.n_layers * AG_LAYER_TENSOR_SLOTS)
        return find_expert(im, w, expert);
    return entry_of(im, (size_t)(w - first) / AG_LAYER_TENSOR_SLOTS,
                    (size_t)(w - first) % AG_LAYER_TENSOR_SLOTS);
}

static void observe(void *user, const ag_tensor *x, size_t first, size_t n, const ag_tensor *w) {
    size_t expert;
    entry *e = find_entry(user, w, &expert);
    const float *row = ag_tensor_f32(x);
    if (!e || !row) return;
    double *sums = e->sums + expert * e->cols;
    row += first * e->cols;
    for (size_t r = 0; r < n; r++, row += e->cols) {
        for (size_t i = 0; i < e->cols; i++) {
            sums[ag_row_order_at(&e->columns, i)] += (double)row[i] * (double)row[i];
        }
    }
    e->counts[expert] += (double)n;
}

ag_status ag_imatrix_create(ag_model *m, ag_imatrix **out, ag_error *err) {
    *out = NULL;
    if (strcmp(ag_backend_name(m->backend), "cpu") != 0) {
        return AG_FAIL(err, UNSUPPORTED, "backend %s: importance can only be measured on the CPU",
                       ag_backend_name(m->backend));
    }
    if (m->backend->observe)
        return AG_FAIL(err, INVALID, "another importance matrix already measures this backend");
    ag_imatrix *im = ag_calloc(1, sizeof *im);
    if (!im) return AG_FAIL(err, NOMEM, "importance matrix");
    im->model = m;
    const ag_status st = list_entries(im, err);
    if (st != AG_OK) {
        ag_imatrix_destroy(im);
        return st;
    }
    m->backend->observe = observe;
    m->backend->observe_user = im;
    *out = im;
    return AG_OK;
}

void ag_imatrix_destroy(ag_imatrix *im) {
    if (!im) return;
    if (im->model->backend->observe_user == im) {
        im->model->backend->observe = NULL;
        im->model->backend->observe_user = NULL;
    }
    const size_t max = im->model->spec.n_layers * (size_t)AG_LAYER_TENSORS;
    for (size_t i = 0; im->entries && i < max; i++) {
        ag_free(im->entries[i].sums);
        ag_free(im->entries[i].counts);
    }
    ag_free(im->entries);
    ag_free(im->first);
    ag_free(im);
}

uint64_t ag_imatrix_tokens(const ag_imatrix *im) {
    double max = 0;
    for (size_t i = 0; i < n_entries(im); i++) {
        const entry *e = &im->entries[i];
        for (size_t k = 0; k < e->n_experts; k++) max = e->counts[k] > max ? e->counts[k] : max;
    }
    return (uint64_t)max;
}

/* ---- files ---- */

ag_status ag_imatrix_add_file(ag_imatrix *im, const char *path, ag_error *err) {
    ag_imatrix_file file;
    AG_TRY(ag_imatrix_file_open(&file, path, err));
    ag_status st = AG_OK;
    /* The first pass checks the whole file; the second adds it. */
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < n_entries(im) && st == AG_OK; i++) {
            entry *e = &im->entries[i];
            float *sums, *counts;
            st = ag_imatrix_file_read(&file, e->name, e->n_experts, e->cols, &sums, &counts, err);
            for (size_t k = 0; k < e->n_experts * e->cols && sums && pass; k++)
                e->sums[k] += (double)sums[k];
            for (size_t k = 0; k < e->n_experts && sums && pass; k++)
                e->counts[k] += (double)counts[k];
            ag_free(sums);
            ag_free(counts);
        }
    }
    ag_imatrix_file_close(&file);
    return st;
}

static void declare_tensors(ag_gguf_writer *w, const entry *e) {
    char name[AG_GGUF_MAX_NAME + 16];
    const ag_shape sums = ag_shape_2d(e->n_experts, e->cols), counts = ag_shape_2d(e->n_experts, 1);
    snprintf(name, sizeof name, "%s.in_sum2", e->name);
    ag_gguf_add_tensor(w, name, AG_F32, &sums);
    snprintf(name, sizeof name, "%s.counts", e->name);
    ag_gguf_add_tensor(w, name, AG_F32, &counts);
}

static ag_status write_entry(ag_gguf_writer *w, const entry *e, ag_error *err) {
    for (size_t i = 0; i < e->n_experts * e->cols; i++) {
        const float sum = (float)e->sums[i];
        AG_TRY(ag_gguf_write(w, &sum, sizeof sum, err));
    }
    AG_TRY(ag_gguf_end_tensor(w, err));
    for (size_t i = 0; i < e->n_experts; i++) {
        const float count = (float)e->counts[i];
        AG_TRY(ag_gguf_write(w, &count, sizeof count, err));
    }
    return ag_gguf_end_tensor(w, err);
}

static bool is_measured(const entry *e) {
    for (size_t i = 0; i < e->n_experts; i++) {
        if (e->counts[i] > 0) return true;
    }
    return false;
}

ag_status ag_imatrix_save(const ag_imatrix *im, const char *path, const char *dataset,
                          uint32_t window, ag_error *err) {
    ag_gguf_writer w = {0};
    const ag_source_string text = {dataset, strlen(dataset)};
    const uint64_t n_tokens = ag_imatrix_tokens(im);
    if (n_tokens == 0) return AG_FAIL(err, INVALID, "%s: no tokens were measured", path);
    ag_gguf_put_string(&w, "general.type", (ag_source_string){"imatrix", 7});
    ag_gguf_put_strings(&w, "imatrix.datasets", &text, 1);
    ag_gguf_put_u32(&w, "imatrix.chunk_count",
                    (uint32_t)(window ? (n_tokens + window - 1) / window : 1));
    ag_gguf_put_u32(&w, "imatrix.chunk_size", window);
    for (size_t i = 0; i < n_entries(im); i++) {
        if (is_measured(&im->entries[i])) declare_tensors(&w, &im->entries[i]);
    }
    ag_status st = ag_gguf_writer_open(&w, path, err);
    for (size_t i = 0; i < n_entries(im) && st == AG_OK; i++) {
        if (is_measured(&im->entries[i])) st = write_entry(&w, &im->entries[i], err);
    }
    if (st == AG_OK) st = ag_gguf_writer_commit(&w, err);
    ag_gguf_writer_close(&w);
    return st;
}
