/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of a weight file: name, type, shape and place of each, as the file's header lists them.
 */
#ifndef AG_FORMATS_TENSOR_LIST_H
#define AG_FORMATS_TENSOR_LIST_H

#include <antigravity/tensor.h>

typedef struct ag_source_tensor {
    const char *name;       /* UTF-8, borrowed from the header that lists it */
    const char *dtype_name; /* the format's spelling, "BF16"; static */
    ag_dtype dtype;         /* AG_DTYPE_COUNT for a type that this library does not have */
    size_t n_dims;          /* as in the file; 0 is a scalar */
    ag_shape shape;         /* empty when n_dims is 0 or above AG_MAX_DIMS */
    uint64_t offset;        /* of the first byte in the file; aligned to nothing in particular */
    uint64_t n_bytes;
    uint32_t file; /* index of the file */
} ag_source_tensor;

/* What the header of one file lists. Zero-initialise; release with ag_tensor_list_free. */
typedef struct ag_tensor_list {
    ag_source_tensor *tensors;
    size_t n;
    char *names;
} ag_tensor_list;
void ag_tensor_list_free(ag_tensor_list *l);
/* By place in the file; of tensors at the same place, the smaller one first. */
void ag_tensor_list_sort(ag_tensor_list *l);

#endif
