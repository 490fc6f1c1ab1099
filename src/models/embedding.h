/* SPDX-License-Identifier: Apache-2.0 */
/* Embedding table: stays in the file; rows are read for each token. */
#ifndef AG_MODELS_EMBEDDING_H
#define AG_MODELS_EMBEDDING_H

#include "formats/weight_source.h"
#include "models/spec.h"

typedef struct ag_embedding {
    const ag_weight_source *source; /* borrowed; NULL: synthetic rows */
    const ag_source_tensor *table;  /* borrowed */
    ag_dtype type;                  /* type of the rows in the file, or of synthetic rows */
    size_t n_rows, dim;
    float scale; /* factor of every value */
    void *row;   /* owned; space for dim values of any type */
} ag_embedding;

typedef struct ag_table_shape {
    size_t n_rows, dim;
    float scale; /* factor of every value */
} ag_table_shape;

/* Opens a table. source and table NULL: rows are made up from their ids. */
ag_status ag_embedding_open(ag_embedding *e, const ag_weight_source *source,
                            const ag_source_tensor *table, const ag_table_shape *shape,
                            ag_error *err);
void ag_embedding_close(ag_embedding *e);

/* Reads row ids[i] into dst[i * dim ...] as F32, scaled. Reads by pread, since a mapped table would
 * become resident in far larger pieces. Fails with AG_INVALID for an id outside the table; with
 * AG_FORMAT for a value that is not finite. Does not allocate. */
ag_status ag_embedding_lookup(ag_embedding *e, float *dst, const int32_t *ids, size_t n,
                              ag_error *err);
/* Reads rows of e->type as they are in the file, not scaled. Fails as ag_embedding_lookup() does.
 */
ag_status ag_embedding_read(ag_embedding *e, void *dst, const int32_t *ids, size_t n,
                            ag_error *err);

#endif
