/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/neon/dot__neon.h"

void ag_matmul_iq4_nl_x16__neon(float *y, size_t y_stride, const void *packed, size_t m,
                                const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    (void)scratch;
    const weight_format f = WEIGHT_FORMAT(iq4_nl, dot_bytes, 0, 0, 0);
    matmul_x16(&f, y, y_stride, packed, m, w, row0, n_rows);
}
