/* SPDX-License-Identifier: Apache-2.0 */
/* Header of a GGUF file: metadata under keys, then a table of tensors, then their data. Files are
 * untrusted: every count is compared with the remaining bytes before memory is allocated or read.
 * Source: github.com/ggml-org/ggml, docs/gguf.md. */
#ifndef AG_FORMATS_GGUF_H
#define AG_FORMATS_GGUF_H

#include "core/little_endian.h"
#include "formats/weight_source.h"

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
    ag_gguf_type type;    /* type of the value, or of an array's elements; never AG_GGUF_ARRAY */
    bool is_array;
    uint64_t n;                 /* elements; 1 for a scalar */
    const unsigned char *first; /* first element: little-endian, unaligned */
} ag_gguf_entry;

/* A parsed header. Keys and values are borrowed from the parsed bytes, `path` from the caller.
 * Zero-initialise; release with ag_gguf_free(). */
typedef struct ag_gguf {
    const char *path; /* begins messages */
    ag_gguf_entry *entries;
    size_t n_entries;    /* sorted by key */
    ag_tensor_list list; /* in the order of their data */
} ag_gguf;

enum {
    AG_GGUF_MAX_COUNT = 1 << 16, /* entries, and tensors */
    AG_GGUF_MAX_KEY = 65535,
    AG_GGUF_MAX_NAME = 63, /* bytes of a tensor's name */
};

/* Parses an entire file of version 2 or 3. On success every tensor is inside the file at a multiple
 * of the alignment, has the bytes of its shape and type, and none overlap. No key occurs twice, but
 * names of tensors may. Shapes are outermost first, unlike in the file. Fails with AG_FORMAT, with
 * position and reason; AG_UNSUPPORTED for other versions, big-endian files, arrays of arrays and
 * unknown tensor types; AG_LIMIT for more than AG_GGUF_MAX_COUNT keys or tensors. */
ag_status ag_gguf_parse(const void *bytes, size_t n, const char *path, ag_gguf *out, ag_error *err);
void ag_gguf_free(ag_gguf *g);

/* Returns the number of a tensor type in GGUF files. The type must be one of weights. */
uint32_t ag_gguf_number_of(ag_dtype type);
/* Returns the header of a source's first file, or NULL if the source is not GGUF. Borrowed. */
const ag_gguf *ag_gguf_source_header(const ag_weight_source *s);

/* Returns NULL if there is no such key. */
const ag_gguf_entry *ag_gguf_find(const ag_gguf *g, const char *key);
/* Reads one integer or bool. *out does not change without the key. Fails with AG_FORMAT if the
 * value has another type or does not fit. */
ag_status ag_gguf_integer(const ag_gguf *g, const char *key, int64_t *out, ag_error *err);
/* The same for a string, which is borrowed. */
ag_status ag_gguf_string(const ag_gguf *g, const char *key, ag_source_string *out, ag_error *err);
/* Finds an array of this type. *out is NULL without the key. Fails with AG_FORMAT if the value is
 * something else. */
ag_status ag_gguf_array(const ag_gguf *g, const char *key, ag_gguf_type type,
                        const ag_gguf_entry **out, ag_error *err);

/* Reads a value of an integer type or a bool. A U64 above 2^63 becomes negative. */
int64_t ag_gguf_load_integer(ag_gguf_type type, const unsigned char *p);
/* Reads a value of type F32 or F64. */
double ag_gguf_load_real(ag_gguf_type type, const unsigned char *p);
/* Returns the bytes of a value; 0 for strings. */
size_t ag_gguf_type_bytes(ag_gguf_type type);
/* Returns the string at *p and advances *p. Only for entries that ag_gguf_parse() has checked. */
static inline ag_source_string ag_gguf_next_string(const unsigned char **p) {
    const ag_source_string s = {(const char *)*p + 8, (size_t)ag_get_number(*p, 8)};
    *p += 8 + s.n;
    return s;
}

#endif
