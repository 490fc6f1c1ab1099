/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/neon/dot__neon_i8mm.h"

void ag_matmul_q2_k_x16__neon_i8mm(float *y, size_t y_stride, const void *packed, size_t m,
                                   const ag_cpu_weight *w, size_t row0, size_t n_rows,
                                   void *scratch) {
    (void)scratch;
    const weight_format f = WEIGHT_FORMAT(q2_k, dot, 0, 1, 1);
    matmul_x16(&f, y, y_stride, packed, m, w, row0, n_rows);
}
