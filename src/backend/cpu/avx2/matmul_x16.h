/* SPDX-License-Identifier: Apache-2.0 */
/* The product of interleaved weights with packed activations, 8 of the 16 rows at a time. A type of
 * weight brings two functions: one unpacks 8 rows of one block, one multiplies them with 32
 * activations. Everything here is inlined into its kernel. */
#ifndef AG_BACKEND_CPU_AVX2_MATMUL_X16_H
#define AG_BACKEND_CPU_AVX2_MATMUL_X16_H

#include "backend/cpu/avx2/avx2.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

typedef struct weight_block {
    __m256i q[8];
    __m256 d, m;
} weight_block;

typedef struct weight_format {
    size_t step_bytes;
    weight_block (*unpack)(const unsigned char *step, int block, int half);
    __m256i (*dot)(const weight_block *w, const int8_t *q); /* in int32, a lane for each row */
    int adds_c, has_m;
} weight_format;

INLINE __m256 load_halves(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128(p)); }

INLINE __m256i spread4(const int8_t *q) {
    int32_t four;
    __builtin_memcpy(&four, q, sizeof four);
    return _mm256_set1_epi32(four);
}

/* Values of w from 0 to 15: eight sums of two products are at most 8 * 2 * 15 * 127 = 30480. */
INLINE __m256i dot_nibbles(const weight_block *w, const int8_t *q) {
    __m256i sums = _mm256_maddubs_epi16(w->q[0], spread4(q));
    for (int v = 1; v < 8; v++) {
        sums = _mm256_add_epi16(sums, _mm256_maddubs_epi16(w->q[v], spread4(q + v * 4)));
    }
    return _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
}

INLINE __m256 add_block(__m256 acc, const weight_format *f, const weight_block *w,
                        const ag_x16_tile *t, size_t at) {
    __m256i sums = f->dot(w, t->q + at * 32);
    if (f->adds_c) sums = _mm256_add_epi32(sums, _mm256_set1_epi32(t->c[at]));
    const __m256 scale = _mm256_mul_ps(w->d, _mm256_set1_ps(t->d[at]));
    acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), scale, acc);
    return f->has_m ? _mm256_fmadd_ps(w->m, _mm256_set1_ps(t->s[at]), acc) : acc;
}

/* Memory into the second-level cache, that into the first. */
enum { FAR_BYTES = 32768, NEAR_BYTES = 4608 };

INLINE void prefetch_step(const weight_format *f, const unsigned char *step,
                          const unsigned char *end) {
    if (step >= end) return;
    const size_t left = (size_t)(end - step);
    for (size_t i = 0; i < f->step_bytes; i += 64) {
        if (left > FAR_BYTES) _mm_prefetch((const char *)step + FAR_BYTES + i, _MM_HINT_T1);
        _mm_prefetch((const char *)step + NEAR_BYTES + i, _MM_HINT_T0);
    }
}

/* One group of weights and where its 16 columns of y begin. */
typedef struct group_call {
    const weight_format *f;
    const unsigned char *group, *prefetch_end;
    float *y;
    size_t y_stride, n; /* rows of the group that exist */
} group_call;

INLINE void store_row(float *y, __m256 low, __m256 high, size_t n) {
    if (n == AG_X16) {
        _mm256_storeu_ps(y, low);
        _mm256_storeu_ps(y + 8, high);
        return;
    }
    float row[AG_X16];
    _mm256_storeu_ps(row, low);
    _mm256_storeu_ps(row + 8, high);
    for (size_t i = 0; i < n; i++) y[i] = row[i];
}

/* Rows first .. first + N of the tile times the group. */
INLINE void multiply_rows(const int N, const group_call *c, const ag_x16_tile *t, size_t first) {
    __m256 acc[4][2];
    for (int i = 0; i < N; i++) acc[i][0] = acc[i][1] = _mm256_setzero_ps();
    const unsigned char *step = c->group;
    for (size_t b = 0; b < t->n_blocks; b++) {
        if (b % 2 == 0) prefetch_step(c->f, step, c->prefetch_end);
        for (int half = 0; half < 2; half++) {
            const weight_block w = c->f->unpack(step, (int)(b % 2), half);
            for (int i = 0; i < N; i++) {
                const size_t at = b * t->n_rows + first + (size_t)i;
                acc[i][half] = add_block(acc[i][half], c->f, &w, t, at);
            }
        }
        if (b % 2 == 1) step += c->f->step_bytes;
    }
    for (int i = 0; i < N; i++) {
        store_row(c->y + (first + (size_t)i) * c->y_stride, acc[i][0], acc[i][1], c->n);
    }
}

INLINE void multiply_tile(group_call *c, const ag_x16_tile *t) {
    size_t i = 0;
    for (; i + 4 <= t->n_rows; i += 4, c->prefetch_end = NULL) multiply_rows(4, c, t, i);
    for (; i < t->n_rows; i++, c->prefetch_end = NULL) multiply_rows(1, c, t, i);
}

INLINE void matmul_x16(const weight_format *f, float *y, size_t y_stride, const void *packed,
                       size_t m, const ag_cpu_weight *w, size_t row0, size_t n_rows) {
    const size_t group_bytes = ag_x16_steps(w->k) * f->step_bytes;
    group_call c = {.f = f, .y_stride = y_stride};
    c.group = (const unsigned char *)w->data + row0 / AG_X16 * group_bytes;
    for (size_t j = 0; j < n_rows; j += AG_X16, c.group += group_bytes) {
        c.n = n_rows - j < AG_X16 ? n_rows - j : AG_X16;
        c.prefetch_end = w->prefetch_end;
        for (size_t i = 0; i < m; i += AG_X16) {
            const ag_x16_tile t = ag_x16_tile_of(packed, i, m, w->k);
            c.y = y + i * y_stride + j;
            multiply_tile(&c, &t);
        }
    }
}

#endif
