/* SPDX-License-Identifier: Apache-2.0 */
/* Writes GGUF files, in memory first, where a test may damage them. */
#ifndef AG_TESTS_SUPPORT_GGUF_FILE_H
#define AG_TESTS_SUPPORT_GGUF_FILE_H

#include "formats/gguf.h"

typedef struct gguf_bytes {
    unsigned char *data;
    size_t n;
} gguf_bytes;

/* Zero-initialise, put keys and tensors in any order, finish or save; always gguf_file_free. */
typedef struct gguf_file {
    uint32_t version;   /* 0: 3 */
    uint32_t alignment; /* alignment of the data; 0: 32. The caller puts the key */
    uint64_t n_keys, n_tensors;
    gguf_bytes keys, table, data, whole;
} gguf_file;

/* Numbers of types of tensors in the file. */
enum {
    GGML_F32 = 0,
    GGML_F16 = 1,
    GGML_Q4_0 = 2,
    GGML_Q8_0 = 8,
    GGML_Q4_K = 12,
    GGML_I32 = 26,
    GGML_BF16 = 30
};

void gguf_put_u32(gguf_file *f, const char *key, uint32_t v);
void gguf_put_f32(gguf_file *f, const char *key, float v);
void gguf_put_bool(gguf_file *f, const char *key, bool v);
void gguf_put_string(gguf_file *f, const char *key, const char *v);
void gguf_put_strings(gguf_file *f, const char *key, const char *const *v, size_t n);
/* Puts an array of numbers, whose bytes are copied unchanged. */
void gguf_put_array(gguf_file *f, const char *key, ag_gguf_type type, const void *v, size_t n);
/* One value of any type in the bytes that it has in a file. */
void gguf_put_value(gguf_file *f, const char *key, uint32_t type, const void *bytes, size_t n);

/* shape: outermost first. The data are padded to the alignment; NULL: zeros. */
void gguf_put_tensor(gguf_file *f, const char *name, uint32_t type, ag_shape shape,
                     const void *data, size_t n_bytes);

/* The file; borrowed from f, until something is put again. */
const gguf_bytes *gguf_file_finish(gguf_file *f);
/* False, with a message on stderr, if it cannot be written. */
bool gguf_file_save(gguf_file *f, const char *path);
void gguf_file_free(gguf_file *f);

#endif
