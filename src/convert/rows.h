/* SPDX-License-Identifier: Apache-2.0 */
/* The data of tensors: rows are brought together, converted by several threads, and written in
 * their order. */
#ifndef AG_CONVERT_ROWS_H
#define AG_CONVERT_ROWS_H

#include "convert/out_model.h"

#include <antigravity/backend.h>

typedef struct ag_row_writer {
    ag_backend *backend; /* borrowed: its threads are used */
    ag_out_model *model; /* borrowed */
    ag_progress_fn progress;
    void *progress_user;
    uint64_t done, total; /* bytes written of tensors */
} ag_row_writer;

/* importance: [columns] or NULL. The bytes do not depend on the number of threads. AG_FORMAT names
 * the first value, by row, that the type cannot hold. */
ag_status ag_write_tensor(ag_row_writer *w, const ag_out_tensor *t, const float *importance,
                          ag_error *err);

#endif
