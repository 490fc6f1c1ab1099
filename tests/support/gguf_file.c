/* SPDX-License-Identifier: Apache-2.0 */
#include "support/gguf_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void append(gguf_bytes *b, const void *bytes, size_t n) {
    b->data = realloc(b->data, b->n + n + 1);
    if (!b->data) abort();
    if (bytes) memcpy(b->data + b->n, bytes, n);
    else memset(b->data + b->n, 0, n);
    b->n += n;
}

static void append_number(gguf_bytes *b, uint64_t v, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i++)
        append(b, &(unsigned char){(unsigned char)(v >> 8 * i)}, 1);
}

static void append_string(gguf_bytes *b, const char *s) {
    append_number(b, strlen(s), 8);
    append(b, s, strlen(s));
}

static void pad(gguf_bytes *b, size_t alignment) {
    append(b, NULL, (alignment - b->n % alignment) % alignment);
}

static size_t alignment_of(const gguf_file *f) { return f->alignment ? f->alignment : 32; }

void gguf_put_value(gguf_file *f, const char *key, uint32_t type, const void *bytes, size_t n) {
    append_string(&f->keys, key);
    append_number(&f->keys, type, 4);
    append(&f->keys, bytes, n);
    f->n_keys++;
}

static void put_number(gguf_file *f, const char *key, ag_gguf_type type, uint64_t v) {
    gguf_put_value(f, key, type, NULL, 0);
    append_number(&f->keys, v, ag_gguf_type_bytes(type));
}

void gguf_put_u32(gguf_file *f, const char *key, uint32_t v) { put_number(f, key, AG_GGUF_U32, v); }

void gguf_put_f32(gguf_file *f, const char *key, float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_number(f, key, AG_GGUF_F32, bits);
}

void gguf_put_bool(gguf_file *f, const char *key, bool v) { put_number(f, key, AG_GGUF_BOOL, v); }

void gguf_put_string(gguf_file *f, const char *key, const char *v) {
    gguf_put_value(f, key, AG_GGUF_STRING, NULL, 0);
    append_string(&f->keys, v);
}

static void begin_array(gguf_file *f, const char *key, ag_gguf_type type, size_t n) {
    put_number(f, key, AG_GGUF_ARRAY, 0);
    append_number(&f->keys, type, 4);
    append_number(&f->keys, n, 8);
}

void gguf_put_strings(gguf_file *f, const char *key, const char *const *v, size_t n) {
    begin_array(f, key, AG_GGUF_STRING, n);
    for (size_t i = 0; i < n; i++) append_string(&f->keys, v[i]);
}

void gguf_put_array(gguf_file *f, const char *key, ag_gguf_type type, const void *v, size_t n) {
    begin_array(f, key, type, n);
    append(&f->keys, v, n * ag_gguf_type_bytes(type));
}

void gguf_put_tensor(gguf_file *f, const char *name, uint32_t type, ag_shape shape,
                     const void *data, size_t n_bytes) {
    append_string(&f->table, name);
    append_number(&f->table, (uint64_t)shape.n_dims, 4);
    for (int i = shape.n_dims; i-- > 0;) append_number(&f->table, shape.dim[i], 8);
    append_number(&f->table, type, 4);
    append_number(&f->table, f->data.n, 8);
    append(&f->data, data, n_bytes);
    pad(&f->data, alignment_of(f));
    f->n_tensors++;
}

const gguf_bytes *gguf_file_finish(gguf_file *f) {
    gguf_bytes *w = &f->whole;
    w->n = 0;
    append(w, "GGUF", 4);
    append_number(w, f->version ? f->version : 3, 4);
    append_number(w, f->n_tensors, 8);
    append_number(w, f->n_keys, 8);
    append(w, f->keys.data, f->keys.n);
    append(w, f->table.data, f->table.n);
    pad(w, alignment_of(f));
    append(w, f->data.data, f->data.n);
    return w;
}

bool gguf_file_save(gguf_file *f, const char *path) {
    const gguf_bytes *w = gguf_file_finish(f);
    FILE *file = fopen(path, "wb");
    bool done = file && fwrite(w->data, 1, w->n, file) == w->n;
    if (file && fclose(file) != 0) done = false;
    if (!done) fprintf(stderr, "cannot write %s\n", path);
    return done;
}

void gguf_file_free(gguf_file *f) {
    free(f->keys.data);
    free(f->table.data);
    free(f->data.data);
    free(f->whole.data);
    *f = (gguf_file){0};
}
