/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the safetensors files of a model: one file, or shards and their index. */
#include "core/alloc.h"
#include "core/fail.h"
#include "formats/file.h"
#include "formats/safetensors.h"
#include "formats/shard_index.h"
#include "formats/weight_files.h"
#include "platform/file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char single_name[] = "model.safetensors";
static const char index_name[] = "model.safetensors.index.json";

static ag_status read_header(ag_weight_file *f, ag_error *err) {
    unsigned char prefix[AG_ST_PREFIX] = {0};
    size_t n_json = 0;
    if (f->bytes >= sizeof prefix) {
        AG_TRY(ag_file_read_at(f->fd, f->path, 0, prefix, sizeof prefix, err));
    }
    AG_TRY(ag_st_header_bytes(prefix, f->bytes, f->path, &n_json, err));
    char *json = ag_malloc(n_json + 1);
    if (!json) { return AG_FAIL(err, NOMEM, "%s: header of %zu bytes", f->path, n_json); }
    ag_status st = ag_file_read_at(f->fd, f->path, AG_ST_PREFIX, json, n_json, err);
    if (st == AG_OK) st = ag_st_parse(json, n_json, f->bytes, f->path, &f->list, err);
    ag_free(json);
    return st;
}

/* Takes ownership of path. */
static ag_status add_file(ag_weight_files *w, char *path, ag_error *err) {
    ag_weight_file *f;
    AG_TRY(ag_weight_files_add(w, path, &f, err));
    return read_header(f, err);
}

static ag_status open_single(ag_weight_files *w, const char *path, ag_error *err) {
    AG_TRY(add_file(w, ag_strdup(path), err));
    return ag_weight_files_sort(w, err);
}

static ag_status open_shards(ag_weight_files *w, const char *dir, const char *index,
                             const ag_shard_index *x, ag_error *err) {
    for (size_t i = 0; i < x->n_shards; i++) {
        ag_status st = add_file(w, ag_path_join(dir, x->shards[i]), err);
        if (st == AG_NOT_FOUND) {
            return AG_FAIL(err, FORMAT, "%s: names the shard \"%.120s\", which does not exist",
                           index, x->shards[i]);
        }
        if (st != AG_OK) return st;
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
    if (st == AG_OK) st = ag_weight_files_sort(w, err);
    if (st == AG_OK) st = check_index(w, index, &x, err);
    ag_shard_index_free(&x);
    return st;
}

static ag_status open_directory(ag_weight_files *w, const char *dir, ag_error *err) {
    char *single = ag_path_join(dir, single_name), *index = ag_path_join(dir, index_name);
    ag_status st;
    if (!single || !index) st = AG_FAIL(err, NOMEM, "path");
    else if (ag_file_is_named(single)) {
        st = open_single(w, single, err);
    } else if (ag_file_is_named(index)) st = open_index(w, dir, index, err);
    else if (!ag_file_may_search(dir)) st = AG_FAIL(err, IO, "%s: %s", dir, strerror(errno));
    else st = AG_FAIL(err, NOT_FOUND, "%s: holds neither %s nor %s", dir, single_name, index_name);
    ag_free(single);
    ag_free(index);
    return st;
}

static ag_status open_path(ag_weight_files *w, const char *path, ag_error *err) {
    ag_file_info info;
    if (!ag_file_stat(path, &info)) {
        if (errno == ENOENT) return AG_FAIL(err, NOT_FOUND, "%s: %s", path, strerror(errno));
        return AG_FAIL(err, IO, "%s: %s", path, strerror(errno));
    }
    if (info.kind == AG_FILE_DIRECTORY) return open_directory(w, path, err);
    size_t n = strlen(path);
    if (n < 5 || strcmp(path + n - 5, ".json") != 0) return open_single(w, path, err);
    const char *slash = strrchr(path, '/');
    char *dir = slash ? ag_strndup(path, (size_t)(slash - path) + 1) : ag_strdup(".");
    if (!dir) return AG_FAIL(err, NOMEM, "path");
    ag_status st = open_index(w, dir, path, err);
    ag_free(dir);
    return st;
}

bool ag_st_is_in(const char *dir) {
    char single[PATH_MAX], index[PATH_MAX]; /* longer paths do not exist */
    snprintf(single, sizeof single, "%s/%s", dir, single_name);
    snprintf(index, sizeof index, "%s/%s", dir, index_name);
    return ag_file_is_named(single) || ag_file_is_named(index);
}

ag_status ag_st_open(const char *path, ag_weight_files **out, ag_error *err) {
    AG_TRY(ag_weight_files_create(out, err));
    ag_status st = open_path(*out, path, err);
    if (st == AG_OK) return AG_OK;
    ag_weight_files_destroy(*out);
    *out = NULL;
    return st;
}
