/* SPDX-License-Identifier: Apache-2.0 */
/* Interleaved layouts of quantised weights and activations. All instruction sets of x86 and ARM use
 * the same layouts. Kernels that read both layouts give equal bits: they sum the products of a
 * block of 32 in int32, then multiply the scales and do one fused addition for each block, in the
 * order of the blocks. Kernels with matrix units share the layout of the weights only. */
#ifndef AG_BACKEND_CPU_INTERLEAVED_H
#define AG_BACKEND_CPU_INTERLEAVED_H

#include <stddef.h>
#include <stdint.h>

/* Types with an interleaved layout: X(NAME, name). */
#define AG_X16_MAP(X) \
    X(Q4_0, q4_0)     \
    X(Q4_1, q4_1)     \
    X(Q8_0, q8_0)     \
    X(Q5_0, q5_0)     \
    X(Q5_1, q5_1)     \
    X(Q4_K, q4_k)     \
    X(Q5_K, q5_k)     \
    X(Q6_K, q6_k)     \
    X(Q3_K, q3_k)     \
    X(Q2_K, q2_k)     \
    X(IQ4_NL, iq4_nl) \
    X(MXFP4, mxfp4)

struct ag_cpu_layout;
#define AG_X16_LAYOUT(NAME, name) extern const struct ag_cpu_layout ag_layout_##name##_x16;
AG_X16_MAP(AG_X16_LAYOUT)
#undef AG_X16_LAYOUT

enum {
    AG_X16 = 16,         /* rows of a group: lanes of a 512-bit vector, four vectors of NEON */
    AG_X16_COLS = 64,    /* columns of a step: two blocks, a multiple of the cache line */
    AG_X16_K_BLOCKS = 8, /* blocks of 32 columns in a step of K-quants: one super-block */
};

/* 16 rows, 64 columns. qs[b][v][r] has eight columns of row r: 4v .. 4v + 3 of block b in the low
 * nibbles, and the columns 16 after them in the high nibbles. Rows and columns past the end are 0.
 */
typedef struct ag_q4_0_x16 {
    uint16_t d[2][AG_X16];
    uint8_t qs[2][4][AG_X16][4];
} ag_q4_0_x16;

typedef struct ag_q4_1_x16 {
    uint16_t d[2][AG_X16], m[2][AG_X16];
    uint8_t qs[2][4][AG_X16][4];
} ag_q4_1_x16;

/* qs[b][v][r]: columns 4v .. 4v + 3 of block b, plus 128. The instructions multiply unsigned
 * weights with signed activations. */
typedef struct ag_q8_0_x16 {
    uint16_t d[2][AG_X16];
    uint8_t qs[2][8][AG_X16][4];
} ag_q8_0_x16;

/* qh[b][r][j]: bit v is the fifth bit of column 4v + j of block b. */
typedef struct ag_q5_0_x16 {
    uint16_t d[2][AG_X16];
    uint8_t qh[2][AG_X16][4], qs[2][4][AG_X16][4];
} ag_q5_0_x16;

typedef struct ag_q5_1_x16 {
    uint16_t d[2][AG_X16], m[2][AG_X16];
    uint8_t qh[2][AG_X16][4], qs[2][4][AG_X16][4];
} ag_q5_1_x16;

/* Two 6-bit scales, sc and m, for each block of 32 columns of each row. low[b] has their lower four
 * bits, sc in the low nibble. high[i] has their upper two bits for blocks 2i and 2i + 1: sc, m, sc,
 * m. */
typedef struct ag_x16_scales {
    uint8_t low[AG_X16_K_BLOCKS][AG_X16], high[AG_X16_K_BLOCKS / 2][AG_X16];
} ag_x16_scales;

/* 16 rows, 256 columns; m is -dmin. A value is d * sc * level + m * (scale m). */
typedef struct ag_q4_k_x16 {
    uint16_t d[AG_X16], m[AG_X16];
    ag_x16_scales scales;
    uint8_t qs[AG_X16_K_BLOCKS][4][AG_X16][4];
} ag_q4_k_x16;

typedef struct ag_q5_k_x16 {
    uint16_t d[AG_X16], m[AG_X16];
    ag_x16_scales scales;
    uint8_t qh[AG_X16_K_BLOCKS][AG_X16][4], qs[AG_X16_K_BLOCKS][4][AG_X16][4];
} ag_q5_k_x16;

/* qh[b][g][r][j]: bits 2f and 2f + 1 are the upper two bits of column 16g + 4f + j of block b,
 * whose scale is scales[b][g][r]. */
typedef struct ag_q6_k_x16 {
    uint16_t d[AG_X16], unused[AG_X16];
    int8_t scales[AG_X16_K_BLOCKS][2][AG_X16];
    uint8_t qh[AG_X16_K_BLOCKS][2][AG_X16][4], qs[AG_X16_K_BLOCKS][4][AG_X16][4];
} ag_q6_k_x16;

