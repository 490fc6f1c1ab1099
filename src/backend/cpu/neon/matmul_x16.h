/* SPDX-License-Identifier: Apache-2.0 */
/* The product of interleaved weights with packed activations, four of the 16 rows at a time: a
 * vector holds four columns of each. A set brings the function that multiplies such a quad with
 * activations; everything here is inlined into its kernel. */
#ifndef AG_BACKEND_CPU_NEON_MATMUL_X16_H
#define AG_BACKEND_CPU_NEON_MATMUL_X16_H

#include "backend/cpu/neon/neon.h"

#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline))

enum { QUADS = 4, TILE_ROWS_MAX = 8 }; /* quads of a group; rows of activations in registers */

/* One block of four rows. q[v] holds columns 4v .. 4v + 3 of row 0, of row 1, ...; zipped:
 * q[2g] columns 8g .. 8g + 7 of rows 0 and 1, q[2g + 1] those of rows 2 and 3. */
typedef struct weight_quad {
    int8x16_t q[8];
    float32x4_t d, m;
} weight_quad;

typedef struct weight_format {
    size_t step_bytes;
    void (*load)(weight_quad *w, const unsigned char *step, size_t block, size_t quad,
                 const int zipped);
    /* sums[i] = the quad times 32 activations of row i, for i < N; their bytes begin at q. Paired
     * rows have zipped weights. */
    void (*dot)(int32x4_t *sums, const int N, const weight_quad *w, const int8_t *q);
    int most_rows; /* that are multiplied together: 4 or 8 */
    int paired;    /* two or more rows of activations lie as ag_pack_x16__neon_i8mm does it */
    int adds_c, has_m;
} weight_format;

