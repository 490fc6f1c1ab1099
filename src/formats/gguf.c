/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/gguf.h"

#include "core/alloc.h"
#include "core/fail.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Minimum bytes of an entry and of a tensor: lengths, one letter, types, a value of one byte. */
enum { MIN_ENTRY = 8 + 1 + 4 + 1, MIN_TENSOR = 8 + 1 + 4 + 4 + 8, MAX_DIMS = 4 };
enum { DEFAULT_ALIGNMENT = 32 };

typedef struct ggml_type {
    const char *name;
    unsigned block, bytes;
} ggml_type;

/* By number. The gaps are types that the format has removed. */
static const ggml_type ggml_types[] = {
    [0] = {"F32", 1, 4},         [1] = {"F16", 1, 2},         [2] = {"Q4_0", 32, 18},
    [3] = {"Q4_1", 32, 20},      [6] = {"Q5_0", 32, 22},      [7] = {"Q5_1", 32, 24},
    [8] = {"Q8_0", 32, 34},      [9] = {"Q8_1", 32, 40},      [10] = {"Q2_K", 256, 84},
    [11] = {"Q3_K", 256, 110},   [12] = {"Q4_K", 256, 144},   [13] = {"Q5_K", 256, 176},
    [14] = {"Q6_K", 256, 210},   [15] = {"Q8_K", 256, 292},   [16] = {"IQ2_XXS", 256, 66},
    [17] = {"IQ2_XS", 256, 74},  [18] = {"IQ3_XXS", 256, 98}, [19] = {"IQ1_S", 256, 50},
    [20] = {"IQ4_NL", 32, 18},   [21] = {"IQ3_S", 256, 110},  [22] = {"IQ2_S", 256, 82},
    [23] = {"IQ4_XS", 256, 136}, [24] = {"I8", 1, 1},         [25] = {"I16", 1, 2},
    [26] = {"I32", 1, 4},        [27] = {"I64", 1, 8},        [28] = {"F64", 1, 8},
    [29] = {"IQ1_M", 256, 56},   [30] = {"BF16", 1, 2},       [34] = {"TQ1_0", 256, 54},
    [35] = {"TQ2_0", 256, 66},   [39] = {"MXFP4", 32, 17},    [40] = {"NVFP4", 64, 36},
    [41] = {"Q1_0", 128, 18},
};
enum { N_GGML_TYPES = sizeof ggml_types / sizeof ggml_types[0] };

uint32_t ag_gguf_number_of(ag_dtype type) {
    ag_dtype other;
    for (uint32_t i = 0; i < N_GGML_TYPES; i++) {
        const char *name = ggml_types[i].name;
        if (name && ag_dtype_parse(name, &other) && other == type) return i;
    }
    assert(!"a type that weights may have");
    return 0;
}

/* ---- values ---- */

int64_t ag_gguf_load_integer(ag_gguf_type type, const unsigned char *p) {
    const size_t n = ag_gguf_type_bytes(type);
    const bool is_short = type == AG_GGUF_I8 || type == AG_GGUF_I16 || type == AG_GGUF_I32;
    const uint64_t sign = is_short ? UINT64_C(1) << (8 * n - 1) : 0;
    return (int64_t)((ag_get_number(p, (int)n) ^ sign) - sign);
}

double ag_gguf_load_real(ag_gguf_type type, const unsigned char *p) {
    float f = 0;
    double d = 0;
    if (type == AG_GGUF_F64) memcpy(&d, p, sizeof d);
    else memcpy(&f, p, sizeof f);
    return type == AG_GGUF_F64 ? d : (double)f;
}

