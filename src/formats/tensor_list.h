/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor list: name, type, shape and offset of each tensor in a weight file. */
#ifndef AG_FORMATS_TENSOR_LIST_H
#define AG_FORMATS_TENSOR_LIST_H

#include <antigravity/tensor.h>

typedef struct ag_source_tensor {
    const char *name;       /* UTF-8, borrowed from the header that lists it */
    const char *dtype_name; /* the format's spelling, "BF16"; static */
    ag_dtype dtype;         /* AG_DTYPE_COUNT for an unsupported type */
    size_t n_dims;          /* as in the file; 0 for a scalar */
    ag_shape shape;         /* empty if n_dims is 0 or above AG_MAX_DIMS */
    uint64_t offset;        /* offset of the first byte in the file; any alignment */
    uint64_t n_bytes;
    uint32_t file; /* index of the file */
} ag_source_tensor;

/* Tensors of one file. Zero-initialise; release with ag_tensor_list_free(). */
typedef struct ag_tensor_list {
    ag_source_tensor *tensors;
    size_t n;
    char *names;
} ag_tensor_list;
void ag_tensor_list_free(ag_tensor_list *l);
/* Sorts by offset; of equal offsets the smaller tensor comes first. */
void ag_tensor_list_sort(ag_tensor_list *l);

#endif