INLINE float32x4_t load_halves(const uint16_t *p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

INLINE void zip(uint8x16_t *a, uint8x16_t *b) {
    const uint32x4_t p = vreinterpretq_u32_u8(*a), q = vreinterpretq_u32_u8(*b);
    *a = vreinterpretq_u8_u32(vzip1q_u32(p, q));
    *b = vreinterpretq_u8_u32(vzip2q_u32(p, q));
}

INLINE void load_nibbles(weight_quad *w, const uint8_t qs[4][AG_X16][4], size_t quad,
                         const int zipped) {
    uint8x16_t both[4];
    for (int v = 0; v < 4; v++) both[v] = vld1q_u8(qs[v][4 * quad]);
    if (zipped) zip(&both[0], &both[1]), zip(&both[2], &both[3]);
    for (int v = 0; v < 4; v++) {
        w->q[v] = vreinterpretq_s8_u8(vandq_u8(both[v], vdupq_n_u8(15)));
        w->q[v + 4] = vreinterpretq_s8_u8(vshrq_n_u8(both[v], 4));
    }
}

INLINE void load_bytes(weight_quad *w, const uint8_t qs[8][AG_X16][4], size_t quad,
                       const int zipped) {
    for (int v = 0; v < 8; v += 2) {
        uint8x16_t a = vld1q_u8(qs[v][4 * quad]), b = vld1q_u8(qs[v + 1][4 * quad]);
        if (zipped) zip(&a, &b);
        w->q[v] = vreinterpretq_s8_u8(veorq_u8(a, vdupq_n_u8(128))); /* signed again */
        w->q[v + 1] = vreinterpretq_s8_u8(veorq_u8(b, vdupq_n_u8(128)));
    }
}

INLINE void load_q4_0(weight_quad *w, const unsigned char *step, size_t block, size_t quad,
                      const int zipped) {
    const ag_q4_0_x16 *s = (const void *)step;
    load_nibbles(w, s->qs[block], quad, zipped);
    w->d = load_halves(s->d[block] + 4 * quad);
}

INLINE void load_q4_1(weight_quad *w, const unsigned char *step, size_t block, size_t quad,
                      const int zipped) {
    const ag_q4_1_x16 *s = (const void *)step;
    load_nibbles(w, s->qs[block], quad, zipped);
    w->d = load_halves(s->d[block] + 4 * quad);
    w->m = load_halves(s->m[block] + 4 * quad);
}

INLINE void load_q8_0(weight_quad *w, const unsigned char *step, size_t block, size_t quad,
                      const int zipped) {
    const ag_q8_0_x16 *s = (const void *)step;
    load_bytes(w, s->qs[block], quad, zipped);
    w->d = load_halves(s->d[block] + 4 * quad);
}

/* acc[i][column] += the quad times block number `at` + i of the tile, i < N. */
INLINE void add_block(float32x4_t acc[TILE_ROWS_MAX][QUADS], const int column, const int N,
                      const weight_format *f, const weight_quad *w, const ag_x16_tile *t,
                      size_t at) {
    const int together = N < 2 ? N : 2; /* rows: what i8mm multiplies at once */
    for (int i = 0; i < N; i += together) {
        int32x4_t sums[2];
        f->dot(sums, together, w, t->q + (at + (size_t)i) * 32);
        for (int j = 0; j < together; j++) {
            const size_t row = at + (size_t)(i + j);
            float32x4_t *to = &acc[i + j][column];
            if (f->adds_c) sums[j] = vaddq_s32(sums[j], vdupq_n_s32(t->c[row]));
            const float32x4_t scale = vmulq_n_f32(w->d, t->d[row]);
            *to = vfmaq_f32(*to, vcvtq_f32_s32(sums[j]), scale);
            if (f->has_m) *to = vfmaq_n_f32(*to, w->m, t->s[row]);
        }
    }
}

/* One group of weights and where its 16 columns of y begin. */
typedef struct group_call {
    const weight_format *f;
    const unsigned char *group;
    float *y;
    size_t y_stride, n; /* rows of the group that exist */
} group_call;

/* N rows of Q quads of sums, of which n values exist. */
INLINE void store_rows(float *y, size_t y_stride, float32x4_t acc[TILE_ROWS_MAX][QUADS],
                       const int N, const int Q, size_t n) {
    float rows[TILE_ROWS_MAX * 4 * QUADS];
    const int whole = n >= (size_t)Q * 4;
    float *to = whole ? y : rows;
    const size_t stride = whole ? y_stride : 4 * QUADS;
    for (int i = 0; i < N; i++) {
        for (int q = 0; q < Q; q++) vst1q_f32(to + (size_t)i * stride + 4 * q, acc[i][q]);
    }
    for (size_t i = 0; !whole && i < (size_t)N; i++) {
        __builtin_memcpy(y + i * y_stride, rows + i * stride, n * sizeof *y);
    }
}

/* Rows first .. first + N of the tile times quads quad0 .. quad0 + Q of the group. */
INLINE void multiply_rows(const int N, const int Q, const group_call *c, const ag_x16_tile *t,
                          size_t first, size_t quad0) {
    float32x4_t acc[TILE_ROWS_MAX][QUADS];
    for (int i = 0; i < N; i++) {
        for (int q = 0; q < Q; q++) acc[i][q] = vdupq_n_f32(0);
    }
    const unsigned char *step = c->group;
    for (size_t b = 0; b < t->n_blocks; b++) {
        for (int q = 0; q < Q; q++) {
            weight_quad w;
            c->f->load(&w, step, b % 2, quad0 + (size_t)q, c->f->paired && N > 1);
            add_block(acc, q, N, c->f, &w, t, b * t->n_rows + first);
        }
        if (b % 2 == 1) step += c->f->step_bytes;
    }
    const size_t column = quad0 * 4, n = c->n > column ? c->n - column : 0;
    store_rows(c->y + first * c->y_stride + column, c->y_stride, acc, N, Q, n);
}

/* A lone row is read once for all quads; of several rows the sums of one quad fill the registers.
 */
INLINE void multiply_group(const int N, const group_call *c, const ag_x16_tile *t, size_t first) {
    enum { ALONE = QUADS, SEVERAL = 1 };
    if (N == 1) multiply_rows(N, ALONE, c, t, first, 0);
    for (size_t quad = 0; N > 1 && quad * 4 < c->n; quad += SEVERAL) {
        multiply_rows(N, SEVERAL, c, t, first, quad);
    }
}

INLINE void multiply_tile(const group_call *c, const ag_x16_tile *t) {
    size_t i = 0;
    for (; c->f->most_rows == 8 && i + 8 <= t->n_rows; i += 8) multiply_group(8, c, t, i);
    for (; i + 4 <= t->n_rows; i += 4) multiply_group(4, c, t, i);
    if (i + 2 <= t->n_rows) {
        multiply_group(2, c, t, i);
        i += 2;
    }
    if (i < t->n_rows) multiply_group(1, c, t, i);
}

INLINE void matmul_x16(const weight_format *f, float *y, size_t y_stride, const void *packed,
                       size_t m, const ag_cpu_weight *w, size_t row0, size_t n_rows) {
    const size_t group_bytes = ag_x16_steps(w->k) * f->step_bytes;
    group_call c = {.f = f, .y_stride = y_stride};
    c.group = (const unsigned char *)w->data + row0 / AG_X16 * group_bytes;
    for (size_t j = 0; j < n_rows; j += AG_X16, c.group += group_bytes) {
        c.n = n_rows - j < AG_X16 ? n_rows - j : AG_X16;
        for (size_t i = 0; i < m; i += AG_X16) {
            const ag_x16_tile t = ag_x16_tile_of(packed, i, m, w->k);
            c.y = y + i * y_stride + j;
            multiply_tile(&c, &t);
        }
    }
}

#endif
