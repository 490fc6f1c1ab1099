/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/safetensors.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "core/little_endian.h"
#include "formats/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char metadata_key[] = "__metadata__";

typedef struct st_dtype {
    const char *name;
    unsigned bits;
    ag_dtype dtype;
} st_dtype;

static const st_dtype st_dtypes[] = {
    {"F32", 32, AG_F32},
    {"BF16", 16, AG_BF16},
    {"F16", 16, AG_F16},
    {"I32", 32, AG_I32},
    {"U8", 8, AG_U8},
    {"BOOL", 8, AG_DTYPE_COUNT},
    {"F4", 4, AG_DTYPE_COUNT},
    {"F6_E2M3", 6, AG_DTYPE_COUNT},
    {"F6_E3M2", 6, AG_DTYPE_COUNT},
    {"I8", 8, AG_DTYPE_COUNT},
    {"F8_E5M2", 8, AG_DTYPE_COUNT},
    {"F8_E4M3", 8, AG_DTYPE_COUNT},
    {"F8_E8M0", 8, AG_DTYPE_COUNT},
    {"F8_E5M2FNUZ", 8, AG_DTYPE_COUNT},
    {"F8_E4M3FNUZ", 8, AG_DTYPE_COUNT},
    {"I16", 16, AG_DTYPE_COUNT},
    {"U16", 16, AG_DTYPE_COUNT},
    {"U32", 32, AG_DTYPE_COUNT},
    {"I64", 64, AG_DTYPE_COUNT},
    {"U64", 64, AG_DTYPE_COUNT},
    {"F64", 64, AG_DTYPE_COUNT},
    {"C64", 64, AG_DTYPE_COUNT},
};

static const st_dtype *find_dtype(const char *name) {
    for (size_t i = 0; i < sizeof st_dtypes / sizeof st_dtypes[0]; i++) {
        if (strcmp(st_dtypes[i].name, name) == 0) return &st_dtypes[i];
    }
    return NULL;
}

ag_status ag_st_header_bytes(const void *prefix, uint64_t file_bytes, const char *path,
                             size_t *n_json, ag_error *err) {
    if (file_bytes < AG_ST_PREFIX) {
        return AG_FAIL(err, FORMAT, "%s: %" PRIu64 " bytes, too few for a safetensors header", path,
                       file_bytes);
    }
    const uint64_t n = ag_get_number(prefix, AG_ST_PREFIX);
    if (n > AG_ST_MAX_HEADER) {
        return AG_FAIL(err, FORMAT, "%s, byte 0: header of %" PRIu64 " bytes, the limit is %d",
                       path, n, AG_ST_MAX_HEADER);
    }
    if (n > file_bytes - AG_ST_PREFIX) {
        return AG_FAIL(err, FORMAT,
                       "%s, byte 0: header of %" PRIu64 " bytes, but the file has %" PRIu64
                       " after its length",
                       path, n, file_bytes - AG_ST_PREFIX);
    }
    *n_json = (size_t)n;
    return AG_OK;
}

static ag_status check_metadata(json_t *metadata, const char *path, ag_error *err) {
    if (!metadata || json_is_null(metadata)) return AG_OK;
    if (!json_is_object(metadata)) {
        return AG_FAIL(err, FORMAT, "%s: header: %s is not an object", path, metadata_key);
    }
    const char *key;
    json_t *v;
    json_object_foreach(metadata, key, v) {
        if (!json_is_string(v)) {
            return AG_FAIL(err, FORMAT, "%s: header: %s: \"%.80s\" is not a string", path,
                           metadata_key, key);
        }
    }
    return AG_OK;
}

