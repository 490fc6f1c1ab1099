/* SPDX-License-Identifier: Apache-2.0 */
/* Products of rows of floats with a skinny matrix of 48 columns, on the host. Any thread may call
 * them. */
#ifndef AG_CORE_ROWS_TIMES_H
#define AG_CORE_ROWS_TIMES_H

#include <stddef.h>

enum { AG_SKINNY_COLS = 48 }; /* columns of the matrix */

/* Sets out[n][AG_SKINNY_COLS] = x * matrix[k][AG_SKINNY_COLS] in single precision. x has n rows of
 * k values, every `stride` floats. */
typedef void ag_rows_times_fn(float *out, const float *x, size_t stride, size_t n,
                              const float *matrix, size_t k);

/* The portable kernel. */
ag_rows_times_fn ag_rows_times_reference;

#endif
