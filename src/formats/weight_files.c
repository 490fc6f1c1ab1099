/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/weight_files.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "formats/file.h"
#include "formats/shard_index.h"
#include "memory/mapped_buffer.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char single_name[] = "model.safetensors";
static const char index_name[] = "model.safetensors.index.json";

/* Page caches hold files in folios of up to this size, aligned in the file, and map them whole. */
enum { LARGEST_FOLIO = 2 << 20 };

typedef struct weight_file {
    char *path;
    int fd;
    uint64_t bytes;
    ag_buffer *map; /* all of the file */
    ag_st_header header;
} weight_file;

struct ag_weight_files {
    char *source;
    weight_file *files;
    size_t n_files;
    const ag_source_tensor **sorted;
    size_t n_tensors;
};

/* ---- one file ---- */

static void close_file(weight_file *f) {
    ag_buffer_release(&f->map);
    if (f->fd >= 0) close(f->fd);
    ag_st_header_free(&f->header);
    ag_free(f->path);
    *f = (weight_file){.fd = -1};
}

static ag_status read_header(weight_file *f, ag_error *err) {
    unsigned char prefix[AG_ST_PREFIX] = {0};
    size_t n_json = 0;
    if (f->bytes >= sizeof prefix) {
        AG_TRY(ag_file_read_at(f->fd, f->path, 0, prefix, sizeof prefix, err));
    }
    AG_TRY(ag_st_header_bytes(prefix, f->bytes, f->path, &n_json, err));
    char *json = ag_malloc(n_json + 1);
    if (!json) {
        return AG_FAIL(err, NOMEM, "%s: no memory for its header of %zu bytes", f->path, n_json);
    }
    ag_status st = ag_file_read_at(f->fd, f->path, AG_ST_PREFIX, json, n_json, err);
    if (st == AG_OK) st = ag_st_parse(json, n_json, f->bytes, f->path, &f->header, err);
    ag_free(json);
    return st;
}

/* Takes over path, also on failure: close_file() cleans up whatever is there. */
static ag_status open_file(weight_file *f, char *path, uint32_t number, ag_error *err) {
    *f = (weight_file){.path = path, .fd = -1};
    if (!path) return AG_FAIL(err, NOMEM, "no memory for a path");
    AG_TRY(ag_file_open(path, &f->fd, &f->bytes, err));
    AG_TRY(read_header(f, err));
    for (size_t i = 0; i < f->header.n; i++) f->header.tensors[i].file = number;
    if (f->bytes > SIZE_MAX) {
        return AG_FAIL(err, LIMIT, "%s: %" PRIu64 " bytes do not fit the address space", path,
                       f->bytes);
    }
    return ag_mapped_buffer_open(f->fd, (size_t)f->bytes, path, &f->map, err);
}

/* ---- the set ---- */

static ag_status alloc_files(ag_weight_files *w, size_t n, ag_error *err) {
    w->files = ag_calloc(n, sizeof w->files[0]);
    if (!w->files) return AG_FAIL(err, NOMEM, "%s: no memory for %zu files", w->source, n);
    return AG_OK;
}

static ag_status open_single(ag_weight_files *w, const char *path, ag_error *err) {
    AG_TRY(alloc_files(w, 1, err));
    w->n_files = 1;
    return open_file(&w->files[0], ag_strdup(path), 0, err);
}

static ag_status open_shards(ag_weight_files *w, const char *dir, const char *index,
                             const ag_shard_index *x, ag_error *err) {
    AG_TRY(alloc_files(w, x->n_shards, err));
    for (size_t i = 0; i < x->n_shards; i++) {
        ag_status st =
            open_file(&w->files[w->n_files++], ag_path_join(dir, x->shards[i]), (uint32_t)i, err);
        if (st == AG_NOT_FOUND) {
            return AG_FAIL(err, FORMAT, "%s: names the shard \"%.120s\", which does not exist",
                           index, x->shards[i]);
        }
        if (st != AG_OK) return st;
    }
    return AG_OK;
}

