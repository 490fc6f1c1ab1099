/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/weight_source.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "formats/weight_files.h"

/* The formats, one line each. The last one opens paths that no other recognises, and reports what
 * is wrong with them. */
static const ag_weight_source_ops *const formats[] = {
    &ag_gguf_ops,
    &ag_hf_directory_ops,
};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };

ag_status ag_source_open(const char *path, ag_weight_source **out, ag_error *err) {
    size_t i = 0;
    while (i + 1 < N_FORMATS && !formats[i]->recognises(path)) i++;
    *out = NULL;
    ag_weight_source *s = ag_calloc(1, formats[i]->size_bytes);
    if (!s) return AG_FAIL(err, NOMEM, "weight source");
    s->ops = formats[i];
    s->path = ag_strdup(path);
    ag_status st = s->path ? AG_OK : AG_FAIL(err, NOMEM, "weight source");
    if (st == AG_OK && s->ops->open) st = s->ops->open(s, err);
    if (st == AG_OK) *out = s;
    else ag_source_destroy(s);
    return st;
}

void ag_source_destroy(ag_weight_source *s) {
    if (!s) return;
    if (s->ops->close) s->ops->close(s);
    ag_weight_files_destroy(s->files);
    ag_free(s->path);
    ag_free(s);
}

void ag_source_text_free(ag_source_text *t) {
    ag_free(t->text);
    ag_free(t->name);
    *t = (ag_source_text){0};
}

ag_status ag_source_read_text(const ag_weight_source *s, ag_source_text_kind kind,
                              ag_source_text *out, ag_error *err) {
    *out = (ag_source_text){0};
    ag_status st = s->ops->read_text(s, kind, out, err);
    if (st != AG_OK) ag_source_text_free(out);
    return st;
}

void ag_source_vocabulary_free(ag_source_vocabulary *v) {
    ag_free(v->tokens);
    ag_free(v->scores);
    ag_free(v->types);
    ag_free(v->merges);
    *v = (ag_source_vocabulary){0};
}

ag_status ag_source_read_vocabulary(const ag_weight_source *s, ag_source_vocabulary *out,
                                    ag_error *err) {
    *out = (ag_source_vocabulary){0};
    if (!s->ops->read_vocabulary) return AG_OK;
    ag_status st = s->ops->read_vocabulary(s, out, err);
    if (st != AG_OK) ag_source_vocabulary_free(out);
    return st;
}

ag_status ag_source_open_tensors(ag_weight_source *s, ag_error *err) {
    return s->ops->open_tensors(s, err);
}

size_t ag_source_n_tensors(const ag_weight_source *s) {
    return s->files ? ag_weight_files_count(s->files) : 0;
}

const ag_source_tensor *ag_source_tensor_at(const ag_weight_source *s, size_t i) {
    return ag_weight_files_at(s->files, i);
}

const ag_source_tensor *ag_source_find(const ag_weight_source *s, const char *name) {
    return s->files ? ag_weight_files_find(s->files, name) : NULL;
}

ag_status ag_source_require(const ag_weight_source *s, const char *name,
                            const ag_source_tensor **out, ag_error *err) {
    const ag_source_tensor *t = ag_source_find(s, name);
    *out = NULL;
    if (!t) return AG_FAIL(err, NOT_FOUND, "%s: has no tensor \"%.120s\"", s->path, name);
    const char *path = ag_source_file_path(s, t->file);
    if (!ag_dtype_may_be(t->dtype, AG_DTYPE_WEIGHT)) {
        char known[AG_DTYPE_LIST];
        return AG_FAIL(err, UNSUPPORTED, "%s: tensor \"%.120s\" is %s; weights may be %s", path,
                       name, t->dtype_name, ag_dtype_list(AG_DTYPE_WEIGHT, known, sizeof known));
    }
    if (t->n_dims > AG_MAX_DIMS) {
        return AG_FAIL(err, UNSUPPORTED, "%s: tensor \"%.120s\" has %zu dims, the limit is %d",
                       path, name, t->n_dims, AG_MAX_DIMS);
    }
    *out = t;
    return AG_OK;
}

size_t ag_source_n_files(const ag_weight_source *s) {
    return s->files ? ag_weight_files_n_files(s->files) : 0;
}

const char *ag_source_file_path(const ag_weight_source *s, size_t file) {
    return ag_weight_files_path(s->files, file);
}

uint64_t ag_source_file_bytes(const ag_weight_source *s, size_t file) {
    return ag_weight_files_bytes(s->files, file);
}

ag_status ag_source_map(const ag_weight_source *s, const ag_source_tensor *t, ag_tensor *out,
                        ag_error *err) {
    return ag_weight_files_tensor(s->files, t, out, err);
}

void ag_source_drop(const ag_weight_source *s, const ag_source_tensor *t, uint64_t first,
                    uint64_t n) {
    ag_weight_files_drop(s->files, t, first, n);
}

ag_status ag_source_read(const ag_weight_source *s, const ag_source_tensor *t, uint64_t first,
                         void *dst, size_t n, ag_error *err) {
    return ag_weight_files_read(s->files, t, first, dst, n, err);
}
