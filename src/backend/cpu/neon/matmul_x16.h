/* SPDX-License-Identifier: Apache-2.0 */
/* Product of interleaved weights with packed activations, four of the 16 rows at a time: a vector
 * has four columns of each. An instruction set provides the function that multiplies such a quad
 * with activations. All functions here are inlined into its kernel. */
#ifndef AG_BACKEND_CPU_NEON_MATMUL_X16_H
#define AG_BACKEND_CPU_NEON_MATMUL_X16_H

#include "backend/cpu/neon/neon.h"

#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline))

enum { QUADS = 4, TILE_ROWS_MAX = 8 }; /* quads of a group; rows of activations in registers */

/* One block of four rows. q[v] has columns 4v .. 4v + 3 of row 0, of row 1, ... If zipped, q[2g]
 * has columns 8g .. 8g + 7 of rows 0 and 1, and q[2g + 1] of rows 2 and 3. */
typedef struct weight_quad {
    int8x16_t q[8];
    float32x4_t d, m;
    float32x4_t part[2];   /* scales of the sums of columns 0 to 15 and 16 to 31 */
    float32x4_t part_m[2]; /* their m, if the halves have separate scales */
} weight_quad;

typedef struct weight_format {
    size_t step_bytes, step_blocks;
    void (*load)(weight_quad *w, const unsigned char *step, size_t block, size_t quad,
                 const int zipped);
    /* sums[i] = vectors [from, to) of the quad (each 0, 4 or 8) times activations of row i, i < N.
     * The block's activations start at q. Paired rows have zipped weights. */
    void (*dot)(int32x4_t *sums, const int N, const weight_quad *w, const int8_t *q, const int from,
                const int to);
    int most_rows;      /* maximum rows multiplied at a time: 4 or 8 */
    int paired;         /* activations are packed by ag_pack_x16__neon_i8mm */
    int32_t correction; /* factor of the tile's c */
    int has_m, has_parts;
} weight_format;

/* Describes a type of weight for an instruction set that defines MOST_ROWS and PAIRED. */
#define WEIGHT_FORMAT(name, dot, correction, has_m, has_parts)                                  \
    {                                                                                           \
        sizeof(ag_##name##_x16), AG_X16_STEP_BLOCKS(name), load_##name, dot, MOST_ROWS, PAIRED, \
            correction, has_m, has_parts                                                        \
    }

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
        w->q[v] = vreinterpretq_s8_u8(veorq_u8(a, vdupq_n_u8(128))); /* back to signed */
        w->q[v + 1] = vreinterpretq_s8_u8(veorq_u8(b, vdupq_n_u8(128)));
    }
}

INLINE void zip_all(weight_quad *w) {
    for (int v = 0; v < 8; v += 2) {
        uint8x16_t a = vreinterpretq_u8_s8(w->q[v]), b = vreinterpretq_u8_s8(w->q[v + 1]);
        zip(&a, &b);
        w->q[v] = vreinterpretq_s8_u8(a);
        w->q[v + 1] = vreinterpretq_s8_u8(b);
    }
}

/* Returns q | (bits << n & mask), byte by byte. */
INLINE int8x16_t add_bits(int8x16_t q, uint8x16_t bits, const int n, int mask) {
    const uint8x16_t there = vshlq_u8(bits, vdupq_n_s8((int8_t)n));
    return vorrq_s8(q, vreinterpretq_s8_u8(vandq_u8(there, vdupq_n_u8((uint8_t)mask))));
}

/* Adds one bit of each level at bit `bit`. */
INLINE void add_bit(weight_quad *w, const uint8_t qh[AG_X16][4], size_t quad, const int bit) {
    const uint8x16_t bits = vld1q_u8(qh[4 * quad]);
    for (int v = 0; v < 8; v++) w->q[v] = add_bits(w->q[v], bits, bit - v, 1 << bit);
}

/* Adds two bits of each level at bits `bit` and `bit` + 1. */
INLINE void add_pairs(weight_quad *w, const uint8_t pairs[2][AG_X16][4], size_t quad,
                      const int bit) {
    for (int v = 0; v < 8; v++) {
        const uint8x16_t bits = vld1q_u8(pairs[v / 4][4 * quad]);
        w->q[v] = add_bits(w->q[v], bits, bit - v % 4 * 2, 3 << bit);
    }
}

INLINE void load_fives(weight_quad *w, const uint8_t qs[4][AG_X16][4], const uint8_t qh[AG_X16][4],
                       size_t quad, const int zipped) {
    load_nibbles(w, qs, quad, 0);
    add_bit(w, qh, quad, 4);
    if (zipped) zip_all(w);
}

