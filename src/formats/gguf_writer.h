/* SPDX-License-Identifier: Apache-2.0 */
/* Writes GGUF files: metadata, the table of tensors, then their data in the order of the table. The
 * file is there as a whole or not at all (checksummed_file.h). */
#ifndef AG_FORMATS_GGUF_WRITER_H
#define AG_FORMATS_GGUF_WRITER_H

#include "formats/checksummed_file.h"
#include "formats/gguf.h"

enum { AG_GGUF_ALIGNMENT = 32 };

typedef struct ag_gguf_bytes {
    unsigned char *data; /* owned */
    size_t n, cap;
    bool failed; /* there was no memory for some of them */
} ag_gguf_bytes;

/* Zero-initialise; put and add, open, write, commit; always close. */
typedef struct ag_gguf_writer {
    ag_gguf_bytes metadata, table;
    uint64_t n_entries, n_tensors;
    uint64_t data_bytes; /* of all tensors so far, padding included */
    uint64_t written;    /* bytes of data */
    bool is_open;
    ag_checksummed_writer file;
} ag_gguf_writer;

/* A key with its value. Whoever calls sees to it that no key comes twice. Without memory nothing is
 * said before ag_gguf_writer_open. */
void ag_gguf_put_u32(ag_gguf_writer *w, const char *key, uint32_t v);
void ag_gguf_put_f32(ag_gguf_writer *w, const char *key, float v);
void ag_gguf_put_bool(ag_gguf_writer *w, const char *key, bool v);
void ag_gguf_put_string(ag_gguf_writer *w, const char *key, ag_source_string v);
/* values: n elements of a type of numbers, as they lie in memory here (bools: bytes). */
void ag_gguf_put_array(ag_gguf_writer *w, const char *key, ag_gguf_type type, const void *values,
                       size_t n);
void ag_gguf_put_strings(ag_gguf_writer *w, const char *key, const ag_source_string *v, size_t n);
/* As another file has it. */
void ag_gguf_put_entry(ag_gguf_writer *w, const ag_gguf_entry *e);

/* Announces a tensor: its rows fit the type's blocks, its name has at most AG_GGUF_MAX_NAME bytes.
 */
void ag_gguf_add_tensor(ag_gguf_writer *w, const char *name, ag_dtype dtype, const ag_shape *shape);

/* Writes everything in front of the data. */
ag_status ag_gguf_writer_open(ag_gguf_writer *w, const char *path, ag_error *err);
/* The next bytes of data; those of a tensor end with a call of ag_gguf_end_tensor. */
ag_status ag_gguf_write(ag_gguf_writer *w, const void *bytes, size_t n, ag_error *err);
ag_status ag_gguf_end_tensor(ag_gguf_writer *w, ag_error *err);
/* Puts the file in its place; asserts that all announced data came. */
ag_status ag_gguf_writer_commit(ag_gguf_writer *w, ag_error *err);
/* Removes what was not committed. */
void ag_gguf_writer_close(ag_gguf_writer *w);

#endif
