/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/gguf_writer.h"

#include "core/alloc.h"
#include "core/fail.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* ---- bytes in memory ---- */

static void put(ag_gguf_bytes *b, const void *bytes, size_t n) {
    if (b->failed || n == 0) return;
    if (n > SIZE_MAX - b->n || AG_GROW(b->data, &b->cap, b->n + n, NULL) != AG_OK) {
        b->failed = true;
        return;
    }
    memcpy(b->data + b->n, bytes, n);
    b->n += n;
}

static void put_number(ag_gguf_bytes *b, uint64_t v, size_t n_bytes) {
    unsigned char bytes[8];
    for (size_t i = 0; i < n_bytes; i++) bytes[i] = (unsigned char)(v >> (8 * i));
    put(b, bytes, n_bytes);
}

static void put_text(ag_gguf_bytes *b, const char *text, size_t n) {
    put_number(b, n, 8);
    put(b, text, n);
}

/* ---- metadata ---- */

static void begin_entry(ag_gguf_writer *w, const char *key, ag_gguf_type type) {
    put_text(&w->metadata, key, strlen(key));
    put_number(&w->metadata, type, 4);
    w->n_entries++;
}

static void begin_array(ag_gguf_writer *w, const char *key, ag_gguf_type type, size_t n) {
    begin_entry(w, key, AG_GGUF_ARRAY);
    put_number(&w->metadata, type, 4);
    put_number(&w->metadata, n, 8);
}

void ag_gguf_put_u32(ag_gguf_writer *w, const char *key, uint32_t v) {
    begin_entry(w, key, AG_GGUF_U32);
    put_number(&w->metadata, v, 4);
}

void ag_gguf_put_f32(ag_gguf_writer *w, const char *key, float v) {
    begin_entry(w, key, AG_GGUF_F32);
    put(&w->metadata, &v, sizeof v);
}

void ag_gguf_put_bool(ag_gguf_writer *w, const char *key, bool v) {
    begin_entry(w, key, AG_GGUF_BOOL);
    put_number(&w->metadata, v, 1);
}

void ag_gguf_put_string(ag_gguf_writer *w, const char *key, ag_source_string v) {
    begin_entry(w, key, AG_GGUF_STRING);
    put_text(&w->metadata, v.text, v.n);
}

void ag_gguf_put_array(ag_gguf_writer *w, const char *key, ag_gguf_type type, const void *values,
                       size_t n) {
    begin_array(w, key, type, n);
    put(&w->metadata, values, n * ag_gguf_type_bytes(type));
}

void ag_gguf_put_strings(ag_gguf_writer *w, const char *key, const ag_source_string *v, size_t n) {
    begin_array(w, key, AG_GGUF_STRING, n);
    for (size_t i = 0; i < n; i++) put_text(&w->metadata, v[i].text, v[i].n);
}

void ag_gguf_put_entry(ag_gguf_writer *w, const ag_gguf_entry *e) {
    const unsigned char *end = e->first;
    if (e->type != AG_GGUF_STRING) end += e->n * ag_gguf_type_bytes(e->type);
    else {
        for (uint64_t i = 0; i < e->n; i++) (void)ag_gguf_next_string(&end);
    }
    put_text(&w->metadata, e->key.text, e->key.n);
    put_number(&w->metadata, e->is_array ? AG_GGUF_ARRAY : e->type, 4);
    if (e->is_array) {
        put_number(&w->metadata, e->type, 4);
        put_number(&w->metadata, e->n, 8);
    }
    put(&w->metadata, e->first, (size_t)(end - e->first));
    w->n_entries++;
}

/* ---- tensors ---- */

static uint64_t padded(uint64_t n) {
    return (n + AG_GGUF_ALIGNMENT - 1) / AG_GGUF_ALIGNMENT * AG_GGUF_ALIGNMENT;
}

void ag_gguf_add_tensor(ag_gguf_writer *w, const char *name, ag_dtype dtype,
                        const ag_shape *shape) {
    const uint64_t row = ag_dtype_row_bytes(dtype, ag_shape_cols(shape));
    assert(strlen(name) <= AG_GGUF_MAX_NAME);
    put_text(&w->table, name, strlen(name));
    put_number(&w->table, shape->n_dims, 4);
    for (size_t i = shape->n_dims; i-- > 0;) put_number(&w->table, shape->dim[i], 8);
    put_number(&w->table, ag_gguf_number_of(dtype), 4);
    put_number(&w->table, w->data_bytes, 8);
    w->n_tensors++;
    w->data_bytes = padded(w->data_bytes + row * ag_shape_rows(shape));
}

/* ---- the file ---- */

static ag_status put_zeros(ag_gguf_writer *w, uint64_t from, ag_error *err) {
    static const unsigned char zeros[AG_GGUF_ALIGNMENT];
    return ag_checksummed_put(&w->file, zeros, (size_t)(padded(from) - from), err);
}

ag_status ag_gguf_writer_open(ag_gguf_writer *w, const char *path, ag_error *err) {
    ag_gguf_bytes head = {0};
    put(&head, "GGUF", 4);
    put_number(&head, 3, 4);
    put_number(&head, w->n_tensors, 8);
    put_number(&head, w->n_entries, 8);
    const uint64_t n = head.n + w->metadata.n + w->table.n;
    w->is_open = true;
    w->file.is_public = true;
    ag_status st = ag_checksummed_writer_open(&w->file, path, err);
    if (st == AG_OK && (head.failed || w->metadata.failed || w->table.failed)) {
        st = AG_FAIL(err, NOMEM, "%s: metadata", path);
    }
    if (st == AG_OK) st = ag_checksummed_put(&w->file, head.data, head.n, err);
    if (st == AG_OK) st = ag_checksummed_put(&w->file, w->metadata.data, w->metadata.n, err);
    if (st == AG_OK) st = ag_checksummed_put(&w->file, w->table.data, w->table.n, err);
    if (st == AG_OK) st = put_zeros(w, n, err);
    ag_free(head.data);
    return st;
}

ag_status ag_gguf_write(ag_gguf_writer *w, const void *bytes, size_t n, ag_error *err) {
    w->written += n;
    return ag_checksummed_put(&w->file, bytes, n, err);
}

ag_status ag_gguf_end_tensor(ag_gguf_writer *w, ag_error *err) {
    const uint64_t n = w->written;
    w->written = padded(n);
    return put_zeros(w, n, err);
}

ag_status ag_gguf_writer_commit(ag_gguf_writer *w, ag_error *err) {
    assert(w->written == w->data_bytes);
    return ag_checksummed_writer_commit_plain(&w->file, err);
}

void ag_gguf_writer_close(ag_gguf_writer *w) {
    if (w->is_open) ag_checksummed_writer_close(&w->file);
    ag_free(w->metadata.data);
    ag_free(w->table.data);
    *w = (ag_gguf_writer){.is_open = false};
}
