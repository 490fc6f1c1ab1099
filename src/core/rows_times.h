/* SPDX-License-Identifier: Apache-2.0 */
/* Products of rows of floats with a narrow matrix, on the host: any thread may ask for them. */
#ifndef AG_CORE_ROWS_TIMES_H
#define AG_CORE_ROWS_TIMES_H

#include <stddef.h>

enum { AG_SKINNY_COLS = 48 }; /* columns */

/* out[n][AG_SKINNY_COLS] = rows x, k values each and `stride` floats apart, times
 * matrix[k][AG_SKINNY_COLS], in single precision. */
typedef void ag_rows_times_fn(float *out, const float *x, size_t stride, size_t n,
                              const float *matrix, size_t k);

/* What every machine has. */
ag_rows_times_fn ag_rows_times_reference;

#endif