INLINE uint32x4_t load_four(const void *p) {
    uint32_t word;
    __builtin_memcpy(&word, p, sizeof word);
    return vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(word))));
}

/* Loads a block's 6-bit scale and minimum. They multiply the step's d and m. */
INLINE void load_scales(float32x4_t scales[2], const ag_x16_scales *s, size_t block, size_t quad) {
    const uint32x4_t low = load_four(s->low[block] + 4 * quad), upper = vdupq_n_u32(0x30);
    const uint32x4_t shift = load_four(s->high[block / 2] + 4 * quad);
    const uint32x4_t high = vshlq_u32(shift, vdupq_n_s32(block % 2 ? -4 : 0));
    const uint32x4_t sc =
        vorrq_u32(vandq_u32(low, vdupq_n_u32(15)), vandq_u32(vshlq_n_u32(high, 4), upper));
    const uint32x4_t mins = vorrq_u32(vshrq_n_u32(low, 4), vandq_u32(vshlq_n_u32(high, 2), upper));
    scales[0] = vcvtq_f32_u32(sc);
    scales[1] = vcvtq_f32_u32(mins);
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

INLINE void load_q5_0(weight_quad *w, const unsigned char *step, size_t block, size_t quad,
                      const int zipped) {
    const ag_q5_0_x16 *s = (const void *)step;
    load_fives(w, s->qs[block], s->qh[block], quad, zipped);
    w->d = load_halves(s->d[block] + 4 * quad);
}

INLINE void load_q5_1(weight_quad *w, const unsigned char *step, size_t block, size_t quad,
                      const int zipped) {
    const ag_q5_1_x16 *s = (const void *)step;
    load_fives(w, s->qs[block], s->qh[block], quad, zipped);
    w->d = load_halves(s->d[block] + 4 * quad);
    w->m = load_halves(s->m[block] + 4 * quad);
}

INLINE void load_q4_k(weight_quad *w, const unsigned char *step, size_t block, size_t quad,
                      const int zipped) {
    const ag_q4_k_x16 *s = (const void *)step;
    load_nibbles(w, s->qs[block], quad, zipped);
    float32x4_t scales[2];
    load_scales(scales, &s->scales, block, quad);
    w->d = vmulq_f32(load_halves(s->d + 4 * quad), scales[0]);
    w->m = vmulq_f32(load_halves(s->m + 4 * quad), scales[1]);
}

INLINE void load_q5_k(weight_quad *w, const unsigned char *step, size_t block, size_t quad,
                      const int zipped) {
    const ag_q5_k_x16 *s = (const void *)step;
    load_fives(w, s->qs[block], s->qh[block], quad, zipped);
    float32x4_t scales[2];
    load_scales(scales, &s->scales, block, quad);
    w->d = vmulq_f32(load_halves(s->d + 4 * quad), scales[0]);
    w->m = vmulq_f32(load_halves(s->m + 4 * quad), scales[1]);
}

INLINE void load_q6_k(weight_quad *w, const unsigned char *step, size_t block, size_t quad,
                      const int zipped) {
    const ag_q6_k_x16 *s = (const void *)step;
    load_nibbles(w, s->qs[block], quad, 0);
    add_pairs(w, s->qh[block], quad, 4);
    if (zipped) zip_all(w);
    w->d = load_halves(s->d + 4 * quad);
    for (int g = 0; g < 2; g++) {
        const int32x4_t scales = vreinterpretq_s32_u32(load_four(s->scales[block][g] + 4 * quad));
        w->part[g] = vcvtq_f32_s32(vshrq_n_s32(vshlq_n_s32(scales, 24), 24));
    }
}

/* Levels are doubled, and 8 is subtracted. */
INLINE void load_q3_k(weight_quad *w, const unsigned char *step, size_t block, size_t quad,
                      const int zipped) {
    const ag_q3_k_x16 *s = (const void *)step;
    for (int v = 0; v < 8; v++) w->q[v] = vdupq_n_s8(0);
    add_pairs(w, s->qs[block], quad, 1);
    add_bit(w, s->qh[block], quad, 3);
    if (zipped) zip_all(w);
    w->d = vmulq_n_f32(load_halves(s->d + 4 * quad), 0.5f);
    load_scales(w->part, &s->scales, block, quad);
    for (int g = 0; g < 2; g++) w->part[g] = vsubq_f32(w->part[g], vdupq_n_f32(32));
}

INLINE void load_q2_k(weight_quad *w, const unsigned char *step, size_t block, size_t quad,
                      const int zipped) {
    const ag_q2_k_x16 *s = (const void *)step;
    for (int v = 0; v < 8; v++) w->q[v] = vdupq_n_s8(0);
    add_pairs(w, s->qs[block], quad, 0);
    if (zipped) zip_all(w);
    w->d = load_halves(s->d + 4 * quad);
    for (int g = 0; g < 2; g++) {
        const uint32x4_t both = load_four(s->scales[block][g] + 4 * quad);
        w->part[g] = vcvtq_f32_u32(vandq_u32(both, vdupq_n_u32(15)));
        w->part_m[g] = vmulq_f32(load_halves(s->m + 4 * quad), vcvtq_f32_u32(vshrq_n_u32(both, 4)));
    }
}

INLINE void load_iq4_nl(weight_quad *w, const unsigned char *step, size_t block, size_t quad,
                        const int zipped) {
    static const int8_t values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
    const ag_iq4_nl_x16 *s = (const void *)step;
    const int8x16_t table = vld1q_s8(values);
    load_nibbles(w, s->qs[block], quad, zipped);
    for (int v = 0; v < 8; v++) w->q[v] = vqtbl1q_s8(table, vreinterpretq_u8_s8(w->q[v]));
    w->d = load_halves(s->d[block] + 4 * quad);
}

/* Returns 2^(e - 128), the unit of values of MXFP4, for 4 exponent bytes e; NaN for 255, since
 * twice the unit is infinite. Subtraction is exact, also for units that are not normal. */
INLINE float32x4_t load_exponents(const uint8_t *p) {
    const uint32x4_t bits = vshlq_n_u32(load_four(p), 23);
    const uint32x4_t smallest = vdupq_n_u32(0x00400000); /* 2^-127 */
    const float32x4_t twice = vreinterpretq_f32_u32(vmaxq_u32(bits, smallest));
    return vfmsq_n_f32(twice, twice, 0.5f);
}

INLINE void load_mxfp4(weight_quad *w, const unsigned char *step, size_t block, size_t quad,
                       const int zipped) {
    static const int8_t values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    const ag_mxfp4_x16 *s = (const void *)step;
    const int8x16_t table = vld1q_s8(values);
    load_nibbles(w, s->qs[block], quad, zipped);
    for (int v = 0; v < 8; v++) w->q[v] = vqtbl1q_s8(table, vreinterpretq_u8_s8(w->q[v]));
    w->d = load_exponents(s->e[block] + 4 * quad);
}

/* sums[j] = products of vectors [from, to) with row `at` + j, corrected for the offset of the
 * levels.
 */
INLINE void sums_of(float32x4_t *sums, const int N, const weight_format *f, const weight_quad *w,
                    const ag_x16_tile *t, size_t at, const int from, const int to) {
    int32x4_t products[2];
    f->dot(products, N, w, t->q + at * 32, from, to);
    for (int j = 0; j < N; j++) {
        const size_t row = at + (size_t)j;
        const int32_t c = !f->has_parts ? t->c[row] : from ? t->c[row] - t->h[row] : t->h[row];
        if (f->correction) products[j] = vaddq_s32(products[j], vdupq_n_s32(c * f->correction));
        sums[j] = vcvtq_f32_s32(products[j]);
    }
}

/* Returns sum + m times the sum of the activations. */
INLINE float32x4_t add_m(float32x4_t sum, const weight_format *f, const weight_quad *w,
                         const ag_x16_tile *t, size_t row) {
    if (!f->has_parts) return vfmaq_n_f32(sum, w->m, t->s[row]);
    const float first = ag_x16_first_s(t, row);
    sum = vfmaq_n_f32(sum, w->part_m[0], first);
    return vfmaq_n_f32(sum, w->part_m[1], t->s[row] - first);
}

/* acc[i][column] += the quad times block `at` + i of the tile, i < N. */
INLINE void add_block(float32x4_t acc[TILE_ROWS_MAX][QUADS], const int column, const int N,
                      const weight_format *f, const weight_quad *w, const ag_x16_tile *t,
                      size_t at) {
    const int together = N < 2 ? N : 2; /* rows that i8mm multiplies at a time */
    for (int i = 0; i < N; i += together) {
        float32x4_t sums[2], others[2];
        sums_of(sums, together, f, w, t, at + (size_t)i, 0, f->has_parts ? 4 : 8);
        if (f->has_parts) sums_of(others, together, f, w, t, at + (size_t)i, 4, 8);
        for (int j = 0; j < together; j++) {
            const size_t row = at + (size_t)(i + j);
            float32x4_t *to = &acc[i + j][column];
            if (f->has_parts) {
                sums[j] = vfmaq_f32(vmulq_f32(sums[j], w->part[0]), others[j], w->part[1]);
            }
            const float32x4_t scale = vmulq_n_f32(w->d, t->d[row]);
            *to = vfmaq_f32(*to, sums[j], scale);
            if (f->has_m) *to = add_m(*to, f, w, t, row);
        }
    }
}

/* One group of weights and its 16 columns of y. */
typedef struct group_call {
    const weight_format *f;
    const unsigned char *group;
    float *y;
    size_t y_stride, n; /* n: rows of the group that exist */
} group_call;

/* Stores N rows of Q quads of sums, of which n values exist. */
INLINE void store_rows(float *y, size_t y_stride, float32x4_t acc[TILE_ROWS_MAX][QUADS],
                       const int N, const int Q, size_t n) {
    float rows[TILE_ROWS_MAX * 4 * QUADS];
    const int is_full = n >= (size_t)Q * 4;
    float *to = is_full ? y : rows;
    const size_t stride = is_full ? y_stride : 4 * QUADS;
    for (int i = 0; i < N; i++) {
        for (int q = 0; q < Q; q++) vst1q_f32(to + (size_t)i * stride + 4 * q, acc[i][q]);
    }
    for (size_t i = 0; !is_full && i < (size_t)N; i++) {
        __builtin_memcpy(y + i * y_stride, rows + i * stride, n * sizeof *y);
    }
}

/* Multiplies rows first .. first + N of the tile with quads quad0 .. quad0 + Q of the group. */
INLINE void multiply_rows(const int N, const int Q, const group_call *c, const ag_x16_tile *t,
                          size_t first, size_t quad0) {
    float32x4_t acc[TILE_ROWS_MAX][QUADS];
    for (int i = 0; i < N; i++) {
        for (int q = 0; q < Q; q++) acc[i][q] = vdupq_n_f32(0);
    }
    const unsigned char *step = c->group;
    for (size_t b = 0; b < t->n_blocks; step += c->f->step_bytes) {
        for (size_t in_step = 0; in_step < c->f->step_blocks; in_step++, b++) {
            for (int q = 0; q < Q; q++) {
                weight_quad w;
                c->f->load(&w, step, in_step, quad0 + (size_t)q, c->f->paired && N > 1);
                add_block(acc, q, N, c->f, &w, t, b * t->n_rows + first);
            }
        }
    }
    const size_t column = quad0 * 4, n = c->n > column ? c->n - column : 0;
    store_rows(c->y + first * c->y_stride + column, c->y_stride, acc, N, Q, n);
}

/* Multiplies N rows with the group. A single row is read once for all quads; with several rows the
 * sums of one quad fill the registers. */
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
    const size_t group_bytes = ag_x16_steps(w->k) * 2 / f->step_blocks * f->step_bytes;
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

/* The types of weight: X(name, dot, correction, has_m, has_parts). `levels` multiplies levels
 * of magnitude 63 or less, `bytes` signed bytes. */
#define WEIGHT_FORMATS(X, levels, bytes) \
    X(q4_0, levels, 1, 0, 0)             \
    X(q4_1, levels, 0, 1, 0)             \
    X(q8_0, bytes, 0, 0, 0)              \
    X(q5_0, levels, 2, 0, 0)             \
    X(q5_1, levels, 0, 1, 0)             \
    X(q4_k, levels, 0, 1, 0)             \
    X(q5_k, levels, 0, 1, 0)             \
    X(q6_k, levels, 4, 0, 1)             \
    X(q3_k, levels, 1, 0, 1)             \
    X(q2_k, levels, 0, 1, 1)             \
    X(iq4_nl, bytes, 0, 0, 0)            \
    X(mxfp4, levels, 0, 0, 0)

/* Defines the kernel of a type of weight for a set. */
#define MATMUL_X16_KERNEL(set, name, dot, correction, has_m, has_parts)                         \
    void ag_matmul_##name##_x16__##set(float *y, size_t y_stride, const void *packed, size_t m, \
                                       const ag_cpu_weight *w, size_t row0, size_t n_rows,      \
                                       void *scratch) {                                         \
        (void)scratch;                                                                          \
        const weight_format f = WEIGHT_FORMAT(name, dot, correction, has_m, has_parts);         \
        matmul_x16(&f, y, y_stride, packed, m, w, row0, n_rows);                                \
    }

#endif
