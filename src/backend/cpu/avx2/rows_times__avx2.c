/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx2/avx2.h"
#include "backend/cpu/avx2/vec.h"

#include "backend/cpu/simd/rows_times.h"

void ag_rows_times__avx2(float *out, const float *x, size_t stride, size_t n, const float *matrix,
                         size_t k) {
    rows_times(out, x, stride, n, matrix, k);
}
