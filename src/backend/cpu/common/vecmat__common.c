/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/common/common.h"

/* Processes columns in blocks, so that the sums stay in L1 while b is read row by row. */
void ag_vecmat__common(float *y, const float *a, const float *b, size_t b_stride, size_t k,
                       size_t n) {
    enum { COLUMNS = 64 };
    for (size_t j0 = 0; j0 < n; j0 += COLUMNS) {
        size_t width = n - j0 < COLUMNS ? n - j0 : COLUMNS;
        double sums[COLUMNS] = {0};
        for (size_t i = 0; i < k; i++) {
            const double factor = a[i];
            const float *row = b + i * b_stride + j0;
            for (size_t j = 0; j < width; j++) sums[j] += factor * row[j];
        }
        for (size_t j = 0; j < width; j++) y[j0 + j] = (float)sums[j];
    }
}
