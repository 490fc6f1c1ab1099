/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/neon/neon.h"
#include "backend/cpu/neon/vec.h"

#include "backend/cpu/simd/rows_times.h"

void ag_rows_times__neon(float *out, const float *x, size_t stride, size_t n, const float *matrix,
                         size_t k) {
    rows_times(out, x, stride, n, matrix, k);
}
