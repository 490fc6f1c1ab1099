/* SPDX-License-Identifier: Apache-2.0 */
/* Copies the metadata and the tensors of a GGUF file, which may be split into parts. */
#include "convert/out_model.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "formats/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Keys that describe the source file only. quantize.c writes those of the new file. */
static const char *const excluded_keys[] = {
    "general.alignment", "general.file_type", "general.quantization_version",
    "split.no",          "split.count",       "split.tensors.count",
    "quantize.imatrix.",
};

static bool is_excluded(ag_source_string key) {
    for (size_t i = 0; i < sizeof excluded_keys / sizeof excluded_keys[0]; i++) {
        const size_t n = strlen(excluded_keys[i]);
        const bool is_prefix = excluded_keys[i][n - 1] == '.';
        if (key.n < n || (!is_prefix && key.n != n)) continue;
        if (!memcmp(key.text, excluded_keys[i], n)) return true;
    }
    return false;
}

static int in_file_order(const void *a, const void *b) {
    const ag_gguf_entry *const *x = a, *const *y = b;
    return ((*x)->first > (*y)->first) - ((*x)->first < (*y)->first);
}

static ag_status copy_metadata(ag_out_model *m, const ag_gguf *header, ag_error *err) {
    const ag_gguf_entry **list = ag_malloc((header->n_entries + 1) * sizeof *list);
    if (!list) return AG_FAIL(err, NOMEM, "keys of %s", header->path);
    for (size_t i = 0; i < header->n_entries; i++) list[i] = &header->entries[i];
    qsort(list, header->n_entries, sizeof *list, in_file_order);
    for (size_t i = 0; i < header->n_entries; i++) {
        if (!is_excluded(list[i]->key)) ag_gguf_put_entry(&m->writer, list[i]);
    }
    ag_free(list);
    return AG_OK;
}

static int by_offset(const void *a, const void *b) {
    const ag_source_tensor *x = ((const ag_out_tensor *)a)->sections[0].source;
    const ag_source_tensor *y = ((const ag_out_tensor *)b)->sections[0].source;
    if (x->file != y->file) return x->file < y->file ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static ag_status add_tensor(ag_out_model *m, const ag_source_tensor *t, ag_error *err) {
    const char *path = ag_source_file_path(m->source, t->file);
    if (t->dtype == AG_DTYPE_COUNT || !ag_dtype_may_be(t->dtype, AG_DTYPE_FLOATS)) {
        return AG_FAIL(err, UNSUPPORTED, "%s: tensor \"%s\" is %s, which cannot be converted", path,
                       t->name, t->dtype_name);
    }
    if (t->n_dims == 0 || t->n_dims > AG_MAX_DIMS) {
        return AG_FAIL(err, UNSUPPORTED, "%s: tensor \"%s\" has %zu dims", path, t->name,
                       t->n_dims);
    }
    ag_out_tensor *out = ag_out_add(m, t->name);
    if (!out) return AG_FAIL(err, NOMEM, "list of tensors of %s", path);
    out->shape = t->shape;
    const ag_out_section section = {.source = t, .rows = ag_shape_rows(&t->shape)};
    if (!ag_out_add_section(out, &section))
        return AG_FAIL(err, NOMEM, "list of tensors of %s", path);
    unsigned layer;
    if (sscanf(t->name, "blk.%u.", &layer) == 1 && layer >= m->n_layers) m->n_layers = layer + 1;
    return AG_OK;
}

ag_status ag_out_from_gguf(ag_out_model *m, ag_error *err) {
    AG_TRY(copy_metadata(m, ag_gguf_source_header(m->source), err));
    for (size_t i = 0; i < ag_source_n_tensors(m->source); i++) {
        AG_TRY(add_tensor(m, ag_source_tensor_at(m->source, i), err));
    }
    qsort(m->tensors, m->n, sizeof m->tensors[0], by_offset);
    return AG_OK;
}
