/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the data of tensors: collects the rows, converts them on several threads and writes them
 * in order. */
#ifndef AG_CONVERT_ROWS_H
#define AG_CONVERT_ROWS_H

#include "convert/out_model.h"

#include <antigravity/backend.h>

typedef struct ag_row_writer {
    ag_backend *backend; /* borrowed; provides the threads */
    ag_out_model *model; /* borrowed */
    ag_progress_fn progress;
    void *progress_user;
    uint64_t done, total; /* bytes of tensor data: written, in total */
} ag_row_writer;

/* importance: [experts][columns], or NULL. The output does not depend on the number of threads.
 * Returns AG_FORMAT with the first value, in order of rows, that the type cannot hold. */
ag_status ag_write_tensor(ag_row_writer *w, const ag_out_tensor *t, const float *importance,
                          ag_error *err);

#endif
