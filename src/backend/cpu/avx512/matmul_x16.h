/* SPDX-License-Identifier: Apache-2.0 */
/* Product of interleaved weights with packed activations. A type of weight provides a function that
 * unpacks 16 rows of one block. All functions here are inlined into its kernel. */
#ifndef AG_BACKEND_CPU_AVX512_MATMUL_X16_H
#define AG_BACKEND_CPU_AVX512_MATMUL_X16_H

#include "backend/cpu/avx512/avx512.h"
#include "backend/cpu/avx512/prefetch.h"
#include "backend/cpu/avx512/unpack.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

/* One block of 16 rows: eight vectors of four columns, as unsigned bytes. */
typedef struct weight_block {
    __m512i q[8];
    __m512 d, m;
    __m512 part[2];   /* scales of the sums of columns 0 to 15 and 16 to 31 */
    __m512 part_m[2]; /* their m, if the halves have separate scales */
} weight_block;

typedef struct weight_format {
    size_t step_bytes, step_blocks;
    weight_block (*unpack)(const unsigned char *step, size_t block);
    uint32_t correction; /* factor of the tile's c */
    int has_m, has_parts;
} weight_format;

/* Describes a type of weight. */
#define WEIGHT_FORMAT(name, unpack, correction, has_m, has_parts) \
    { sizeof(ag_##name##_x16), AG_X16_STEP_BLOCKS(name), unpack, correction, has_m, has_parts }

INLINE __m512i spread4(const int8_t *q) {
    int32_t four;
    __builtin_memcpy(&four, q, sizeof four);
    return _mm512_set1_epi32(four);
}

/* Returns the initial sum for products from vector `from` on: the correction of the levels. */
INLINE __m512i corrected(const weight_format *f, const ag_x16_tile *t, size_t at, const int from) {
    const int32_t c = !f->has_parts ? t->c[at] : from ? t->c[at] - t->h[at] : t->h[at];
    return _mm512_set1_epi32((int)((uint32_t)c * f->correction));
}

/* sums[j] = vectors [from, to) of w times row `at` + j of the activations, j < n. */
INLINE void dot(__m512i *sums, const int n, const weight_format *f, const weight_block *w,
                const ag_x16_tile *t, size_t at, const int from, const int to) {
    for (int j = 0; j < n; j++) sums[j] = corrected(f, t, at + (size_t)j, from);
    for (int v = from; v < to; v++) {
        for (int j = 0; j < n; j++) {
            const int8_t *q = t->q + (at + (size_t)j) * 32 + v * 4;
            sums[j] = _mm512_dpbusd_epi32(sums[j], w->q[v], spread4(q));
        }
    }
}

/* Returns acc + m times the sum of the activations. */
INLINE __m512 add_m(__m512 acc, const weight_format *f, const weight_block *w, const ag_x16_tile *t,
                    size_t at) {
    if (!f->has_parts) return _mm512_fmadd_ps(w->m, _mm512_set1_ps(t->s[at]), acc);
    const float first = ag_x16_first_s(t, at);
    acc = _mm512_fmadd_ps(w->part_m[0], _mm512_set1_ps(first), acc);
    return _mm512_fmadd_ps(w->part_m[1], _mm512_set1_ps(t->s[at] - first), acc);
}

/* Maximum rows of activations multiplied at a time. Fewer rows wait for their own additions; more
 * rows exceed the registers. */
enum { TOGETHER = 8 };
INLINE int rows_together(const int N, const weight_format *f) {
    if (N > 8) return 2;
    return !f->has_parts ? TOGETHER : N > 4 ? 2 : 4;
}

/* acc[i] += rows of w times row first + i of the tile, i < N. Prefetches parts of a step. */
INLINE void add_block(__m512 *acc, const int N, const weight_format *f, const weight_block *w,
                      const ag_x16_tile *t, size_t block, size_t first, prefetch ahead,
                      size_t part) {
    const size_t n_parts = 2 * f->step_blocks;
    const int together = rows_together(N, f);
    for (int i = 0; i < N; i += together) {
        const int n = N - i < together ? N - i : together;
        const size_t at = block * t->n_rows + first + (size_t)i;
        __m512i sums[TOGETHER], others[TOGETHER];
        if (i == 0) prefetch_part(f->step_bytes, ahead, part, n_parts);
        dot(sums, n, f, w, t, at, 0, f->has_parts ? 4 : 8);
        if (f->has_parts) dot(others, n, f, w, t, at, 4, 8);
        if (i == 0) prefetch_part(f->step_bytes, ahead, part + 1, n_parts);
        for (int j = 0; j < n; j++) {
            const __m512 scale = _mm512_mul_ps(w->d, _mm512_set1_ps(t->d[at + (size_t)j]));
            __m512 sum = _mm512_cvtepi32_ps(sums[j]);
            if (f->has_parts) {
                sum = _mm512_mul_ps(sum, w->part[0]);
                sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(others[j]), w->part[1], sum);
            }
            acc[i + j] = _mm512_fmadd_ps(sum, scale, acc[i + j]);
            if (!f->has_m) continue;
            acc[i + j] = add_m(acc[i + j], f, w, t, at + (size_t)j);
        }
    }
}

/* Multiplies rows first .. first + N of the tile with one group of weights. */
INLINE void multiply_group(__m512 *acc, const int N, const weight_format *f,
                           const unsigned char *group, const unsigned char *prefetch_end,
                           const ag_x16_tile *t, size_t first) {
    for (int i = 0; i < N; i++) acc[i] = _mm512_setzero_ps();
    for (size_t b = 0; b < t->n_blocks; group += f->step_bytes) {
        const prefetch ahead = prefetch_of(group, prefetch_end);
        for (size_t pair = 0; pair < f->step_blocks; pair += 2, b += 2) {
            for (size_t half = 0; half < 2; half++) {
                const weight_block w = f->unpack(group, pair + half);
                add_block(acc, N, f, &w, t, b + half, first, ahead, 2 * (pair + half));
            }
        }
    }
}

/* One group of weights and its 16 columns of y. */
typedef struct group_call {
    const weight_format *f;
    const unsigned char *group, *prefetch_end;
    float *y;
    size_t y_stride;
    __mmask16 lanes; /* existing rows of the group */
} group_call;

INLINE void multiply_rows(const int N, const group_call *c, const ag_x16_tile *t, size_t first) {
    __m512 acc[16];
    multiply_group(acc, N, c->f, c->group, c->prefetch_end, t, first);
    for (int i = 0; i < N; i++) {
        _mm512_mask_storeu_ps(c->y + (first + (size_t)i) * c->y_stride, c->lanes, acc[i]);
    }
}

/* Multiplies up to 8 rows from `first` on, with separate code for each count. Returns the count. */
INLINE size_t multiply_some(const group_call *c, const ag_x16_tile *t, size_t first) {
    switch (t->n_rows - first) {
    case 1:
        multiply_rows(1, c, t, first);
        return 1;
    case 2:
        multiply_rows(2, c, t, first);
        return 2;
    case 3:
        multiply_rows(3, c, t, first);
        return 3;
    case 4:
        multiply_rows(4, c, t, first);
        return 4;
    case 5:
        multiply_rows(5, c, t, first);
        return 5;
    case 6:
        multiply_rows(6, c, t, first);
        return 6;
    case 7:
        multiply_rows(7, c, t, first);
        return 7;
    default:
        multiply_rows(8, c, t, first);
        return 8;
    }
}

INLINE void multiply_tile(group_call *c, const ag_x16_tile *t) {
    if (t->n_rows == AG_X16) {
        multiply_rows(AG_X16, c, t, 0);
        return;
    }
    for (size_t i = 0; i < t->n_rows; c->prefetch_end = NULL) i += multiply_some(c, t, i);
}

INLINE void matmul_x16(const weight_format *f, float *y, size_t y_stride, const void *packed,
                       size_t m, const ag_cpu_weight *w, size_t row0, size_t n_rows) {
    const size_t group_bytes = ag_x16_steps(w->k) * 2 / f->step_blocks * f->step_bytes;
    group_call c = {.f = f, .y_stride = y_stride};
    c.group = (const unsigned char *)w->data + row0 / AG_X16 * group_bytes;
    for (size_t j = 0; j < n_rows; j += AG_X16, c.group += group_bytes) {
        const size_t n = n_rows - j < AG_X16 ? n_rows - j : AG_X16;
        c.lanes = (__mmask16)((1u << n) - 1);
        c.prefetch_end = w->prefetch_end;
        for (size_t i = 0; i < m; i += AG_X16, c.prefetch_end = NULL) {
            const ag_x16_tile t = ag_x16_tile_of(packed, i, m, w->k);
            c.y = y + i * y_stride + j;
            multiply_tile(&c, &t);
        }
    }
}

#endif
