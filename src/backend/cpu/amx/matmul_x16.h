/* SPDX-License-Identifier: Apache-2.0 */
/* Interleaved weights times tiles of 16 rows of packed activations. Some columns of two groups of
 * weights are unpacked to signed bytes in the first-level cache and multiplied with every tile of
 * the panel, one block of 32 at a time: its sums of 16 x 16 leave the tile register for memory, and
 * while the next block is multiplied they are scaled and added up in vector registers. A type of
 * weight brings the function that unpacks a block; everything here is inlined into its kernel. */
#ifndef AG_BACKEND_CPU_AMX_MATMUL_X16_H
#define AG_BACKEND_CPU_AMX_MATMUL_X16_H

#include "backend/cpu/amx/amx.h"
#include "backend/cpu/amx/tiles.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { GROUPS = 2, BLOCKS = 16, TILES = 16, TILE = 256 }; /* TILE: values of 16 x 16 */

/* A thread's working space. */
typedef struct workspace {
    int8_t weights[GROUPS][BLOCKS][2 * TILE]; /* [8][16 rows][4 columns]: a tile's layout */
    float d[GROUPS][BLOCKS][AG_X16], m[GROUPS][BLOCKS][AG_X16];
    int32_t sums[4][TILE];
    float y[GROUPS][TILES][TILE]; /* [16 rows of input][16 of weights] */
} workspace;

/* Eight vectors of four columns, as signed bytes. */
typedef struct weight_block {
    __m512i q[8];
    __m512 d, m;
} weight_block;

typedef struct weight_format {
    size_t step_bytes;
    weight_block (*unpack)(const unsigned char *step, int block);
    int has_m;
} weight_format;

INLINE __m512 load_halves(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256(p)); }

/* Blocks [first, first + n) of a group. */
INLINE void unpack_blocks(workspace *ws, size_t g, const weight_format *f,
                          const unsigned char *group, size_t first, size_t n) {
    for (size_t b = 0; b < n; b++) {
        const unsigned char *step = group + (first + b) / 2 * f->step_bytes;
        const weight_block w = f->unpack(step, (int)(b % 2));
        const char *ahead = (const char *)step + BLOCKS / 2 * f->step_bytes;
        for (size_t i = b % 2 * 64; i < f->step_bytes; i += 128) {
            _mm_prefetch(ahead + i, _MM_HINT_T0); /* wanted after all tiles have these */
        }
        for (int v = 0; v < 8; v++) _mm512_store_si512(ws->weights[g][b] + 64 * v, w.q[v]);
        _mm512_store_ps(ws->d[g][b], w.d);
        if (f->has_m) _mm512_store_ps(ws->m[g][b], w.m);
    }
}

/* Registers: 0, 1 sums; 4, 5 activations, 16 rows of 32 bytes; 6, 7 weights, 8 rows of 64. */
static const tile_config config = {.palette = 1,
                                   .row_bytes = {64, 64, 64, 64, 32, 32, 64, 64},
                                   .rows = {16, 16, 16, 16, 16, 16, 8, 8}};

INLINE void multiply_even(int32_t *sums, const int8_t *x, const int8_t *w) {
    TILE_ZERO(0);
    TILE_LOAD(4, x, 32);
    TILE_LOAD(6, w, 64);
    TILE_DOT(0, 4, 6);
    TILE_STORE(sums, 64, 0);
}

INLINE void multiply_odd(int32_t *sums, const int8_t *x, const int8_t *w) {
    TILE_ZERO(1);
    TILE_LOAD(5, x, 32);
    TILE_LOAD(7, w, 64);
    TILE_DOT(1, 5, 7);
    TILE_STORE(sums, 64, 1);
}

/* The same operations in the same order as AVX-512's add_block. */
INLINE void add_sums(__m512 *acc, const workspace *ws, size_t g, size_t b, const int32_t *sums,
                     const ag_x16_tile *t, size_t at, const int has_m) {
    const __m512 d = _mm512_load_ps(ws->d[g][b]);
    for (int i = 0; i < AG_X16; i++) {
        const __m512 scale = _mm512_mul_ps(d, _mm512_set1_ps(t->d[at + (size_t)i]));
        const __m512 sum = _mm512_cvtepi32_ps(_mm512_load_si512(sums + i * AG_X16));
        acc[i] = _mm512_fmadd_ps(sum, scale, acc[i]);
        if (!has_m) continue;
        acc[i] = _mm512_fmadd_ps(_mm512_load_ps(ws->m[g][b]), _mm512_set1_ps(t->s[at + (size_t)i]),
                                 acc[i]);
    }
}

