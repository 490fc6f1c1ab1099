/* SPDX-License-Identifier: Apache-2.0 */
/* The input is a safetensors file, or the size of its data and its header. An accepted file
 * must hold what its header promises. */
#include "fuzz.h"

#include "formats/safetensors.h"

#include <stdlib.h>
#include <string.h>

static void *exact_copy(const uint8_t *data, size_t n) {
    void *copy = malloc(n ? n : 1);
    if (!copy) abort();
    if (n) memcpy(copy, data, n);
    return copy;
}

static void check(const ag_tensor_list *h, size_t n_json, uint64_t n) {
    uint64_t at = AG_ST_PREFIX + n_json;
    for (size_t i = 0; i < h->n; i++) {
        const ag_source_tensor *t = &h->tensors[i];
        if (t->offset != at || t->n_bytes > n - at) abort();
        size_t block = t->dtype == AG_F32 ? 4 : t->dtype == AG_BF16 ? 2 : 0;
        size_t rows = 1;
        for (int k = 0; k < t->shape.n_dims; k++) rows *= t->shape.dim[k];
        if (block && t->n_dims <= AG_MAX_DIMS && rows * block != t->n_bytes) abort();
        if (strlen(t->name) > n_json || !t->dtype_name) abort();
        at += t->n_bytes;
    }
    if (at != n) abort();
}

static void parse(const uint8_t *data, size_t n_json, uint64_t file_bytes) {
    char *json = exact_copy(data, n_json);
    ag_error err;
    ag_tensor_list h;
    ag_status st = ag_st_parse(json, n_json, file_bytes, "input", &h, &err);
    free(json);
    if (st == AG_OK) check(&h, n_json, file_bytes);
    ag_tensor_list_free(&h);
}

static void parse_file(const uint8_t *data, size_t n) {
    size_t n_prefix = n < AG_ST_PREFIX ? n : AG_ST_PREFIX, n_json = 0;
    ag_error err;
    void *prefix = exact_copy(data, n_prefix);
    ag_status st = ag_st_header_bytes(prefix, n, "input", &n_json, &err);
    free(prefix);
    if (st == AG_OK) parse(data + AG_ST_PREFIX, n_json, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    parse_file(data, n);
    /* A mutated header rarely keeps its length: so the same bytes once more as two bytes of data
     * size and a header of the right length. */
    if (n >= 2) parse(data + 2, n - 2, AG_ST_PREFIX + (n - 2) + (data[0] | data[1] << 8));
    return 0;
}
