/* SPDX-License-Identifier: Apache-2.0 */
#include "head_file.h"

#include "../command.h"
#include "../options/options.h"
#include "../support/json_out.h"
#include "../terminal/output.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MAX_HEADS = 16384 };
static const char FORMAT[] = "antigravity head budget 1";

/* The last file read. */
static struct {
    const char *path; /* from the command line */
    head_table table;
    float shares[MAX_HEADS];
    size_t n;
} file;

/* ---- reading ---- */

static bool is_known(const char *key) {
    static const char *const known[] = {"format", "tokens", "layers"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(key, known[i])) return true;
    return false;
}

static bool read_head(const json_t *value, size_t layer, size_t head, double *sum, char *message) {
    const double share = json_is_number(value) ? json_number_value(value) : -1;
    if (!(share >= 0 && share <= 1))
        return reject(message, "%.120s: layers[%zu][%zu]: must be a share from 0 to 1", file.path,
                      layer, head);
    if (file.n == MAX_HEADS)
        return reject(message, "%.120s: layers[%zu]: more than %d heads", file.path, layer,
                      MAX_HEADS);
    file.shares[file.n++] = (float)share;
    *sum += share;
    return true;
}

static bool read_layer(const json_t *heads, size_t layer, char *message) {
    const size_t n = json_array_size(heads);
    double sum = 0;
    if (!n)
        return reject(message, "%.120s: layers[%zu]: must be a list of shares", file.path, layer);
    for (size_t h = 0; h < n; h++)
        if (!read_head(json_array_get(heads, h), layer, h, &sum, message)) return false;
    file.table.n_heads[layer] = (uint32_t)n;
    if (fabs(sum - 1) < 0.01) return true;
    return reject(message, "%.120s: layers[%zu]: the shares add up to %.4g, not 1", file.path,
                  layer, sum);
}

static bool read_root(const json_t *root, char *message) {
    const json_t *format = json_object_get(root, "format");
    const json_t *layers = json_object_get(root, "layers");
    const size_t n = json_array_size(layers);
    const char *key;
    json_t *value;
    if (!json_is_string(format) || strcmp(json_string_value(format), FORMAT) != 0)
        return reject(message, "%.120s: format: must be \"%s\"", file.path, FORMAT);
    json_object_foreach((json_t *)(uintptr_t)root, key, value) {
        if (is_known(key)) continue;
        return reject(message, "%.120s: unknown field '%.40s'", file.path, key);
    }
    if (!n || n > HEAD_FILE_LAYERS)
        return reject(message, "%.120s: layers: must be a list of 1 to %d lists of shares",
                      file.path, HEAD_FILE_LAYERS);
    file.table.n_layers = (uint32_t)n;
    for (size_t l = 0; l < n; l++)
        if (!read_layer(json_array_get(layers, l), l, message)) return false;
    return true;
}

bool head_file_read(ag_eviction_params *p, const char *path, char *message) {
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    file.path = path;
    file.n = 0;
    if (!root && error.line > 0)
        snprintf(message, MESSAGE_SIZE, "%.120s: line %d: %.80s", path, error.line, error.text);
    else if (!root) snprintf(message, MESSAGE_SIZE, "%.200s", error.text);
    const bool done = root && read_root(root, message);
    json_decref(root);
    if (!done) return false;
    p->head_budget = AG_HEAD_BUDGET_SHARES;
    p->head_shares = file.shares;
    p->n_head_shares = file.n;
    return true;
}

/* ---- a model ---- */

/* Returns how many layers of the file have n_heads heads. */
static uint32_t layers_with(uint32_t n_heads) {
    uint32_t n = 0;
    for (uint32_t l = 0; l < file.table.n_layers; l++) n += file.table.n_heads[l] == n_heads;
    return n;
}

static uint32_t model_layers_with(const ag_model_info *info, uint32_t n_heads) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < info->n_layer_kinds; k++) {
        const ag_layer_kind *kind = &info->layer_kinds[k];
        if (kind->n_kv_heads == n_heads) n += kind->n_kv_layers;
    }
    return n;
}

int head_file_fits(const ag_eviction_params *p, const ag_model_info *info) {
    uint32_t layers = 0, heads = 0;
    if (p->head_budget != AG_HEAD_BUDGET_SHARES) return EXIT_DONE;
    for (uint32_t k = 0; k < info->n_layer_kinds; k++) {
        const ag_layer_kind *kind = &info->layer_kinds[k];
        layers += kind->n_kv_layers;
        heads += kind->n_kv_layers * kind->n_kv_heads;
    }
    if (layers == file.table.n_layers && heads == file.n) {
        for (uint32_t l = 0; l < layers; l++) {
            const uint32_t n = file.table.n_heads[l], has = model_layers_with(info, n);
            if (layers_with(n) == has) continue;
            return complain_usage("%s: layers[%" PRIu32 "] has shares of %" PRIu32
                                  " KV heads, as %" PRIu32 " layers have; in the model %" PRIu32
                                  " have that number",
                                  file.path, l, n, layers_with(n), has);
        }
        return EXIT_DONE;
    }
    return complain_usage("%s: shares of %" PRIu32
                          " layers with %zu KV heads; the model has %" PRIu32 " with %" PRIu32,
                          file.path, file.table.n_layers, file.n, layers, heads);
}

/* ---- writing ---- */

json_t *head_file_of(const head_table *t, const float *shares, size_t n_tokens) {
    json_t *layers = json_array();
    for (uint32_t l = 0; l < t->n_layers && layers; l++) {
        json_t *heads = json_array();
        for (uint32_t h = 0; h < t->n_heads[l]; h++) json_append(&heads, json_float(*shares++));
        json_append(&layers, heads);
    }
    return JSON_OBJECT({"format", json_string(FORMAT)},
                       {"tokens", json_integer((json_int_t)n_tokens)}, {"layers", layers});
}
