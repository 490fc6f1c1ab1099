/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of embeddings: they stay in the file and rows are read as tokens come. */
#ifndef AG_MODELS_EMBEDDING_H
#define AG_MODELS_EMBEDDING_H

#include "formats/weight_source.h"
#include "models/spec.h"

typedef struct ag_embedding {
    const ag_weight_source *source; /* borrowed; NULL: rows are made up from their ids */
    const ag_source_tensor *table;  /* borrowed */
    size_t n_rows, dim;
    float scale; /* of every value */
    void *row;   /* owned; one row as the file has it */
} ag_embedding;

typedef struct ag_table_shape {
    size_t n_rows, dim;
    float scale; /* of every value */
} ag_table_shape;

/* Rows of a table that tokens choose from. source and table NULL: synthetic. */
ag_status ag_embedding_open(ag_embedding *e, const ag_weight_source *source,
                            const ag_source_tensor *table, const ag_table_shape *shape,
                            ag_error *err);
void ag_embedding_close(ag_embedding *e);

/* dst[i * dim ...] = row ids[i] as F32, scaled, by pread: touching a mapped table would make far
 * more of it resident than is read. AG_INVALID for an id outside the table; AG_FORMAT names a row
 * with a value that is not finite. Allocates nothing. */
ag_status ag_embedding_lookup(ag_embedding *e, float *dst, const int32_t *ids, size_t n,
                              ag_error *err);

#endif
