/* SPDX-License-Identifier: Apache-2.0 */
/* Products with rows of floats of any width. Element k goes to lane k % 16 and the lanes are added
 * in one order, whatever the number of rows. A type brings a function that loads 16 of its values;
 * everything here is inlined into its kernel. */
#ifndef AG_BACKEND_CPU_AVX512_MATMUL_FLOATS_H
#define AG_BACKEND_CPU_AVX512_MATMUL_FLOATS_H

#include "backend/cpu/avx512/avx512.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

typedef struct float_format {
    size_t bytes;                                       /* of a value */
    __m512 (*load)(const unsigned char *p, uint32_t n); /* n < 16: the rest is 0 */
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
    if (p >= t->prefetch_end) return;
    for (int j = 0; j < rows; j++, p += t->row_bytes) {
        _mm_prefetch((const char *)p + NEAR_BYTES, _MM_HINT_T0);
        if ((size_t)(t->prefetch_end - p) > FAR_BYTES) {
            _mm_prefetch((const char *)p + FAR_BYTES, _MM_HINT_T1);
        }
    }
}

INLINE float add_lanes(__m512 v) {
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

/* R rows of w times N rows of x, at columns i .. i + n. */
INLINE void add_columns(__m512 acc[][W_ROWS], const int N, const int R, const float_format *f,
                        const float_tile *t, size_t i, uint32_t n) {
    __m512 w[W_ROWS];
    for (int j = 0; j < R; j++) w[j] = f->load(t->w + (size_t)j * t->row_bytes + i * f->bytes, n);
    for (int r = 0; r < N; r++) {
        const __m512 x = _mm512_load_ps(t->x + (size_t)r * t->x_stride + i);
        for (int j = 0; j < R; j++) acc[r][j] = _mm512_fmadd_ps(w[j], x, acc[r][j]);
    }
}

INLINE void multiply_floats(const int N, const int R, const float_format *f, const float_tile *t) {
    __m512 acc[4][W_ROWS];
    for (int r = 0; r < N; r++) {
        for (int j = 0; j < R; j++) acc[r][j] = _mm512_setzero_ps();
    }
    const size_t whole = t->k / 16 * 16, line = 64 / f->bytes;
    for (size_t i = 0; i < whole; i += 16) {
        if (i % line == 0) prefetch_rows(t->w + i * f->bytes, t, R);
        add_columns(acc, N, R, f, t, i, 16);
    }
    if (whole < t->k) add_columns(acc, N, R, f, t, whole, (uint32_t)(t->k - whole));
    for (int r = 0; r < N; r++) {
        for (int j = 0; j < R; j++) {
            t->y[(size_t)r * t->y_stride + (size_t)j] = add_lanes(acc[r][j]);
        }
    }
}

INLINE void multiply_panel(const int R, const float_format *f, float_tile t, size_t m) {
    for (; m >= 4; m -= 4) {
        multiply_floats(4, R, f, &t);
        t.x += 4 * t.x_stride;
        t.y += 4 * t.y_stride;
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

#endif
