/* SPDX-License-Identifier: Apache-2.0 */
/* The importance of columns as a file holds it: sums of squares and how many they are of, for each
 * matrix, as llama.cpp's tools write them. */
#ifndef AG_CONVERT_IMATRIX_FILE_H
#define AG_CONVERT_IMATRIX_FILE_H

#include "formats/weight_source.h"

typedef struct ag_imatrix_file {
    ag_weight_source *source; /* owned */
    size_t n_entries;
    int64_t n_chunks; /* -1: the file does not say */
} ag_imatrix_file;

/* Zero-initialise; AG_FORMAT for a file of something else. */
ag_status ag_imatrix_file_open(ag_imatrix_file *im, const char *path, ag_error *err);
/* Sums of squares of the columns of that tensor, and what they are of: *sums [n_cols] is the
 * caller's to ag_free, NULL if the file has none of the tensor. AG_SHAPE for other columns. */
ag_status ag_imatrix_file_read(const ag_imatrix_file *im, const char *tensor, size_t n_cols,
                               float **sums, double *count, ag_error *err);
void ag_imatrix_file_close(ag_imatrix_file *im);

#endif