static int by_name(const void *a, const void *b) {
    const ag_source_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static ag_status sort_tensors(ag_weight_files *w, ag_error *err) {
    size_t n = 0;
    for (size_t i = 0; i < w->n_files; i++) n += w->files[i].header.n;
    w->sorted = ag_calloc(n + 1, sizeof w->sorted[0]);
    if (!w->sorted) return AG_FAIL(err, NOMEM, "%s: no memory for %zu tensors", w->source, n);
    for (size_t i = 0; i < w->n_files; i++) {
        const ag_st_header *h = &w->files[i].header;
        for (size_t k = 0; k < h->n; k++) w->sorted[w->n_tensors++] = &h->tensors[k];
    }
    qsort(w->sorted, n, sizeof w->sorted[0], by_name);
    for (size_t i = 1; i < n; i++) {
        const ag_source_tensor *a = w->sorted[i - 1], *b = w->sorted[i];
        if (strcmp(a->name, b->name) == 0) {
            return AG_FAIL(err, FORMAT, "%s: tensor \"%.120s\" is in %.150s as well",
                           w->files[a->file].path, a->name, w->files[b->file].path);
        }
    }
    return AG_OK;
}

static ag_status check_index(const ag_weight_files *w, const char *index, const ag_shard_index *x,
                             ag_error *err) {
    for (size_t i = 0; i < x->n_entries; i++) {
        const ag_source_tensor *t = ag_weight_files_find(w, x->entries[i].tensor);
        if (!t || t->file != x->entries[i].shard) {
            return AG_FAIL(err, FORMAT, "%s: tensor \"%.120s\" should be in \"%.120s\", %s", index,
                           x->entries[i].tensor, x->shards[x->entries[i].shard],
                           t ? "but another shard holds it" : "which lacks it");
        }
    }
    return AG_OK;
}

static ag_status open_index(ag_weight_files *w, const char *dir, const char *index, ag_error *err) {
    ag_shard_index x;
    AG_TRY(ag_shard_index_load(index, &x, err));
    ag_status st = open_shards(w, dir, index, &x, err);
    if (st == AG_OK) st = sort_tensors(w, err);
    if (st == AG_OK) st = check_index(w, index, &x, err);
    ag_shard_index_free(&x);
    return st;
}

static ag_status open_directory(ag_weight_files *w, const char *dir, ag_error *err) {
    char *single = ag_path_join(dir, single_name), *index = ag_path_join(dir, index_name);
    ag_status st;
    if (!single || !index) st = AG_FAIL(err, NOMEM, "no memory for a path");
    else if (ag_file_is_named(single)) {
        st = open_single(w, single, err);
        if (st == AG_OK) st = sort_tensors(w, err);
    } else if (ag_file_is_named(index)) st = open_index(w, dir, index, err);
    else if (access(dir, X_OK) != 0) st = AG_FAIL(err, IO, "%s: %s", dir, strerror(errno));
    else st = AG_FAIL(err, NOT_FOUND, "%s: holds neither %s nor %s", dir, single_name, index_name);
    ag_free(single);
    ag_free(index);
    return st;
}

static ag_status open_path(ag_weight_files *w, ag_error *err) {
    const char *path = w->source;
    struct stat s;
    if (stat(path, &s) != 0) {
        if (errno == ENOENT) return AG_FAIL(err, NOT_FOUND, "%s: %s", path, strerror(errno));
        return AG_FAIL(err, IO, "%s: %s", path, strerror(errno));
    }
    if (S_ISDIR(s.st_mode)) return open_directory(w, path, err);
    size_t n = strlen(path);
    if (n < 5 || strcmp(path + n - 5, ".json") != 0) {
        AG_TRY(open_single(w, path, err));
        return sort_tensors(w, err);
    }
    const char *slash = strrchr(path, '/');
    char *dir = slash ? ag_strndup(path, (size_t)(slash - path) + 1) : ag_strdup(".");
    if (!dir) return AG_FAIL(err, NOMEM, "no memory for a path");
    ag_status st = open_index(w, dir, path, err);
    ag_free(dir);
    return st;
}

ag_status ag_weight_files_open(const char *path, ag_weight_files **out, ag_error *err) {
    *out = NULL;
    ag_weight_files *w = ag_calloc(1, sizeof *w);
    if (w) w->source = ag_strdup(path);
    ag_status st = w && w->source ? open_path(w, err) : AG_FAIL(err, NOMEM, "no memory for a path");
    if (st == AG_OK) *out = w;
    else ag_weight_files_destroy(w);
    return st;
}

void ag_weight_files_destroy(ag_weight_files *w) {
    if (!w) return;
    for (size_t i = 0; i < w->n_files; i++) close_file(&w->files[i]);
    ag_free(w->files);
    ag_free(w->sorted);
    ag_free(w->source);
    ag_free(w);
}

/* ---- looking things up ---- */

size_t ag_weight_files_count(const ag_weight_files *w) { return w->n_tensors; }

const ag_source_tensor *ag_weight_files_at(const ag_weight_files *w, size_t i) {
    assert(i < w->n_tensors);
    return w->sorted[i];
}

const ag_source_tensor *ag_weight_files_find(const ag_weight_files *w, const char *name) {
    const ag_source_tensor key = {.name = name}, *p = &key;
    const ag_source_tensor *const *hit =
        bsearch(&p, w->sorted, w->n_tensors, sizeof w->sorted[0], by_name);
    return hit ? *hit : NULL;
}

size_t ag_weight_files_n_files(const ag_weight_files *w) { return w->n_files; }

static const weight_file *file_at(const ag_weight_files *w, size_t file) {
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
    const weight_file *f = file_at(w, t->file);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    if (n == t->n_bytes && page < LARGEST_FOLIO) page = LARGEST_FOLIO;
    uint64_t begin = (t->offset + first) / page * page;
    uint64_t end = (t->offset + first + n + page - 1) / page * page;
    if (end > f->bytes) end = f->bytes;
    /* Advice only: where the system refuses it, the pages leave under memory pressure instead. */
    (void)madvise((char *)ag_buffer_map(f->map) + begin, (size_t)(end - begin), MADV_DONTNEED);
}

ag_status ag_weight_files_read(const ag_weight_files *w, const ag_source_tensor *t, uint64_t first,
                               void *dst, size_t n, ag_error *err) {
    const weight_file *f = file_at(w, t->file);
    if (first > t->n_bytes || n > t->n_bytes - first) {
        return AG_FAIL(err, INVALID, "%s: tensor \"%.120s\": bytes %" PRIu64 " + %zu of %" PRIu64,
                       f->path, t->name, first, n, t->n_bytes);
    }
    return ag_file_read_at(f->fd, f->path, t->offset + first, dst, n, err);
}
