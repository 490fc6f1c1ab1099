/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the importance of columns from a file in llama.cpp's format: for each matrix the sums of
 * squares and the number of rows in them. */
#ifndef AG_CONVERT_IMATRIX_FILE_H
#define AG_CONVERT_IMATRIX_FILE_H

#include "formats/weight_source.h"

typedef struct ag_imatrix_file {
    ag_weight_source *source; /* owned */
    size_t n_entries;
    int64_t n_chunks; /* -1: the file does not have it */
} ag_imatrix_file;

/* Overwrites *im. Returns AG_FORMAT for any other kind of file. */
ag_status ag_imatrix_file_open(ag_imatrix_file *im, const char *path, ag_error *err);
/* Reads the tensor's sums of squares, and the numbers of rows in them. n_experts is 1 for a tensor
 * that is one matrix. The caller frees *sums [n_experts][n_cols] and *counts [n_experts] with
 * ag_free; both are NULL if the file does not have the tensor. Returns AG_SHAPE for another number
 * of experts or columns. */
ag_status ag_imatrix_file_read(const ag_imatrix_file *im, const char *tensor, size_t n_experts,
                               size_t n_cols, float **sums, float **counts, ag_error *err);
void ag_imatrix_file_close(ag_imatrix_file *im);

#endif
