/* SPDX-License-Identifier: Apache-2.0 */
/* Products with rows of floats of any width. Element k goes to lane k % 8 and the lanes are added
 * in one order, whatever the number of rows. A type brings a function that loads 4 of its values;
 * everything here is inlined into its kernel. */
#ifndef AG_BACKEND_CPU_NEON_MATMUL_FLOATS_H
#define AG_BACKEND_CPU_NEON_MATMUL_FLOATS_H

#include "backend/cpu/neon/neon.h"

#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline))

typedef struct float_format {
    size_t bytes; /* of a value */
    float32x4_t (*load)(const unsigned char *p);
} float_format;

enum { W_ROWS = 4 };

typedef struct float_tile {
    const unsigned char *w;
    size_t row_bytes, k, x_stride, y_stride;
    const float *x;
    float *y;
} float_tile;

/* Eight lanes. */
typedef struct lanes {
    float32x4_t low, high;
} lanes;

INLINE float add_lanes(lanes v) {
    const float32x4_t a = vaddq_f32(v.low, v.high);
    const float32x2_t b = vadd_f32(vget_low_f32(a), vget_high_f32(a));
    return vget_lane_f32(b, 0) + vget_lane_f32(b, 1);
}

/* The last n < 8 values of a row; the rest is 0. */
INLINE lanes load_tail(const float_format *f, const unsigned char *p, size_t n) {
    unsigned char values[8 * sizeof(float)] = {0};
    __builtin_memcpy(values, p, n * f->bytes);
    return (lanes){f->load(values), f->load(values + 4 * f->bytes)};
}

/* R rows of w times N rows of x, at columns i .. i + n. */
INLINE void add_columns(lanes acc[][W_ROWS], const int N, const int R, const float_format *f,
                        const float_tile *t, size_t i, size_t n) {
    lanes w[W_ROWS];
    for (int j = 0; j < R; j++) {
        const unsigned char *p = t->w + (size_t)j * t->row_bytes + i * f->bytes;
        if (n == 8) w[j] = (lanes){f->load(p), f->load(p + 4 * f->bytes)};
        else w[j] = load_tail(f, p, n);
    }
    for (int r = 0; r < N; r++) {
        const float *x = t->x + (size_t)r * t->x_stride + i;
        const float32x4_t low = vld1q_f32(x), high = vld1q_f32(x + 4);
        for (int j = 0; j < R; j++) {
            acc[r][j].low = vfmaq_f32(acc[r][j].low, w[j].low, low);
            acc[r][j].high = vfmaq_f32(acc[r][j].high, w[j].high, high);
        }
    }
}

INLINE void multiply_floats(const int N, const int R, const float_format *f, const float_tile *t) {
    lanes acc[2][W_ROWS];
    for (int r = 0; r < N; r++) {
        for (int j = 0; j < R; j++) acc[r][j] = (lanes){vdupq_n_f32(0), vdupq_n_f32(0)};
    }
    const size_t whole = t->k / 8 * 8;
    for (size_t i = 0; i < whole; i += 8) add_columns(acc, N, R, f, t, i, 8);
    if (whole < t->k) add_columns(acc, N, R, f, t, whole, t->k - whole);
    for (int r = 0; r < N; r++) {
        for (int j = 0; j < R; j++) {
            t->y[(size_t)r * t->y_stride + (size_t)j] = add_lanes(acc[r][j]);
        }
    }
}

INLINE void multiply_panel(const int R, const float_format *f, float_tile t, size_t m) {
    for (; m >= 2; m -= 2) {
        multiply_floats(2, R, f, &t);
        t.x += 2 * t.x_stride;
        t.y += 2 * t.y_stride;
    }
    if (m) multiply_floats(1, R, f, &t);
}

INLINE void matmul_floats(const float_format *f, float *y, size_t y_stride, const void *packed,
                          size_t m, const ag_cpu_weight *w, size_t row0, size_t n_rows) {
    float_tile t = {.row_bytes = w->row_bytes, .k = w->k, .x = packed, .y_stride = y_stride};
    t.x_stride = ag_floats_row_bytes(w->k) / sizeof(float);
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