size_t ag_gguf_type_bytes(ag_gguf_type type) {
    static const unsigned char bytes[AG_GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return bytes[type];
}

/* ---- reading ---- */

typedef struct gguf_reader {
    const unsigned char *bytes;
    size_t n, at;
    char where[300]; /* starts messages: the file, and the entry being read */
    ag_error *err;
} gguf_reader;

/* Fails unless n bytes remain. */
static ag_status need(gguf_reader *r, uint64_t n, const char *what) {
    if (n <= r->n - r->at) return AG_OK;
    return AG_FAIL(r->err, FORMAT,
                   "%s, byte %zu: %s takes %" PRIu64 " bytes, but %zu are left in the file",
                   r->where, r->at, what, n, r->n - r->at);
}

/* Fails unless n items of at least `each` bytes fit into the remaining bytes. */
static ag_status need_each(gguf_reader *r, uint64_t n, size_t each, const char *what) {
    if (n <= (r->n - r->at) / each) return AG_OK;
    return AG_FAIL(r->err, FORMAT,
                   "%s, byte %zu: %" PRIu64 " %s cannot be in the %zu bytes left in the file",
                   r->where, r->at, n, what, r->n - r->at);
}

static ag_status read_number(gguf_reader *r, size_t n_bytes, const char *what, uint64_t *out) {
    AG_TRY(need(r, n_bytes, what));
    *out = ag_get_number(r->bytes + r->at, (int)n_bytes);
    r->at += n_bytes;
    return AG_OK;
}

static ag_status read_string(gguf_reader *r, const char *what, ag_source_string *out) {
    uint64_t n;
    AG_TRY(read_number(r, 8, "a length", &n));
    AG_TRY(need(r, n, what));
    *out = (ag_source_string){(const char *)r->bytes + r->at, (size_t)n};
    r->at += (size_t)n;
    return AG_OK;
}

/* Reads the name of an entry or a tensor. Later messages name it. */
static ag_status read_name(gguf_reader *r, const char *path, const char *what, size_t max,
                           ag_source_string *out) {
    const size_t begin = r->at;
    snprintf(r->where, sizeof r->where, "%.150s: name of a %s", path, what);
    AG_TRY(read_string(r, "it", out));
    if (out->n == 0 || out->n > max) {
        return AG_FAIL(r->err, FORMAT, "%s, byte %zu: has %zu bytes, not 1 to %zu", r->where, begin,
                       out->n, max);
    }
    for (size_t i = 0; i < out->n; i++) {
        if (out->text[i] > ' ' && out->text[i] <= '~') continue;
        return AG_FAIL(r->err, FORMAT, "%s, byte %zu: is not printable ASCII (0x%02x)", r->where,
                       begin + 8 + i, (unsigned char)out->text[i]);
    }
    snprintf(r->where, sizeof r->where, "%.150s: %s \"%.*s\"", path, what,
             out->n < 120 ? (int)out->n : 120, out->text);
    return AG_OK;
}

/* ---- metadata ---- */

static ag_status skip_values(gguf_reader *r, const ag_gguf_entry *e) {
    const size_t each = ag_gguf_type_bytes(e->type);
    AG_TRY(need_each(r, e->n, each ? each : 8, e->is_array ? "elements" : "value"));
    if (e->type == AG_GGUF_STRING) {
        ag_source_string unused;
        for (uint64_t i = 0; i < e->n; i++) AG_TRY(read_string(r, "a string", &unused));
        return AG_OK;
    }
    for (uint64_t i = 0; i < e->n && e->type == AG_GGUF_BOOL; i++) {
        if (e->first[i] > 1) {
            return AG_FAIL(r->err, FORMAT, "%s, byte %zu: a bool is %d, not 0 or 1", r->where,
                           r->at + (size_t)i, e->first[i]);
        }
    }
    r->at += each * (size_t)e->n;
    return AG_OK;
}

static ag_status read_type(gguf_reader *r, ag_gguf_type *out) {
    uint64_t type;
    AG_TRY(read_number(r, 4, "a type", &type));
    if (type >= AG_GGUF_TYPES) {
        return AG_FAIL(r->err, FORMAT, "%s, byte %zu: unknown type %" PRIu64 " of a value",
                       r->where, r->at - 4, type);
    }
    *out = (ag_gguf_type)type;
    return AG_OK;
}

static ag_status read_entry(gguf_reader *r, const char *path, ag_gguf_entry *e) {
    AG_TRY(read_name(r, path, "key", AG_GGUF_MAX_KEY, &e->key));
    AG_TRY(read_type(r, &e->type));
    e->n = 1;
    e->is_array = e->type == AG_GGUF_ARRAY;
    if (e->is_array) {
        AG_TRY(read_type(r, &e->type));
        AG_TRY(read_number(r, 8, "a count", &e->n));
    }
    if (e->type == AG_GGUF_ARRAY) {
        return AG_FAIL(r->err, UNSUPPORTED, "%s, byte %zu: is an array of arrays", r->where, r->at);
    }
    e->first = r->bytes + r->at;
    return skip_values(r, e);
}

static int by_key(const void *a, const void *b) {
    const ag_source_string *x = &((const ag_gguf_entry *)a)->key,
                           *y = &((const ag_gguf_entry *)b)->key;
    const int order = memcmp(x->text, y->text, x->n < y->n ? x->n : y->n);
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

static ag_status read_entries(gguf_reader *r, size_t n, ag_gguf *g) {
    g->entries = ag_calloc(n + 1, sizeof g->entries[0]);
    if (!g->entries) return AG_FAIL(r->err, NOMEM, "%s: %zu keys", g->path, n);
    for (; g->n_entries < n; g->n_entries++) {
        AG_TRY(read_entry(r, g->path, &g->entries[g->n_entries]));
    }
    qsort(g->entries, n, sizeof g->entries[0], by_key);
    for (size_t i = 1; i < n; i++) {
        const ag_gguf_entry *a = &g->entries[i - 1], *b = &g->entries[i];
        if (by_key(a, b) != 0) continue;
        return AG_FAIL(r->err, FORMAT,
                       "%s: key \"%.*s\" occurs twice, with values at byte %td "
                       "and %td",
                       g->path, a->key.n < 120 ? (int)a->key.n : 120, a->key.text,
                       a->first - r->bytes, b->first - r->bytes);
    }
    return AG_OK;
}

const ag_gguf_entry *ag_gguf_find(const ag_gguf *g, const char *key) {
    const ag_gguf_entry key_entry = {.key = {key, strlen(key)}};
    return g->n_entries
               ? bsearch(&key_entry, g->entries, g->n_entries, sizeof g->entries[0], by_key)
               : NULL;
}

static ag_status not_of_type(const ag_gguf *g, const char *key, const char *what, ag_error *err) {
    return AG_FAIL(err, FORMAT, "%s: key \"%s\" is not %s", g->path, key, what);
}

ag_status ag_gguf_integer(const ag_gguf *g, const char *key, int64_t *out, ag_error *err) {
    const ag_gguf_entry *e = ag_gguf_find(g, key);
    if (!e) return AG_OK;
    const bool is_real = e->type == AG_GGUF_F32 || e->type == AG_GGUF_F64;
    if (e->is_array || is_real || e->type == AG_GGUF_STRING) {
        return not_of_type(g, key, "an integer", err);
    }
    const int64_t v = ag_gguf_load_integer(e->type, e->first);
    if (e->type == AG_GGUF_U64 && v < 0) {
        return not_of_type(g, key, "an integer below 2^63", err);
    }
    *out = v;
    return AG_OK;
}

ag_status ag_gguf_string(const ag_gguf *g, const char *key, ag_source_string *out, ag_error *err) {
    const ag_gguf_entry *e = ag_gguf_find(g, key);
    if (!e) return AG_OK;
    if (e->is_array || e->type != AG_GGUF_STRING) return not_of_type(g, key, "a string", err);
    const unsigned char *p = e->first;
    *out = ag_gguf_next_string(&p);
    return AG_OK;
}

ag_status ag_gguf_array(const ag_gguf *g, const char *key, ag_gguf_type type,
                        const ag_gguf_entry **out, ag_error *err) {
    const ag_gguf_entry *e = *out = ag_gguf_find(g, key);
    if (!e || (e->is_array && e->type == type)) return AG_OK;
    *out = NULL;
    return not_of_type(g, key,
                       type == AG_GGUF_STRING ? "an array of strings"
                       : type == AG_GGUF_F32  ? "an array of 32-bit reals"
                                              : "an array of 32-bit integers",
                       err);
}

/* ---- tensors ---- */

static ag_status read_shape(gguf_reader *r, ag_source_tensor *t, uint64_t *n_elements) {
    uint64_t n_dims, dim;
    AG_TRY(read_number(r, 4, "a number of dims", &n_dims));
    if (n_dims > MAX_DIMS) {
        return AG_FAIL(r->err, FORMAT, "%s, byte %zu: has %" PRIu64 " dims, the limit is %d",
                       r->where, r->at - 4, n_dims, MAX_DIMS);
    }
    _Static_assert(AG_MAX_DIMS >= MAX_DIMS, "every tensor of a GGUF file has a shape");
    t->n_dims = (size_t)n_dims;
    t->shape.n_dims = (int)n_dims;
    *n_elements = 1;
    for (size_t i = t->n_dims; i-- > 0;) { /* the file lists the innermost dim first */
        AG_TRY(read_number(r, 8, "a dim", &dim));
        if (dim > SIZE_MAX || __builtin_mul_overflow(*n_elements, dim, n_elements)) {
            return AG_FAIL(r->err, FORMAT, "%s, byte %zu: the product of its dims overflows",
                           r->where, r->at - 8);
        }
        t->shape.dim[i] = (size_t)dim;
    }
    return AG_OK;
}

static ag_status read_tensor_type(gguf_reader *r, uint64_t n_elements, ag_source_tensor *t) {
    uint64_t number;
    AG_TRY(read_number(r, 4, "a type", &number));
    const ggml_type *type = number < N_GGML_TYPES ? &ggml_types[number] : NULL;
    if (!type || !type->name) {
        return AG_FAIL(r->err, UNSUPPORTED, "%s, byte %zu: unknown type number %" PRIu64, r->where,
                       r->at - 4, number);
    }
    t->dtype_name = type->name;
    t->dtype = AG_DTYPE_COUNT;
    (void)ag_dtype_parse(type->name, &t->dtype);
    const uint64_t cols = t->n_dims ? t->shape.dim[t->n_dims - 1] : 1;
    if (cols % type->block != 0) {
        return AG_FAIL(r->err, FORMAT,
                       "%s, byte %zu: rows of %" PRIu64 " are not a multiple of %u, the block of "
                       "%s",
                       r->where, r->at - 4, cols, type->block, type->name);
    }
    if (__builtin_mul_overflow(n_elements / type->block, (uint64_t)type->bytes, &t->n_bytes)) {
        return AG_FAIL(r->err, FORMAT, "%s, byte %zu: its size in %s overflows", r->where,
                       r->at - 4, type->name);
    }
    return AG_OK;
}

/* Sets t->offset relative to the first byte of data; set_offsets() corrects it. */
static ag_status read_tensor(gguf_reader *r, const char *path, uint64_t alignment, char *name,
                             ag_source_tensor *t) {
    ag_source_string s;
    uint64_t n_elements = 0;
    AG_TRY(read_name(r, path, "tensor", AG_GGUF_MAX_NAME, &s));
    memcpy(name, s.text, s.n);
    t->name = name;
    AG_TRY(read_shape(r, t, &n_elements));
    AG_TRY(read_tensor_type(r, n_elements, t));
    AG_TRY(read_number(r, 8, "an offset", &t->offset));
    if (t->offset % alignment == 0) return AG_OK;
    return AG_FAIL(r->err, FORMAT,
                   "%s, byte %zu: its offset %" PRIu64
                   " is not a multiple of the alignment %" PRIu64,
                   r->where, r->at - 8, t->offset, alignment);
}

/* Makes offsets relative to the file, and checks them. Data start at the first multiple of the
 * alignment after the table. */
static ag_status set_offsets(gguf_reader *r, uint64_t alignment, ag_gguf *g) {
    const uint64_t start = (r->at + alignment - 1) / alignment * alignment;
    uint64_t end = start;
    ag_tensor_list_sort(&g->list);
    for (size_t i = 0; i < g->list.n; i++) {
        ag_source_tensor *t = &g->list.tensors[i];
        if (start > r->n || t->offset > r->n - start || t->n_bytes > r->n - start - t->offset) {
            return AG_FAIL(r->err, FORMAT,
                           "%s: tensor \"%s\": %" PRIu64 " bytes at offset %" PRIu64
                           " of the data, which begin at byte %" PRIu64
                           ": they end after the file of %zu bytes",
                           g->path, t->name, t->n_bytes, t->offset, start, r->n);
        }
        t->offset += start;
        if (t->offset < end) {
            return AG_FAIL(r->err, FORMAT,
                           "%s: tensor \"%s\": data begin at byte %" PRIu64
                           ", inside those of \"%s\", which end at %" PRIu64,
                           g->path, t->name, t->offset, t[-1].name, end);
        }
        end = t->offset + t->n_bytes;
    }
    return AG_OK;
}

static ag_status read_tensors(gguf_reader *r, size_t n, ag_gguf *g) {
    int64_t alignment = DEFAULT_ALIGNMENT;
    AG_TRY(ag_gguf_integer(g, "general.alignment", &alignment, r->err));
    if (alignment <= 0 || alignment > UINT32_MAX || (alignment & (alignment - 1)) != 0) {
        return AG_FAIL(r->err, FORMAT,
                       "%s: key \"general.alignment\": %" PRId64
                       " is not a power of two below 2^32",
                       g->path, alignment);
    }
    snprintf(r->where, sizeof r->where, "%.280s", g->path);
    AG_TRY(need_each(r, n, MIN_TENSOR, "tensors"));
    g->list.tensors = ag_calloc(n + 1, sizeof g->list.tensors[0]);
    g->list.names = ag_calloc(n + 1, AG_GGUF_MAX_NAME + 1);
    if (!g->list.tensors || !g->list.names) {
        return AG_FAIL(r->err, NOMEM, "%s: list of %zu tensors", g->path, n);
    }
    for (; g->list.n < n; g->list.n++) {
        AG_TRY(read_tensor(r, g->path, (uint64_t)alignment,
                           g->list.names + g->list.n * (AG_GGUF_MAX_NAME + 1),
                           &g->list.tensors[g->list.n]));
    }
    return set_offsets(r, (uint64_t)alignment, g);
}

/* ---- the file ---- */

static ag_status check_version(gguf_reader *r) {
    uint64_t version;
    if (r->n < 4 || memcmp(r->bytes, "GGUF", 4) != 0) {
        return AG_FAIL(r->err, FORMAT, "%s, byte 0: does not begin with \"GGUF\"", r->where);
    }
    r->at = 4;
    AG_TRY(read_number(r, 4, "the version", &version));
    if (version == 2 || version == 3) return AG_OK;
    if (version && (version & 0xFFFF) == 0) {
        return AG_FAIL(r->err, UNSUPPORTED,
                       "%s, byte 4: is a big-endian GGUF file, only little-endian ones are "
                       "supported",
                       r->where);
    }
    return AG_FAIL(r->err, UNSUPPORTED,
                   "%s, byte 4: is GGUF version %" PRIu64 ", supported are 2 and 3", r->where,
                   version);
}

static ag_status read_count(gguf_reader *r, const char *what, size_t *out) {
    uint64_t n;
    AG_TRY(read_number(r, 8, what, &n));
    *out = (size_t)n;
    if (n <= AG_GGUF_MAX_COUNT) return AG_OK;
    return AG_FAIL(r->err, LIMIT, "%s, byte %zu: %s is %" PRIu64 ", the limit is %d", r->where,
                   r->at - 8, what, n, AG_GGUF_MAX_COUNT);
}

static ag_status read_file(gguf_reader *r, ag_gguf *g) {
    size_t n_tensors, n_entries;
    AG_TRY(check_version(r));
    AG_TRY(read_count(r, "the number of tensors", &n_tensors));
    AG_TRY(read_count(r, "the number of keys", &n_entries));
    AG_TRY(need_each(r, n_entries, MIN_ENTRY, "keys"));
    AG_TRY(read_entries(r, n_entries, g));
    return read_tensors(r, n_tensors, g);
}

ag_status ag_gguf_parse(const void *bytes, size_t n, const char *path, ag_gguf *out,
                        ag_error *err) {
    gguf_reader r = {.bytes = bytes, .n = n, .err = err};
    snprintf(r.where, sizeof r.where, "%.280s", path);
    *out = (ag_gguf){.path = path};
    ag_status st = read_file(&r, out);
    if (st != AG_OK) ag_gguf_free(out);
    return st;
}

void ag_gguf_free(ag_gguf *g) {
    ag_free(g->entries);
    ag_tensor_list_free(&g->list);
    *g = (ag_gguf){0};
}
