/* SPDX-License-Identifier: Apache-2.0 */
/* A set's products of rows with a narrow matrix. Include a vec.h and define SET(name) first. The
 * sums of a few rows and a third or a half of the columns stay in registers. */
#ifndef AG_BACKEND_CPU_SIMD_ROWS_TIMES_H
#define AG_BACKEND_CPU_SIMD_ROWS_TIMES_H

#include "core/rows_times.h"

enum { SUM_ROWS = LANES == 16 ? 8 : 4, SUM_VECS = 3 };
_Static_assert(AG_SKINNY_COLS % (SUM_VECS * LANES) == 0, "not a multiple of vectors");

INLINE void some_columns(float *out, const float *const x[SUM_ROWS], size_t n, const float *matrix,
                         size_t k) {
    vec sums[SUM_ROWS][SUM_VECS];
    for (int r = 0; r < SUM_ROWS; r++)
        for (int v = 0; v < SUM_VECS; v++) sums[r][v] = v_zero();
    for (size_t i = 0; i < k; i++) {
        vec at[SUM_VECS];
        for (int v = 0; v < SUM_VECS; v++) at[v] = v_load(matrix + i * AG_SKINNY_COLS + v * LANES);
        for (int r = 0; r < SUM_ROWS; r++) {
            const vec by = v_set(x[r][i]);
            for (int v = 0; v < SUM_VECS; v++) sums[r][v] = v_fma(by, at[v], sums[r][v]);
        }
    }
    for (int r = 0; r < SUM_ROWS; r++)
        for (int v = 0; v < SUM_VECS && (size_t)r < n; v++)
            v_store(out + (size_t)r * AG_SKINNY_COLS + v * LANES, sums[r][v]);
}

void SET(ag_rows_times)(float *out, const float *x, size_t stride, size_t n, const float *matrix,
                        size_t k) {
    const float *row[SUM_ROWS];
    for (size_t i = 0; i < n; i += SUM_ROWS) {
        const size_t some = n - i < SUM_ROWS ? n - i : SUM_ROWS;
        for (size_t r = 0; r < SUM_ROWS; r++) row[r] = x + (i + (r < some ? r : some - 1)) * stride;
        for (size_t c = 0; c < AG_SKINNY_COLS; c += SUM_VECS * LANES)
            some_columns(out + i * AG_SKINNY_COLS + c, row, some, matrix + c, k);
    }
}

#endif
