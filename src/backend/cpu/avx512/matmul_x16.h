/* SPDX-License-Identifier: Apache-2.0 */
/* Product of interleaved weights with packed activations. A type of weight provides a function that
 * unpacks 16 rows of one block. All functions here are inlined into its kernel.
 *
 * For many rows of activations, CHUNK blocks of two groups are unpacked to scratch memory and
 * multiplied with all rows. Panels below 16 rows, and the last rows beyond a multiple of ROWS, are
 * multiplied as their weights are unpacked. */
#ifndef AG_BACKEND_CPU_AVX512_MATMUL_X16_H
#define AG_BACKEND_CPU_AVX512_MATMUL_X16_H

#include "backend/cpu/avx512/avx512.h"
#include "backend/cpu/avx512/prefetch.h"
#include "backend/cpu/avx512/unpack.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { CHUNK = 16, ROWS = 8 }; /* blocks of two groups fit the first-level cache */

/* One block of 16 rows: eight vectors of four columns, as unsigned bytes. */
typedef struct weight_block {
    __m512i q[8];
    __m512 d, m;
    __m512 part[2];   /* scales of the sums of columns 0 to 15 and 16 to 31 */
    __m512 part_m[2]; /* their m, if the halves have separate scales */
} weight_block;

typedef struct weight_format {
    size_t step_bytes, step_blocks;
    void (*unpack)(weight_block *w, const unsigned char *step, size_t block);
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

/* sums[j][h] = vectors [from, to) of w[h] times row `at` + j of the activations, j < n, h < H. */
INLINE void dot(__m512i sums[][2], const int n, const int H, const weight_format *f,
                const weight_block *w, const ag_x16_tile *t, size_t at, const int from,
                const int to) {
    for (int j = 0; j < n; j++) {
        for (int h = 0; h < H; h++) sums[j][h] = corrected(f, t, at + (size_t)j, from);
    }
    for (int v = from; v < to; v++) {
        for (int j = 0; j < n; j++) {
            const __m512i x = spread4(t->q + (at + (size_t)j) * 32 + v * 4);
            for (int h = 0; h < H; h++) {
                sums[j][h] = _mm512_dpbusd_epi32(sums[j][h], w[h * CHUNK].q[v], x);
            }
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

/* Returns the rows whose sums are computed at a time, beside a block in registers. Fewer rows wait
 * for their own additions; more rows exceed the registers. */
INLINE int rows_together(const int N, const weight_format *f) {
    return !f->has_parts ? ROWS : N > 4 ? 2 : 4;
}

/* acc[i][h] += row `at` + i of the activations times w[h], i < N, h < H, whose sums are computed
 * `together` rows at a time. */
INLINE void add_block(__m512 acc[][2], const int N, const int H, const int together,
                      const weight_format *f, const weight_block *w, const ag_x16_tile *t,
                      size_t at) {
    for (int i = 0; i < N; i += together, at += (size_t)together) {
        const int n = N - i < together ? N - i : together;
        __m512i sums[ROWS][2], others[ROWS][2];
        dot(sums, n, H, f, w, t, at, 0, f->has_parts ? 4 : 8);
        if (f->has_parts) dot(others, n, H, f, w, t, at, 4, 8);
        for (int j = 0; j < n; j++) {
            const __m512 d = _mm512_set1_ps(t->d[at + (size_t)j]);
            for (int h = 0; h < H; h++) {
                const weight_block *b = &w[h * CHUNK];
                __m512 sum = _mm512_cvtepi32_ps(sums[j][h]);
                if (f->has_parts) {
                    sum = _mm512_mul_ps(sum, b->part[0]);
                    sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(others[j][h]), b->part[1], sum);
                }
                acc[i + j][h] = _mm512_fmadd_ps(sum, _mm512_mul_ps(b->d, d), acc[i + j][h]);
                if (!f->has_m) continue;
                acc[i + j][h] = add_m(acc[i + j][h], f, b, t, at + (size_t)j);
            }
        }
    }
}

/* Multiplies rows first .. first + N of the tile with one group of weights. */
INLINE void multiply_group(__m512 acc[][2], const int N, const weight_format *f,
                           const unsigned char *group, const unsigned char *prefetch_end,
                           const ag_x16_tile *t, size_t first) {
    for (int i = 0; i < N; i++) acc[i][0] = _mm512_setzero_ps();
    for (size_t b = 0; b < t->n_blocks; group += f->step_bytes) {
        const prefetch ahead = prefetch_of(group, prefetch_end);
        for (size_t in_step = 0; in_step < f->step_blocks; in_step++, b++) {
            weight_block w;
            f->unpack(&w, group, in_step);
            prefetch_part(f->step_bytes, ahead, in_step, f->step_blocks);
            add_block(acc, N, 1, rows_together(N, f), f, &w, t, b * t->n_rows + first);
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
    __m512 acc[ROWS][2];
    multiply_group(acc, N, c->f, c->group, c->prefetch_end, t, first);
    for (int i = 0; i < N; i++) {
        _mm512_mask_storeu_ps(c->y + (first + (size_t)i) * c->y_stride, c->lanes, acc[i][0]);
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

/* Multiplies the rows of the tile from `first` on. */
INLINE void multiply_few(group_call *c, const ag_x16_tile *t, size_t first) {
    for (; first < t->n_rows; c->prefetch_end = NULL) first += multiply_some(c, t, first);
}

/* Returns the lanes of a group of which n rows are left. */
INLINE __mmask16 lanes_of(size_t n) { return (__mmask16)(n < AG_X16 ? (1u << n) - 1 : 0xffff); }

/* Unpacks n blocks of the group, from block `first` on. */
INLINE void unpack_chunk(weight_block *w, const group_call *c, size_t first, size_t n) {
    const weight_format *f = c->f;
    for (size_t b = first; b < first + n; b++, w++) {
        f->unpack(w, c->group + b / f->step_blocks * f->step_bytes, b % f->step_blocks);
    }
}

/* Adds the products of n blocks from block `first` on with rows row .. row + N of the tile. w has
 * the blocks of H groups. */
INLINE void multiply_chunk(const int N, const int H, const group_call *c, const weight_block *w,
                           size_t first, size_t n, const ag_x16_tile *t, size_t row) {
    __m512 acc[ROWS][2];
    float *y = c->y + row * c->y_stride;
    const __mmask16 lanes[2] = {H == 1 ? c->lanes : 0xffff, c->lanes};
    for (int i = 0; i < N; i++) {
        for (int h = 0; h < H; h++) {
            const float *from = y + (size_t)i * c->y_stride + h * AG_X16;
            acc[i][h] = _mm512_maskz_loadu_ps(first ? lanes[h] : 0, from);
        }
    }
    for (size_t b = 0; b < n; b++) {
        add_block(acc, N, H, N, c->f, &w[b], t, (first + b) * t->n_rows + row);
    }
    for (int i = 0; i < N; i++) {
        for (int h = 0; h < H; h++) {
            float *to = y + (size_t)i * c->y_stride + h * AG_X16;
            _mm512_mask_storeu_ps(to, lanes[h], acc[i][h]);
        }
    }
}

/* Multiplies n blocks with the first rows of the tile, a multiple of ROWS. Two groups share each
 * load of activations. With 12 sums at a time their additions do not wait for each other; types
 * with parts have registers for 8. */
INLINE void multiply_tile(const int H, const group_call *c, const weight_block *w, size_t first,
                          size_t n, const ag_x16_tile *t, size_t n_rows) {
    size_t row = 0;
    if (H == 1) {
        for (; row < n_rows; row += ROWS) multiply_chunk(ROWS, 1, c, w, first, n, t, row);
        return;
    }
    for (; !c->f->has_parts && row + 10 <= n_rows; row += 6)
        multiply_chunk(6, 2, c, w, first, n, t, row);
    for (; row < n_rows; row += 4) multiply_chunk(4, 2, c, w, first, n, t, row);
}

/* Multiplies all groups with a panel of m rows but the last m % ROWS. Chunks of groups take turns:
 * a part of the panel stays in the second-level cache for all groups, however large the panel is.
 */
INLINE void multiply_many(group_call c, const void *packed, size_t m, const ag_cpu_weight *w,
                          size_t n_rows, size_t group_bytes, weight_block *unpacked) {
    const size_t n_blocks = ag_x16_steps(w->k) * 2;
    for (size_t first = 0; first < n_blocks; first += CHUNK) {
        const size_t n = n_blocks - first < CHUNK ? n_blocks - first : CHUNK;
        for (size_t j = 0; j < n_rows; j += 2 * AG_X16) {
            const bool has_two = n_rows - j > AG_X16;
            group_call some = c;
            some.group += j / AG_X16 * group_bytes;
            unpack_chunk(unpacked, &some, first, n);
            some.group += group_bytes;
            if (has_two) unpack_chunk(unpacked + CHUNK, &some, first, n);
            some.lanes = lanes_of(n_rows - j - (has_two ? AG_X16 : 0));
            for (size_t i = 0; i + ROWS <= m; i += AG_X16) {
                const ag_x16_tile t = ag_x16_tile_of(packed, i, m, w->k);
                const size_t rows = t.n_rows / ROWS * ROWS;
                some.y = c.y + i * c.y_stride + j;
                if (has_two) multiply_tile(2, &some, unpacked, first, n, &t, rows);
                else multiply_tile(1, &some, unpacked, first, n, &t, rows);
            }
        }
    }
}

INLINE void matmul_x16(const weight_format *f, float *y, size_t y_stride, const void *packed,
                       size_t m, const ag_cpu_weight *w, size_t row0, size_t n_rows,
                       void *scratch) {
    const size_t group_bytes = ag_x16_steps(w->k) * 2 / f->step_blocks * f->step_bytes;
    const size_t last = m - m % AG_X16; /* first row of a tile that is not full */
    const ag_x16_tile rest = ag_x16_tile_of(packed, last, m, w->k);
    group_call c = {.f = f, .y = y, .y_stride = y_stride};
    c.group = (const unsigned char *)w->data + row0 / AG_X16 * group_bytes;
    if (last) multiply_many(c, packed, m, w, n_rows, group_bytes, scratch);
    for (size_t j = 0; j < n_rows; j += AG_X16, c.group += group_bytes) {
        c.lanes = lanes_of(n_rows - j);
        c.prefetch_end = last ? NULL : w->prefetch_end;
        c.y = y + last * y_stride + j;
        multiply_few(&c, &rest, last ? rest.n_rows / ROWS * ROWS : 0);
    }
}

#endif
