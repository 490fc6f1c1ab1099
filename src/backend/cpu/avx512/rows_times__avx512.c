/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx512/avx512.h"
#include "backend/cpu/avx512/vec.h"

#include "backend/cpu/simd/rows_times.h"

void ag_rows_times__avx512(float *out, const float *x, size_t stride, size_t n, const float *matrix,
                           size_t k) {
    rows_times(out, x, stride, n, matrix, k);
}
