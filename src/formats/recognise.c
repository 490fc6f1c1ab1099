/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/recognise.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "formats/file.h"
#include "formats/safetensors.h"
#include "platform/directory.h"
#include "platform/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char needed[] = "this version reads GGUF files, and a directory with config.json and "
                             "F32, F16 or BF16 weights in model.safetensors";

/* End of the names of a split model's files. */
static const char shard_end[] = "-%05u-of-%05u.gguf";
enum { N_SHARD_END = sizeof "-00001-of-00001.gguf" - 1 };

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

/* ---- missing paths ---- */

static ag_status not_found(const char *path, ag_error *err) {
    if (ag_file_is_named(path)) {
        return AG_FAIL(err, NOT_FOUND, "%s: is a link to a file that does not exist", path);
    }
    return AG_FAIL(err, NOT_FOUND, "%s: %s", path, strerror(ENOENT));
}

/* ---- files ---- */

static bool begins_with(const char *path, const char *magic) {
    int fd;
    uint64_t size;
    char first[8];
    size_t n = strlen(magic);
    if (ag_file_open(path, &fd, &size, NULL) != AG_OK) return false;
    bool same = size >= n && ag_file_read_at(fd, path, 0, first, n, NULL) == AG_OK &&
                memcmp(first, magic, n) == 0;
    ag_fd_close(fd);
    return same;
}

static ag_status reject_file(const char *path, ag_error *err) {
    if (begins_with(path, "PK\3\4") || ends_with(path, ".pth") || ends_with(path, ".pt")) {
        return AG_FAIL(err, UNSUPPORTED, "%s: is a PyTorch checkpoint; %s", path, needed);
    }
    if (ends_with(path, ".safetensors") || ends_with(path, ".json")) {
        return AG_FAIL(err, UNSUPPORTED,
                       "%s: is one file of a model: give the directory that holds it", path);
    }
    return AG_FAIL(err, UNSUPPORTED, "%s: is not a model; %s", path, needed);
}

/* ---- directories ---- */

