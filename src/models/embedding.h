/* SPDX-License-Identifier: Apache-2.0 */
/* The embedding table: it stays in the file and rows are read as tokens come. */
#ifndef AG_MODELS_EMBEDDING_H
#define AG_MODELS_EMBEDDING_H

#include "formats/weight_files.h"

typedef struct ag_embedding {
    const ag_weight_files *files; /* borrowed; NULL: rows are made up from their ids */
    const ag_st_tensor *table;    /* borrowed */
    size_t n_rows, dim;
    void *row; /* owned; one row as the file has it */
} ag_embedding;

/* files and table NULL: synthetic. AG_SHAPE if the table is not [n_rows, dim]. */
ag_status ag_embedding_open(ag_embedding *e, const ag_weight_files *files,
                            const ag_st_tensor *table, size_t n_rows, size_t dim, ag_error *err);
void ag_embedding_close(ag_embedding *e);

/* dst[i * dim ...] = row ids[i] as F32, by pread: touching a mapped table would make far more of it
 * resident than is read. AG_INVALID for an id outside the table; AG_FORMAT names a row with a value
 * that is not finite. Allocates nothing. */
ag_status ag_embedding_lookup(ag_embedding *e, float *dst, const int32_t *ids, size_t n,
                              ag_error *err);

#endif