/* One tile of activations times the unpacked blocks of one group: n blocks, an even number. */
INLINE void multiply_tile(workspace *ws, size_t g, float *y, const ag_x16_tile *t, size_t first,
                          size_t n, const int has_m) {
    const int8_t *x = t->q + first * 2 * TILE;
    __m512 acc[AG_X16];
    for (int i = 0; i < AG_X16; i++) acc[i] = _mm512_load_ps(y + i * AG_X16);
    multiply_even(ws->sums[0], x, ws->weights[g][0]);
    multiply_odd(ws->sums[1], x + 2 * TILE, ws->weights[g][1]);
    for (size_t b = 0; b < n; b += 2) {
        int32_t(*now)[TILE] = ws->sums + (b & 2), (*next)[TILE] = ws->sums + (~b & 2);
        const int8_t *ahead = x + (b + 2) * 2 * TILE;
        const size_t at = (first + b) * AG_X16;
        if (b + 2 < n) multiply_even(next[0], ahead, ws->weights[g][b + 2]);
        add_sums(acc, ws, g, b, now[0], t, at, has_m);
        if (b + 2 < n) multiply_odd(next[1], ahead + 2 * TILE, ws->weights[g][b + 3]);
        add_sums(acc, ws, g, b + 1, now[1], t, at + AG_X16, has_m);
    }
    for (int i = 0; i < AG_X16; i++) _mm512_store_ps(y + i * AG_X16, acc[i]);
}

/* Where a slab of up to TILES whole tiles lies and goes. */
typedef struct slab_call {
    const void *packed;
    size_t m, k, first, n_tiles; /* rows of the panel; the slab's first row */
    float *y;
    size_t y_stride;
} slab_call;

INLINE void store_group(const workspace *ws, size_t g, const slab_call *c, float *y,
                        __mmask16 lanes) {
    for (size_t i = 0; i < c->n_tiles * AG_X16; i++) {
        const float *row = ws->y[g][i / AG_X16] + i % AG_X16 * AG_X16;
        _mm512_mask_storeu_ps(y + (c->first + i) * c->y_stride, lanes, _mm512_load_ps(row));
    }
}

/* Up to GROUPS groups of weights times one slab. */
INLINE void multiply_slab(workspace *ws, const weight_format *f, const unsigned char *group,
                          size_t n_rows, const slab_call *c) {
    const size_t n_blocks = ag_x16_steps(c->k) * 2, n_groups = (n_rows + AG_X16 - 1) / AG_X16;
    const size_t group_bytes = n_blocks / 2 * f->step_bytes;
    for (size_t g = 0; g < n_groups; g++) __builtin_memset(ws->y[g], 0, sizeof ws->y[g]);
    for (size_t first = 0; first < n_blocks; first += BLOCKS) {
        const size_t n = n_blocks - first < BLOCKS ? n_blocks - first : BLOCKS;
        for (size_t g = 0; g < n_groups; g++) {
            unpack_blocks(ws, g, f, group + g * group_bytes, first, n);
        }
        for (size_t i = 0; i < c->n_tiles; i++) {
            const ag_x16_tile t = ag_x16_tile_of(c->packed, c->first + i * AG_X16, c->m, c->k);
            for (size_t g = 0; g < n_groups; g++) {
                multiply_tile(ws, g, ws->y[g][i], &t, first, n, f->has_m);
            }
        }
    }
    for (size_t g = 0; g < n_groups; g++) {
        const size_t left = n_rows - g * AG_X16;
        const __mmask16 lanes = (__mmask16)(left < AG_X16 ? (1u << left) - 1 : 0xffff);
        store_group(ws, g, c, c->y + g * AG_X16, lanes);
    }
}

/* All whole tiles of the panel; returns the number of their rows. */
INLINE size_t matmul_tiles(const weight_format *f, float *y, size_t y_stride, const void *packed,
                           size_t m, const ag_cpu_weight *w, size_t row0, size_t n_rows,
                           void *scratch) {
    const size_t whole = m / AG_X16 * AG_X16;
    const size_t group_bytes = ag_x16_steps(w->k) * f->step_bytes;
    if (!whole) return 0;
    tiles_configure(&config);
    for (size_t first = 0; first < whole; first += TILES * AG_X16) {
        slab_call c = {.packed = packed, .m = m, .k = w->k, .first = first, .y_stride = y_stride};
        c.n_tiles = whole - first < TILES * AG_X16 ? (whole - first) / AG_X16 : TILES;
        for (size_t j = 0; j < n_rows; j += GROUPS * AG_X16) {
            const size_t n = n_rows - j < GROUPS * AG_X16 ? n_rows - j : GROUPS * AG_X16;
            c.y = y + j;
            multiply_slab(scratch, f,
                          (const unsigned char *)w->data + (row0 + j) / AG_X16 * group_bytes, n,
                          &c);
        }
    }
    tiles_release();
    return whole;
}

#endif
