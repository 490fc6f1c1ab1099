/* SPDX-License-Identifier: Apache-2.0 */
/* Writer of GGUF files: metadata, the table of tensors, then their data in the order of the table.
 * The file replaces another atomically (checksummed_file.h). */
#ifndef AG_FORMATS_GGUF_WRITER_H
#define AG_FORMATS_GGUF_WRITER_H

#include "formats/checksummed_file.h"
#include "formats/gguf.h"

enum { AG_GGUF_ALIGNMENT = 32 };

typedef struct ag_gguf_bytes {
    unsigned char *data; /* owned */
    size_t n, cap;
    bool failed; /* memory ran out; bytes are missing */
} ag_gguf_bytes;

/* Zero-initialise; put entries and add tensors, open, write, commit; always close. */
typedef struct ag_gguf_writer {
    ag_gguf_bytes metadata, table;
    uint64_t n_entries, n_tensors;
    uint64_t data_bytes; /* bytes of the tensors added so far, with padding */
    uint64_t written;    /* bytes of data so far, with padding */
    bool is_open;
    ag_checksummed_writer file;
} ag_gguf_writer;

/* Put a key with its value. The caller must not repeat a key. If memory runs out,
 * ag_gguf_writer_open() fails. */
void ag_gguf_put_u32(ag_gguf_writer *w, const char *key, uint32_t v);
void ag_gguf_put_f32(ag_gguf_writer *w, const char *key, float v);
void ag_gguf_put_bool(ag_gguf_writer *w, const char *key, bool v);
void ag_gguf_put_string(ag_gguf_writer *w, const char *key, ag_source_string v);
/* Puts n numbers in the host's representation (bools: bytes). */
void ag_gguf_put_array(ag_gguf_writer *w, const char *key, ag_gguf_type type, const void *values,
                       size_t n);
void ag_gguf_put_strings(ag_gguf_writer *w, const char *key, const ag_source_string *v, size_t n);
/* Copies an entry of another file. */
void ag_gguf_put_entry(ag_gguf_writer *w, const ag_gguf_entry *e);

/* Adds a tensor to the table. Its rows must be multiples of the type's block, and its name at most
 * AG_GGUF_MAX_NAME bytes. */
void ag_gguf_add_tensor(ag_gguf_writer *w, const char *name, ag_dtype dtype, const ag_shape *shape);

/* Opens the file and writes everything before the data. */
ag_status ag_gguf_writer_open(ag_gguf_writer *w, const char *path, ag_error *err);
/* Writes the next bytes of data. The caller calls ag_gguf_end_tensor() after each tensor. */
ag_status ag_gguf_write(ag_gguf_writer *w, const void *bytes, size_t n, ag_error *err);
ag_status ag_gguf_end_tensor(ag_gguf_writer *w, ag_error *err);
/* Replaces the file at the path. Asserts that all data were written. */
ag_status ag_gguf_writer_commit(ag_gguf_writer *w, ag_error *err);
/* Removes what was not committed. */
void ag_gguf_writer_close(ag_gguf_writer *w);

#endif