/* File names that identify a directory's format, the best evidence first. */
static const struct kind {
    const char *begin, *end; /* start and end of a file name */
    const char *what;
} kinds[] = {
    {"adapter_config", ".json",
     "an adapter without its model: merge it into the model and save that as safetensors"},
    {"", ".gguf", "a part of a GGUF model without the first part or the text model"},
    {"pytorch_model", ".bin", "PyTorch weights: save them again as safetensors"},
    {"consolidated", "", "weights in their maker's own layout: take the Hugging Face files"},
    {"", ".pth", "PyTorch weights: save them again as safetensors"},
    {"", ".pt", "PyTorch weights: save them again as safetensors"},
    {"tf_model", ".h5", "TensorFlow weights: save them again as safetensors"},
    {"saved_model", ".pb", "TensorFlow weights: save them again as safetensors"},
    {"flax_model", ".msgpack", "Flax weights: save them again as safetensors"},
    {"", ".npz", "MLX weights in NumPy's format: take the original model"},
    {"", ".onnx", "an ONNX graph: take the original model"},
    {"snapshots", "", "the cache of a downloading tool: give the directory in its snapshots"},
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

static size_t kind_of(const char *name) {
    size_t i = 0;
    for (; i < N_KINDS; i++) {
        const struct kind *k = &kinds[i];
        if (!strncmp(name, k->begin, strlen(k->begin)) && ends_with(name, k->end)) break;
    }
    return i;
}

static ag_status reject_directory(const char *path, ag_error *err) {
    size_t best = N_KINDS;
    char found[256] = "", **names;
    size_t n;
    bool has_config = false;
    if (ag_st_is_in(path)) return AG_OK;
    if (!ag_directory_list(path, NULL, &names, &n)) return AG_OK; /* opening its files fails */
    for (size_t i = 0; i < n; i++) {
        size_t kind = kind_of(names[i]);
        has_config = has_config || !strcmp(names[i], "config.json");
        if (kind >= best) continue;
        best = kind;
        snprintf(found, sizeof found, "%s", names[i]);
    }
    ag_directory_free(names, n);
    if (best == N_KINDS && has_config) return AG_OK;
    if (best == N_KINDS) {
        return AG_FAIL(err, NOT_FOUND,
                       "%s: is not a model: it holds neither config.json nor a .gguf file", path);
    }
    return AG_FAIL(err, UNSUPPORTED, "%s: holds %s (%s); %s", path, kinds[best].what, found,
                   needed);
}

/* ---- GGUF ---- */

bool ag_recognise_gguf_shard(const char *path, unsigned *shard, unsigned *n_shards) {
    const size_t n = strlen(path);
    if (n < N_SHARD_END || !ends_with(path, ".gguf")) return false;
    const char *end = path + n - N_SHARD_END;
    if (sscanf(end, "-%5u-of-%5u", shard, n_shards) != 2) return false;
    char again[64];
    snprintf(again, sizeof again, shard_end, *shard, *n_shards);
    return strcmp(end, again) == 0 && *shard >= 1 && *shard <= *n_shards;
}

char *ag_recognise_gguf_sibling(const char *path, unsigned shard) {
    unsigned unused, n_shards = 0;
    const size_t n = strlen(path);
    char *sibling = ag_strdup(path);
    if (sibling && ag_recognise_gguf_shard(path, &unused, &n_shards)) {
        snprintf(sibling + n - N_SHARD_END, N_SHARD_END + 1, shard_end, shard, n_shards);
    }
    return sibling;
}

/* Returns whether a name stands for one model: a first shard, and not an image encoder. */
static bool names_gguf_model(const char *name) {
    unsigned shard = 1, n_shards;
    return ends_with(name, ".gguf") && strncmp(name, "mmproj", 6) != 0 &&
           (!ag_recognise_gguf_shard(name, &shard, &n_shards) || shard == 1);
}

/* Returns the number of models in a directory, or -1 with errno. Sets *file to the path of the
 * first and writes all names to names[cap]; both may be NULL. */
static int find_gguf(const char *dir, char **file, char *names, size_t cap) {
    char **found;
    size_t n, at = 0;
    if (!ag_directory_list(dir, names_gguf_model, &found, &n)) return -1;
    if (n && file) *file = ag_path_join(dir, found[0]);
    for (size_t i = 0; i < n && at < cap; i++) {
        at += (size_t)snprintf(names + at, cap - at, "%s%s", i ? ", " : "", found[i]);
    }
    ag_directory_free(found, n);
    return (int)n;
}

bool ag_recognise_gguf(const char *path) {
    ag_file_info info;
    if (!ag_file_stat(path, &info)) return false;
    if (info.kind == AG_FILE_REGULAR) return ends_with(path, ".gguf") || begins_with(path, "GGUF");
    return info.kind == AG_FILE_DIRECTORY && !ag_st_is_in(path) &&
           find_gguf(path, NULL, NULL, 0) > 0;
}

ag_status ag_recognise_gguf_file(const char *path, char **file, ag_error *err) {
    ag_file_info info;
    char names[240];
    *file = NULL;
    if (!ag_file_stat(path, &info)) return AG_FAIL(err, IO, "%s: %s", path, strerror(errno));
    if (info.kind != AG_FILE_DIRECTORY) {
        *file = ag_recognise_gguf_sibling(path, 1);
        return *file ? AG_OK : AG_FAIL(err, NOMEM, "path");
    }
    const int n = find_gguf(path, file, names, sizeof names);
    if (n < 0) return AG_FAIL(err, IO, "%s: %s", path, strerror(errno));
    if (n == 1 && *file) return AG_OK;
    ag_free(*file);
    *file = NULL;
    if (n <= 1) return AG_FAIL(err, NOMEM, "path");
    return AG_FAIL(err, UNSUPPORTED, "%s: holds %d GGUF models, give the file of one: %s", path, n,
                   names);
}

/* ---- public functions ---- */

ag_status ag_recognise_path(const char *path, ag_error *err) {
    ag_file_info info;
    return !ag_file_stat(path, &info) && errno == ENOENT ? not_found(path, err) : AG_OK;
}

ag_status ag_recognise_model(const char *path, ag_error *err) {
    ag_file_info info;
    AG_TRY(ag_recognise_path(path, err));
    if (!ag_file_stat(path, &info)) return AG_OK; /* opening its files fails */
    if (info.kind == AG_FILE_REGULAR) return reject_file(path, err);
    if (info.kind == AG_FILE_DIRECTORY) return reject_directory(path, err);
    return AG_FAIL(err, UNSUPPORTED, "%s: is not a model; %s", path, needed);
}

ag_status ag_recognise_quantised(const json_t *config, const char *where, ag_error *err) {
    static const char *const keys[] = {"quantization_config", "compression_config", "quantization"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *q = json_object_get(config, keys[i]);
        if (!q || json_is_null(q)) continue;
        const char *method = json_string_value(json_object_get(q, "quant_method"));
        if (!method) method = i == 2 ? "mlx" : "unknown";
        if (i == 0 && !strcmp(method, "mxfp4")) continue;
        return AG_FAIL(err, UNSUPPORTED,
                       "%s: has a %s: its weights are quantised (method %.40s); only F32, "
                       "F16 and BF16 weights are supported: use the original model",
                       where, keys[i], method);
    }
    return AG_OK;
}