/* qs has the lower two bits of a level, ordered as qh of Q6_K. qh has the third bit, ordered as qh
 * of Q5_K. In scales, sc is the scale of columns 0 to 15 of a block, and m of columns 16 to 31. */
typedef struct ag_q3_k_x16 {
    uint16_t d[AG_X16], unused[AG_X16];
    ag_x16_scales scales;
    uint8_t qh[AG_X16_K_BLOCKS][AG_X16][4], qs[AG_X16_K_BLOCKS][2][AG_X16][4];
} ag_q3_k_x16;

/* scales[b][g][r]: scales of columns 16g to 16g + 15 of block b, of d in the low nibble and of m,
 * which is -dmin, in the high nibble. */
typedef struct ag_q2_k_x16 {
    uint16_t d[AG_X16], m[AG_X16];
    uint8_t scales[AG_X16_K_BLOCKS][2][AG_X16], qs[AG_X16_K_BLOCKS][2][AG_X16][4];
} ag_q2_k_x16;

typedef ag_q4_0_x16 ag_iq4_nl_x16;

/* e[b][r]: the exponent byte of block b. */
typedef struct ag_mxfp4_x16 {
    uint8_t e[2][AG_X16], qs[2][4][AG_X16][4];
} ag_mxfp4_x16;

/* Blocks of 32 columns in a step. */
#define AG_X16_STEP_BLOCKS(name) \
    (sizeof((const ag_##name##_x16 *)0)->qs / sizeof((const ag_##name##_x16 *)0)->qs[0])

_Static_assert(sizeof(ag_q4_0_x16) == 576, "not a multiple of cache lines");
_Static_assert(sizeof(ag_q4_1_x16) == 640, "not a multiple of cache lines");
_Static_assert(sizeof(ag_q8_0_x16) == 1088, "not a multiple of cache lines");
_Static_assert(sizeof(ag_q5_0_x16) == 704, "not a multiple of cache lines");
_Static_assert(sizeof(ag_q5_1_x16) == 768, "not a multiple of cache lines");
_Static_assert(sizeof(ag_q4_k_x16) == 2304, "not a multiple of cache lines");
_Static_assert(sizeof(ag_q5_k_x16) == 2816, "not a multiple of cache lines");
_Static_assert(sizeof(ag_q6_k_x16) == 3392, "not a multiple of cache lines");
_Static_assert(sizeof(ag_q3_k_x16) == 1792, "not a multiple of cache lines");
_Static_assert(sizeof(ag_q2_k_x16) == 1344, "not a multiple of cache lines");
_Static_assert(sizeof(ag_mxfp4_x16) == 544, "larger than the type");

/* Activations: a tile of up to 16 rows, with values x = q * d. In memory: the bytes q of all
 * blocks, [block][row][32], then d, c, s and h, each [block][row]. The number of blocks is even;
 * blocks past the end are 0. */
typedef struct ag_x16_tile {
    const int8_t *q;
    const float *d;   /* largest |x| / 127, not rounded to a half */
    const int32_t *c; /* -8 * sum of q: corrects products with nibbles 0..15 to levels -8..7 */
    const float *s;   /* d * sum of q: multiplied with m of Q4_1 */
    const int32_t *h; /* the part of c that comes from the first 16 columns */
    size_t n_blocks, n_rows;
} ag_x16_tile;

/* Returns the part of s that comes from the first 16 columns. */
static inline float ag_x16_first_s(const ag_x16_tile *t, size_t at) {
    return t->d[at] * ((float)t->h[at] * -0.125f);
}

static inline size_t ag_x16_steps(size_t k) { return (k + AG_X16_COLS - 1) / AG_X16_COLS; }

/* Returns the bytes of one row of a tile. */
static inline size_t ag_x16_row_bytes(size_t k) {
    return (ag_x16_steps(k) * 2 * (32 + 4 * sizeof(float)) + 63) / 64 * 64;
}

size_t ag_packed_bytes_x16(size_t k); /* the same as a function of the kernel table */

/* Returns the tile that starts with row `first`, a multiple of 16, of a panel of m rows. */
static inline ag_x16_tile ag_x16_tile_of(const void *panel, size_t first, size_t m, size_t k) {
    ag_x16_tile t = {.n_blocks = ag_x16_steps(k) * 2};
    t.n_rows = m - first < AG_X16 ? m - first : AG_X16;
    const unsigned char *p = (const unsigned char *)panel + first * ag_x16_row_bytes(k);
    const size_t n = t.n_blocks * t.n_rows;
    t.q = (const void *)p;
    t.d = (const void *)(p + n * 32);
    t.c = (const void *)(p + n * 36);
    t.s = (const void *)(p + n * 40);
    t.h = (const void *)(p + n * 44);
    return t;
}

#endif
