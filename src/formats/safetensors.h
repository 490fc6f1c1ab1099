/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a safetensors file: 8 bytes of length (little-endian), that many bytes of JSON,
 * then the data of all tensors without a hole. Checked as the reference library checks it, so that
 * what either accepts the other does too; repeated keys are refused here in addition. Source:
 * github.com/huggingface/safetensors, README "Format". */
#ifndef AG_FORMATS_SAFETENSORS_H
#define AG_FORMATS_SAFETENSORS_H

#include <antigravity/tensor.h>

typedef struct ag_st_tensor {
    const char *name;       /* UTF-8, borrowed from the header that lists it */
    const char *dtype_name; /* the format's spelling, "BF16"; static */
    ag_dtype dtype;         /* F32, F16, BF16, I32 or U8; AG_DTYPE_COUNT for the format's others */
    size_t n_dims;          /* as in the file; 0 is a scalar */
    ag_shape shape;         /* empty when n_dims is 0 or above AG_MAX_DIMS */
    uint64_t offset;        /* of the first byte in the file; aligned to nothing in particular */
    uint64_t n_bytes;
    uint32_t file; /* index of the file in an ag_weight_files */
} ag_st_tensor;

/* Tensors in the order of their data. Zero-initialise; release with ag_st_header_free. */
typedef struct ag_st_header {
    ag_st_tensor *tensors;
    size_t n;
    char *names;
} ag_st_header;

enum { AG_ST_PREFIX = 8, AG_ST_MAX_HEADER = 100000000 };

/* Bytes of JSON that follow the prefix, from the first AG_ST_PREFIX bytes of a file (fewer if it is
 * shorter). AG_FORMAT if that cannot be: `path` begins the message. */
ag_status ag_st_header_bytes(const void *prefix, uint64_t file_bytes, const char *path,
                             size_t *n_json, ag_error *err);

/* json[0..n_json) is the header of a file of file_bytes bytes. On success every tensor lies inside
 * the file, has as many bytes as its shape and dtype say, and none overlap. AG_FORMAT otherwise. */
ag_status ag_st_parse(const char *json, size_t n_json, uint64_t file_bytes, const char *path,
                      ag_st_header *out, ag_error *err);
void ag_st_header_free(ag_st_header *h);

#endif
