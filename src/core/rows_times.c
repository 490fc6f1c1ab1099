/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rows_times.h"

#include "quant/vectors.h"

#include <string.h>

/* Rows and vectors per step, so that their sums stay in registers. */
enum { ROWS = 4, VECS = 2 };

/* Computes columns [c, c + VECS * LANES) of up to ROWS rows. */
static void add_columns(float *out, const float *const x[ROWS], size_t n, const float *matrix,
                        size_t k, size_t c) {
    vec sums[ROWS][VECS] = {0};
    for (size_t i = 0; i < k; i++) {
        const float *at = matrix + i * AG_SKINNY_COLS + c;
        const vec a = v_load(at), b = v_load(at + LANES);
        for (size_t r = 0; r < ROWS; r++) {
            sums[r][0] += a * x[r][i];
            sums[r][1] += b * x[r][i];
        }
    }
    for (size_t r = 0; r < n; r++) memcpy(out + r * AG_SKINNY_COLS + c, sums[r], sizeof sums[r]);
}

void ag_rows_times_reference(float *out, const float *x, size_t stride, size_t n,
                             const float *matrix, size_t k) {
    const float *row[ROWS];
    for (size_t i = 0; i < n; i += ROWS) {
        const size_t n_rows = n - i < ROWS ? n - i : ROWS;
        for (size_t r = 0; r < ROWS; r++) row[r] = x + (i + (r < n_rows ? r : n_rows - 1)) * stride;
        for (size_t c = 0; c < AG_SKINNY_COLS; c += VECS * LANES)
            add_columns(out + i * AG_SKINNY_COLS, row, n_rows, matrix, k, c);
    }
}