/* Reads a JSON integer of [0, 2^63). The parser rejects larger ones. */
static bool read_count(const json_t *v, uint64_t *out) {
    if (!json_is_integer(v) || json_integer_value(v) < 0) return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

/* Sets the tensor's shape and number of bytes. */
static ag_status read_shape(const json_t *shape, const st_dtype *type, const char *where,
                            ag_source_tensor *t, ag_error *err) {
    if (!json_is_array(shape)) return AG_FAIL(err, FORMAT, "%s: shape is not a list", where);
    t->n_dims = json_array_size(shape);
    bool has_shape = t->n_dims <= AG_MAX_DIMS;
    t->shape.n_dims = has_shape ? (int)t->n_dims : 0;
    uint64_t n = 1;
    for (size_t i = 0; i < t->n_dims; i++) {
        uint64_t dim;
        if (!read_count(json_array_get(shape, i), &dim) || dim > SIZE_MAX) {
            return AG_FAIL(err, FORMAT, "%s: shape[%zu] is not a size", where, i);
        }
        if (has_shape) t->shape.dim[i] = (size_t)dim;
        if (__builtin_mul_overflow(n, dim, &n)) {
            return AG_FAIL(err, FORMAT, "%s: the product of its shape overflows at dim %zu", where,
                           i);
        }
    }
    if (__builtin_mul_overflow(n, (uint64_t)type->bits, &n)) {
        return AG_FAIL(err, FORMAT, "%s: the size of its shape in %s overflows", where, type->name);
    }
    if (n % 8 != 0) {
        return AG_FAIL(err, FORMAT, "%s: %" PRIu64 " bits of %s are not a multiple of 8", where, n,
                       type->name);
    }
    t->n_bytes = n / 8;
    return AG_OK;
}

/* Sets t->offset relative to the first byte after the header; ag_st_parse() corrects it. */
static ag_status read_tensor(const json_t *v, const char *where, uint64_t data_bytes,
                             ag_source_tensor *t, ag_error *err) {
    if (!json_is_object(v)) return AG_FAIL(err, FORMAT, "%s: is not an object", where);
    const json_t *dtype = json_object_get(v, "dtype");
    if (!json_is_string(dtype)) return AG_FAIL(err, FORMAT, "%s: dtype is not a string", where);
    const st_dtype *type = find_dtype(json_string_value(dtype));
    if (!type || strlen(type->name) != json_string_length(dtype)) {
        return AG_FAIL(err, FORMAT, "%s: unknown dtype \"%.40s\"", where, json_string_value(dtype));
    }
    t->dtype_name = type->name;
    t->dtype = type->dtype;
    AG_TRY(read_shape(json_object_get(v, "shape"), type, where, t, err));

    const json_t *range = json_object_get(v, "data_offsets");
    uint64_t begin = 0, end = 0;
    if (json_array_size(range) != 2 || !read_count(json_array_get(range, 0), &begin) ||
        !read_count(json_array_get(range, 1), &end)) {
        return AG_FAIL(err, FORMAT, "%s: data_offsets are not two offsets", where);
    }
    if (end < begin || end > data_bytes) {
        return AG_FAIL(err, FORMAT,
                       "%s: data_offsets [%" PRIu64 ",%" PRIu64 "], but the file has %" PRIu64
                       " bytes of data",
                       where, begin, end, data_bytes);
    }
    if (end - begin != t->n_bytes) {
        return AG_FAIL(err, FORMAT,
                       "%s: data_offsets span %" PRIu64 " bytes, shape and dtype need %" PRIu64,
                       where, end - begin, t->n_bytes);
    }
    t->offset = begin;
    return AG_OK;
}

/* Sorts the tensors by offset and checks that they fill the file without gaps. */
static ag_status check_layout(ag_tensor_list *h, uint64_t data_bytes, const char *path,
                              ag_error *err) {
    ag_tensor_list_sort(h);
    uint64_t at = 0;
    for (size_t i = 0; i < h->n; i++) {
        const ag_source_tensor *t = &h->tensors[i];
        if (t->offset != at) {
            return AG_FAIL(err, FORMAT,
                           "%s: tensor \"%.120s\": data begin at %" PRIu64 ", %s, which end at "
                           "%" PRIu64,
                           path, t->name, t->offset,
                           t->offset < at ? "inside those of another tensor"
                                          : "with a gap after those before",
                           at);
        }
        at += t->n_bytes;
    }
    if (at != data_bytes) {
        return AG_FAIL(err, FORMAT,
                       "%s: the tensors take %" PRIu64 " bytes, the file has %" PRIu64
                       " after its header",
                       path, at, data_bytes);
    }
    return AG_OK;
}

/* Allocates one block for all names, so that pointers into it stay valid. */
static ag_status alloc_header(json_t *root, const char *path, ag_tensor_list *h, ag_error *err) {
    size_t bytes = 1;
    const char *key;
    json_t *v;
    json_object_foreach(root, key, v) bytes += strlen(key) + 1;
    h->names = ag_malloc(bytes);
    h->tensors = ag_calloc(json_object_size(root) + 1, sizeof h->tensors[0]);
    if (h->names && h->tensors) return AG_OK;
    return AG_FAIL(err, NOMEM, "%s: list of tensors", path);
}

static ag_status read_tensors(json_t *root, const char *path, uint64_t data_bytes,
                              ag_tensor_list *h, ag_error *err) {
    char *names = h->names;
    const char *key;
    json_t *v;
    json_object_foreach(root, key, v) {
        if (strcmp(key, metadata_key) == 0) continue;
        size_t n = strlen(key) + 1;
        ag_source_tensor *t = &h->tensors[h->n++];
        t->name = memcpy(names, key, n);
        names += n;
        char where[400];
        snprintf(where, sizeof where, "%.250s: tensor \"%.120s\"", path, key);
        AG_TRY(read_tensor(v, where, data_bytes, t, err));
    }
    return AG_OK;
}

ag_status ag_st_parse(const char *json, size_t n_json, uint64_t file_bytes, const char *path,
                      ag_tensor_list *out, ag_error *err) {
    ag_tensor_list h = {0};
    json_t *root = NULL;
    char where[300];
    uint64_t data_start = AG_ST_PREFIX + (uint64_t)n_json, data_bytes = file_bytes - data_start;
    *out = h;
    snprintf(where, sizeof where, "%.280s: header", path);
    ag_status st = ag_json_parse(json, n_json, where, &root, err);
    if (st == AG_OK) st = check_metadata(json_object_get(root, metadata_key), path, err);
    if (st == AG_OK) st = alloc_header(root, path, &h, err);
    if (st == AG_OK) st = read_tensors(root, path, data_bytes, &h, err);
    if (st == AG_OK) st = check_layout(&h, data_bytes, path, err);
    if (st != AG_OK) goto done;
    for (size_t i = 0; i < h.n; i++) h.tensors[i].offset += data_start;
    *out = h;
    h = (ag_tensor_list){0};
done:
    ag_tensor_list_free(&h);
    json_decref(root);
    return st;
}
