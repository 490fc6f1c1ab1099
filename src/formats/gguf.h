/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a GGUF file: metadata under keys, then a table of tensors, then their data. Nobody
 * vouches for the file: whatever it counts is compared with the bytes that are left before anything
 * is allocated or read. Source: github.com/ggml-org/ggml, docs/gguf.md. */
#ifndef AG_FORMATS_GGUF_H
#define AG_FORMATS_GGUF_H

#include "formats/weight_source.h"

#include <string.h>

/* Types of metadata, numbered as in the file. */
typedef enum ag_gguf_type {
    AG_GGUF_U8,
    AG_GGUF_I8,
    AG_GGUF_U16,
    AG_GGUF_I16,
    AG_GGUF_U32,
    AG_GGUF_I32,
    AG_GGUF_F32,
    AG_GGUF_BOOL,
    AG_GGUF_STRING,
    AG_GGUF_ARRAY,
    AG_GGUF_U64,
    AG_GGUF_I64,
    AG_GGUF_F64,
    AG_GGUF_TYPES
} ag_gguf_type;

typedef struct ag_gguf_entry {
    ag_source_string key; /* printable ASCII */
    ag_gguf_type type;    /* of an array, that of its elements; never AG_GGUF_ARRAY */
    bool is_array;
    uint64_t n;                 /* elements; 1 of a scalar */
    const unsigned char *first; /* little-endian, aligned to nothing */
} ag_gguf_entry;

/* Keys and values are borrowed from the bytes that were parsed, `path` from the caller.
 * Zero-initialise; release with ag_gguf_free. */
typedef struct ag_gguf {
    const char *path; /* begins messages */
    ag_gguf_entry *entries;
    size_t n_entries;    /* sorted by key */
    ag_tensor_list list; /* in the order of their data */
} ag_gguf;

enum {
    AG_GGUF_MAX_COUNT = 1 << 16, /* entries, and tensors */
    AG_GGUF_MAX_KEY = 65535,
    AG_GGUF_MAX_NAME = 63, /* of a tensor */
};

/* bytes[0..n) is a whole file of version 2 or 3. On success every tensor lies inside the file at a
 * multiple of the alignment, has the bytes that its shape and type ask for, and none overlap; no
 * key occurs twice, but names of tensors may. Shapes are outermost first, unlike in the file.
 * AG_FORMAT, with place and reason; AG_UNSUPPORTED for other versions, big-endian files, arrays of
 * arrays and types of tensors that are not known; AG_LIMIT. */
ag_status ag_gguf_parse(const void *bytes, size_t n, const char *path, ag_gguf *out, ag_error *err);
void ag_gguf_free(ag_gguf *g);

/* How a tensor's type is numbered in the file; the type is one that weights may have. */
uint32_t ag_gguf_number_of(ag_dtype type);
/* What the first file of a source says; NULL if it is not one of GGUF files. Borrowed. */
const ag_gguf *ag_gguf_source_header(const ag_weight_source *s);

/* NULL if there is no such key. */
const ag_gguf_entry *ag_gguf_find(const ag_gguf *g, const char *key);
/* One integer or bool, *out untouched without the key. AG_FORMAT if it is of another type or does
 * not fit. */
ag_status ag_gguf_integer(const ag_gguf *g, const char *key, int64_t *out, ag_error *err);
/* The same for a string. */
ag_status ag_gguf_string(const ag_gguf *g, const char *key, ag_source_string *out, ag_error *err);
/* An array of this type, NULL without the key. AG_FORMAT if it is something else. */
ag_status ag_gguf_array(const ag_gguf *g, const char *key, ag_gguf_type type,
                        const ag_gguf_entry **out, ag_error *err);

/* A number of up to 8 bytes. The host is little-endian, like the data of tensors. */
static inline uint64_t ag_gguf_load(const unsigned char *p, size_t n_bytes) {
    uint64_t v = 0;
    memcpy(&v, p, n_bytes);
    return v;
}
/* A value of an integer type or a bool; of U64 its bits. */
int64_t ag_gguf_load_integer(ag_gguf_type type, const unsigned char *p);
/* A value of type F32 or F64. */
double ag_gguf_load_real(ag_gguf_type type, const unsigned char *p);
/* Bytes of a value; 0 for strings. */
size_t ag_gguf_type_bytes(ag_gguf_type type);
/* The string at *p; *p moves behind it. Only for what ag_gguf_parse has checked. */
static inline ag_source_string ag_gguf_next_string(const unsigned char **p) {
    const ag_source_string s = {(const char *)*p + 8, (size_t)ag_gguf_load(*p, 8)};
    *p += 8 + s.n;
    return s;
}

#endif
