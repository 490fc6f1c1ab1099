/* SPDX-License-Identifier: Apache-2.0 */
/* Products with rows of floats of any width. Include a floats.h first. Element k is added in lane
 * k % WIDE, and the lanes are added in a fixed order, whatever the number of rows. A type provides
 * a function that loads WIDE values; all functions here are inlined into its kernel. */
#ifndef AG_BACKEND_CPU_SIMD_MATMUL_FLOATS_H
#define AG_BACKEND_CPU_SIMD_MATMUL_FLOATS_H

#include "backend/cpu/kernels.h"

typedef struct float_format {
    size_t bytes; /* bytes of a value */
    wide (*load)(const unsigned char *p);
} float_format;

enum { W_ROWS = 4, FAR_BYTES = 32768, NEAR_BYTES = 2048 };

typedef struct float_tile {
    const unsigned char *w;
    size_t row_bytes, k, x_stride, y_stride;
    const float *x;
    float *y;
    const unsigned char *prefetch_end;
} float_tile;

INLINE void prefetch_rows(const unsigned char *p, const float_tile *t, const int rows) {
    if (!FETCHES_WEIGHTS || p >= t->prefetch_end) return;
    for (int j = 0; j < rows; j++, p += t->row_bytes) {
        __builtin_prefetch(p + NEAR_BYTES, 0, 3);
        if ((size_t)(t->prefetch_end - p) > FAR_BYTES) __builtin_prefetch(p + FAR_BYTES, 0, 2);
    }
}

/* Loads the last n < WIDE values of a row, padded with 0. */
INLINE wide load_tail(const float_format *f, const unsigned char *p, size_t n) {
    unsigned char values[WIDE * sizeof(float)] = {0};
    __builtin_memcpy(values, p, n * f->bytes);
    return f->load(values);
}

/* Adds the products of R rows of w with N rows of x at columns i .. i + n. */
INLINE void add_columns(wide acc[][W_ROWS], const int N, const int R, const float_format *f,
                        const float_tile *t, size_t i, size_t n) {
    wide w[W_ROWS];
    for (int j = 0; j < R; j++) {
        const unsigned char *p = t->w + (size_t)j * t->row_bytes + i * f->bytes;
        w[j] = n == WIDE ? f->load(p) : load_tail(f, p, n);
    }
    for (int r = 0; r < N; r++) {
        const wide x = wide_load(t->x + (size_t)r * t->x_stride + i);
        for (int j = 0; j < R; j++) acc[r][j] = wide_fma(w[j], x, acc[r][j]);
    }
}

INLINE void multiply_floats(const int N, const int R, const float_format *f, const float_tile *t) {
    wide acc[X_ROWS][W_ROWS];
    for (int r = 0; r < N; r++) {
        for (int j = 0; j < R; j++) acc[r][j] = wide_zero();
    }
    const size_t whole = t->k / WIDE * WIDE, line = 64 / f->bytes;
    for (size_t i = 0; i < whole; i += WIDE) {
        if (i % line == 0) prefetch_rows(t->w + i * f->bytes, t, R);
        add_columns(acc, N, R, f, t, i, WIDE);
    }
    if (whole < t->k) add_columns(acc, N, R, f, t, whole, t->k - whole);
    for (int r = 0; r < N; r++) {
        for (int j = 0; j < R; j++) {
            t->y[(size_t)r * t->y_stride + (size_t)j] = wide_sum(acc[r][j]);
        }
    }
}

INLINE void multiply_panel(const int R, const float_format *f, float_tile t, size_t m) {
    for (; m >= X_ROWS; m -= X_ROWS) {
        multiply_floats(X_ROWS, R, f, &t);
        t.x += X_ROWS * t.x_stride;
        t.y += X_ROWS * t.y_stride;
        t.prefetch_end = NULL;
    }
    for (; m; m--) {
        multiply_floats(1, R, f, &t);
        t.x += t.x_stride;
        t.y += t.y_stride;
        t.prefetch_end = NULL;
    }
}

INLINE void matmul_floats(const float_format *f, float *y, size_t y_stride, const void *packed,
                          size_t m, const ag_cpu_weight *w, size_t row0, size_t n_rows) {
    float_tile t = {.row_bytes = w->row_bytes, .k = w->k, .x = packed, .y_stride = y_stride};
    t.x_stride = ag_floats_row_bytes(w->k) / sizeof(float);
    t.prefetch_end = w->prefetch_end;
    size_t j = 0;
    for (; j + W_ROWS <= n_rows; j += W_ROWS) {
        t.w = (const unsigned char *)w->data + (row0 + j) * w->row_bytes;
        t.y = y + j;
        multiply_panel(W_ROWS, f, t, m);
    }
    for (; j < n_rows; j++) {
        t.w = (const unsigned char *)w->data + (row0 + j) * w->row_bytes;
        t.y = y + j;
        multiply_panel(1, f, t, m);
    }
}

#define KERNEL(name, bytes)                                                             \
    void SET(ag_matmul_##name)(float *y, size_t y_stride, const void *packed, size_t m, \
                               const ag_cpu_weight *w, size_t row0, size_t n_rows,      \
                               void *scratch) {                                         \
        (void)scratch;                                                                  \
        const float_format f = {bytes, load_##name};                                    \
        matmul_floats(&f, y, y_stride, packed, m, w, row0, n_rows);                     \
    }
KERNEL(f32, sizeof(float))
KERNEL(f16, sizeof(uint16_t))
KERNEL(bf16, sizeof(uint16_t))

#endif
