/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/weight_files.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "formats/file.h"
#include "memory/mapped_buffer.h"
#include "platform/file.h"
#include "platform/map.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The page cache holds files in folios of up to this size, aligned in the file, and maps entire
 * folios. */
enum { LARGEST_FOLIO = 2 << 20 };
/* A page fault maps pages around it, aligned in memory, so also before and after dropped pages. */
enum { FAULT_AROUND = 64 << 10 };

struct ag_weight_files {
    ag_weight_file *files;
    size_t n_files;
    const ag_source_tensor **sorted;
    size_t n_tensors;
};

/* ---- the set ---- */

ag_status ag_weight_files_create(ag_weight_files **out, ag_error *err) {
    *out = ag_calloc(1, sizeof **out);
    return *out ? AG_OK : AG_FAIL(err, NOMEM, "list of weight files");
}

static ag_status open_file(ag_weight_file *f, ag_error *err) {
    AG_TRY(ag_file_open(f->path, &f->fd, &f->bytes, err));
    if (f->bytes > SIZE_MAX) {
        return AG_FAIL(err, LIMIT, "%s: %" PRIu64 " bytes do not fit the address space", f->path,
                       f->bytes);
    }
    return ag_mapped_buffer_open(f->fd, (size_t)f->bytes, f->path, &f->map, err);
}

ag_status ag_weight_files_add(ag_weight_files *w, char *path, ag_weight_file **out, ag_error *err) {
    *out = NULL;
    if (!path) return AG_FAIL(err, NOMEM, "path of a weight file");
    ag_weight_file *files = ag_realloc(w->files, (w->n_files + 1) * sizeof files[0]);
    if (!files) {
        ag_status st = AG_FAIL(err, NOMEM, "%s: list of weight files", path);
        ag_free(path);
        return st;
    }
    w->files = files;
    *out = &files[w->n_files++];
    **out = (ag_weight_file){.path = path, .fd = -1};
    return open_file(*out, err);
}

static int by_name(const void *a, const void *b) {
    const ag_source_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static ag_status two_of_one_name(const ag_weight_files *w, const ag_source_tensor *a,
                                 const ag_source_tensor *b, ag_error *err) {
    if (a->file == b->file) {
        return AG_FAIL(err, FORMAT,
                       "%s: tensor \"%.120s\" occurs twice, at byte %" PRIu64 " and %" PRIu64,
                       w->files[a->file].path, a->name, a->offset, b->offset);
    }
    return AG_FAIL(err, FORMAT, "%s: tensor \"%.120s\" is also in %.150s", w->files[a->file].path,
                   a->name, w->files[b->file].path);
}

ag_status ag_weight_files_sort(ag_weight_files *w, ag_error *err) {
    size_t n = 0;
    for (size_t i = 0; i < w->n_files; i++) n += w->files[i].list.n;
    const ag_source_tensor **sorted = ag_calloc(n + 1, sizeof sorted[0]);
    if (!sorted) return AG_FAIL(err, NOMEM, "list of %zu tensors", n);
    w->sorted = sorted;
    for (size_t i = 0; i < w->n_files; i++) {
        const ag_tensor_list *l = &w->files[i].list;
        for (size_t k = 0; k < l->n; k++) {
            l->tensors[k].file = (uint32_t)i;
            w->sorted[w->n_tensors++] = &l->tensors[k];
        }
    }
    qsort(w->sorted, n, sizeof w->sorted[0], by_name);
    for (size_t i = 1; i < n; i++) {
        const ag_source_tensor *a = w->sorted[i - 1], *b = w->sorted[i];
        if (strcmp(a->name, b->name) == 0) return two_of_one_name(w, a, b, err);
    }
    return AG_OK;
}

void ag_weight_files_destroy(ag_weight_files *w) {
    if (!w) return;
    for (size_t i = 0; i < w->n_files; i++) {
        ag_weight_file *f = &w->files[i];
        ag_buffer_release(&f->map);
        if (f->fd >= 0) ag_fd_close(f->fd);
        ag_tensor_list_free(&f->list);
        ag_free(f->path);
    }
    ag_free(w->files);
    ag_free(w->sorted);
    ag_free(w);
}

/* ---- queries ---- */

size_t ag_weight_files_count(const ag_weight_files *w) { return w->n_tensors; }

const ag_source_tensor *ag_weight_files_at(const ag_weight_files *w, size_t i) {
    assert(i < w->n_tensors);
    return w->sorted[i];
}

const ag_source_tensor *ag_weight_files_find(const ag_weight_files *w, const char *name) {
    const ag_source_tensor key = {.name = name}, *p = &key;
    if (w->n_tensors == 0) return NULL; /* not sorted yet */
    const ag_source_tensor *const *hit =
        bsearch(&p, w->sorted, w->n_tensors, sizeof w->sorted[0], by_name);
    return hit ? *hit : NULL;
}

size_t ag_weight_files_n_files(const ag_weight_files *w) { return w->n_files; }

static const ag_weight_file *file_at(const ag_weight_files *w, size_t file) {
    assert(file < w->n_files);
    return &w->files[file];
}

const char *ag_weight_files_path(const ag_weight_files *w, size_t file) {
    return file_at(w, file)->path;
}

uint64_t ag_weight_files_bytes(const ag_weight_files *w, size_t file) {
    return file_at(w, file)->bytes;
}

/* ---- bytes ---- */

ag_status ag_weight_files_tensor(const ag_weight_files *w, const ag_source_tensor *t,
                                 ag_tensor *out, ag_error *err) {
    return ag_tensor_make(out, t->dtype, t->shape, file_at(w, t->file)->map, (size_t)t->offset,
                          err);
}

void ag_weight_files_drop(const ag_weight_files *w, const ag_source_tensor *t, uint64_t first,
                          uint64_t n) {
    if (first >= t->n_bytes || n == 0) return;
    if (n > t->n_bytes - first) n = t->n_bytes - first;
    const ag_weight_file *f = file_at(w, t->file);
    uint64_t page = ag_page_size();
    const bool entire = n == t->n_bytes;
    if (entire && page < LARGEST_FOLIO) page = LARGEST_FOLIO;
    uint64_t begin = (t->offset + first) / page * page;
    uint64_t end = (t->offset + first + n + page - 1) / page * page;
    if (entire) begin -= begin < FAULT_AROUND ? begin : FAULT_AROUND;
    if (entire) end += FAULT_AROUND;
    if (end > f->bytes) end = f->bytes;
    ag_pages_drop(ag_buffer_map(f->map), (size_t)begin, (size_t)end);
}

ag_status ag_weight_files_read(const ag_weight_files *w, const ag_source_tensor *t, uint64_t first,
                               void *dst, size_t n, ag_error *err) {
    const ag_weight_file *f = file_at(w, t->file);
    if (first > t->n_bytes || n > t->n_bytes - first) {
        return AG_FAIL(err, INVALID, "%s: tensor \"%.120s\": bytes %" PRIu64 " + %zu of %" PRIu64,
                       f->path, t->name, first, n, t->n_bytes);
    }
    return ag_file_read_at(f->fd, f->path, t->offset + first, dst, n, err);
}
