/* SPDX-License-Identifier: Apache-2.0 */
/* Product of interleaved weights with panels of bfloat16 tiles. A type of weight provides a
 * function that converts a block of 16 rows and 32 columns to a tile. All functions here are
 * inlined into its kernel.
 *
 * A call of many rows converts 256 rows of weights, 2048 columns at a time, to tiles in L2, and
 * multiplies them with all tiles of activations, two at a time: each weight is unpacked once. A
 * call of few rows unpacks a tile into L1 just before it is multiplied, so that both overlap. The
 * results have equal bits. */
#ifndef AG_BACKEND_CPU_AMX_MATMUL_TILES_H
#define AG_BACKEND_CPU_AMX_MATMUL_TILES_H

#include "backend/cpu/amx/amx.h"
#include "backend/cpu/amx/tiles.h"
#include "backend/cpu/avx512/prefetch.h"
#include "backend/cpu/avx512/unpack.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

typedef uint16_t bf16;

enum {
    TILE = 16 * 32, /* bfloat16 values of an operand; a result has 16 x 16 floats */
    SUMS = 16 * 16,
    BLOCK = 32,
    SLAB_ROWS = 256,
    SLAB_BLOCKS = 2048 / BLOCK,
    FEW_TILES = 4, /* maximum tiles of activations of a call of few rows */
    RING = 8,
};

/* A thread's scratch memory. */
typedef struct workspace {
    _Alignas(64) float sums[4][SUMS];
    bf16 weights[]; /* a slab for many rows, a ring for few */
} workspace;

/* Writes a block of 16 rows as a tile. `to_l1`: into L1, from where the tile is loaded next; else
 * past it, into the slab. */
typedef struct weight_format {
    size_t step_bytes, step_blocks;
    void (*unpack)(bf16 *tile, const unsigned char *step, size_t block, int to_l1);
} weight_format;

/* Describes a type of weight. */
#define WEIGHT_FORMAT(name, unpack) \
    { sizeof(ag_##name##_x16), AG_X16_STEP_BLOCKS(name), unpack }

/* Loads scales, increased by 3/1024. Truncating 16 bits reduces a magnitude by 3/1024 on average (0
 * to 8/1024). With this correction the error is at most 3/4 of the last bit, for half the
 * instructions of rounding. Values of 8 bits or less stay exact. */
INLINE __m512 load_scales(const void *halves) {
    return _mm512_mul_ps(load_halves(halves), _mm512_set1_ps(1027.0f / 1024));
}

/* Writes columns 2 * i and 2 * i + 1 of the block. To a line in L1, two stores are faster than
 * merging both; otherwise merging is faster. */
INLINE void put_pair(bf16 *tile, size_t i, __m512 even, __m512 odd, int to_l1) {
    const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(even), 16);
    const __m512i high = _mm512_castps_si512(odd);
    if (to_l1) {
        _mm512_store_si512(tile + 32 * i, high);
        _mm512_mask_storeu_epi16(tile + 32 * i, 0x55555555, low);
        return;
    }
    enum { LOW_OR_HIGH_AND_UPPER = 0xf8 };
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
    _mm512_store_si512(tile + 32 * i,
                       _mm512_ternarylogic_epi32(low, high, upper, LOW_OR_HIGH_AND_UPPER));
}

/* Loads nibbles of 16 rows, with byte j of each four at the lowest bits of its lane. With `to_l1`
 * an unaligned load replaces a shift. */
INLINE __m512i bytes_from(const uint8_t (*qs)[AG_X16][4], size_t v, int j, int to_l1) {
    const uint8_t *q = qs[v][0];
    if (!to_l1 || j == 0) return _mm512_srli_epi32(_mm512_loadu_si512(q), 8 * (unsigned)j);
    if (v < 3) return _mm512_loadu_si512(q + j);
    return _mm512_maskz_loadu_epi8(~0ull >> j, q + j); /* does not read past the last byte */
}

/* Returns d times the value of the nibble at the lowest bits of each lane, plus m. */
INLINE __m512 nibble_value(__m512i nibbles, __m512 levels, __m512 d, __m512 m) {
    return _mm512_fmadd_ps(_mm512_permutexvar_ps(nibbles, levels), d,
                           m); /* uses 4 bits of a lane */
}

INLINE void put_values(bf16 *tile, const uint8_t (*qs)[AG_X16][4], __m512 levels, __m512 d,
                       __m512 m, int to_l1) {
    for (size_t v = 0; v < 4; v++) {
        __m512i q[4];
        for (int j = 0; j < 4; j++) q[j] = bytes_from(qs, v, j, to_l1);
        put_pair(tile, 2 * v, nibble_value(q[0], levels, d, m), nibble_value(q[1], levels, d, m),
                 to_l1);
        put_pair(tile, 2 * v + 1, nibble_value(q[2], levels, d, m),
                 nibble_value(q[3], levels, d, m), to_l1);
        for (int j = 0; j < 4; j++) q[j] = _mm512_srli_epi32(q[j], 4);
        put_pair(tile, 2 * v + 8, nibble_value(q[0], levels, d, m),
                 nibble_value(q[1], levels, d, m), to_l1);
        put_pair(tile, 2 * v + 9, nibble_value(q[2], levels, d, m),
                 nibble_value(q[3], levels, d, m), to_l1);
    }
}

INLINE void put_nibbles(bf16 *tile, const uint8_t (*qs)[AG_X16][4], __m512 d, __m512 m, int to_l1) {
    const __m512 levels = _mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    put_values(tile, qs, levels, d, m, to_l1);
}

/* Writes a tile of levels up to 63, one byte each. d[1] and m[1] belong to columns 16 to 31. */
INLINE void put_levels(bf16 *tile, const __m512i q[8], const __m512 d[2], const __m512 m[2],
                       int to_l1) {
    const __m512i level = _mm512_set1_epi32(63);
    for (size_t v = 0; v < 8; v++) {
        __m512 x[4];
        for (unsigned j = 0; j < 4; j++) {
            const __m512i lanes = _mm512_and_si512(_mm512_srli_epi32(q[v], 8 * j), level);
            x[j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(lanes), d[v / 4], m[v / 4]);
        }
        put_pair(tile, 2 * v, x[0], x[1], to_l1);
        put_pair(tile, 2 * v + 1, x[2], x[3], to_l1);
    }
}

/* ---- tiles ---- */

/* Tile registers: 0 to 3 are sums; 4, 5 activations; 6, 7 weights. */
static const tile_config config = {.palette = 1,
                                   .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                   .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

INLINE void zero_sums(const int t) {
    if (t == 0) TILE_ZERO(0);
    if (t == 1) TILE_ZERO(1);
    if (t == 2) TILE_ZERO(2);
    if (t == 3) TILE_ZERO(3);
}

INLINE void load_sums(const int t, const float *from, size_t stride) {
    if (t == 0) TILE_LOAD(0, from, stride);
    if (t == 1) TILE_LOAD(1, from, stride);
    if (t == 2) TILE_LOAD(2, from, stride);
    if (t == 3) TILE_LOAD(3, from, stride);
}

INLINE void store_sums(const int t, float *to, size_t stride) {
    if (t == 0) TILE_STORE(to, stride, 0);
    if (t == 1) TILE_STORE(to, stride, 1);
    if (t == 2) TILE_STORE(to, stride, 2);
    if (t == 3) TILE_STORE(to, stride, 3);
}

/* A destination: up to 16 x 16 values of y. */
typedef struct tile_out {
    float *y;
    size_t stride; /* in floats */
    size_t rows;
    __mmask16 lanes;
} tile_out;

INLINE int is_full(const tile_out *p) { return p->rows >= AG_X16 && p->lanes == 0xffff; }

INLINE void resume_sums(const int t, workspace *ws, const tile_out *p, int fresh) {
    if (fresh) {
        zero_sums(t);
    } else if (is_full(p)) {
        load_sums(t, p->y, p->stride * sizeof *p->y);
    } else {
        for (size_t i = 0; i < AG_X16; i++) {
            const __mmask16 lanes = i < p->rows ? p->lanes : 0;
            _mm512_store_ps(ws->sums[t] + i * AG_X16,
                            _mm512_maskz_loadu_ps(lanes, p->y + i * p->stride));
        }
        load_sums(t, ws->sums[t], AG_X16 * sizeof(float));
    }
}

INLINE void finish_sums(const int t, workspace *ws, const tile_out *p) {
    if (is_full(p)) {
        store_sums(t, p->y, p->stride * sizeof *p->y);
        return;
    }
    store_sums(t, ws->sums[t], AG_X16 * sizeof(float));
    for (size_t i = 0; i < AG_X16 && i < p->rows; i++) {
        _mm512_mask_storeu_ps(p->y + i * p->stride, p->lanes,
                              _mm512_load_ps(ws->sums[t] + i * AG_X16));
    }
}

/* ---- a call ---- */

typedef struct call {
    const weight_format *f;
    workspace *ws;
    float *y;
    size_t y_stride, m, n_rows;
    const bf16 *x;
    size_t n_blocks; /* blocks of a row */
    const unsigned char *groups, *prefetch_end;
    size_t group_bytes;
} call;

/* Returns the destination of tile i of activations and group g of weights. */
INLINE tile_out tile_out_of(const call *c, size_t i, size_t g) {
    const size_t row = i * AG_X16, column = g * AG_X16, left = c->n_rows - column;
    return (tile_out){c->y + row * c->y_stride + column, c->y_stride, c->m - row,
                      (__mmask16)(left < AG_X16 ? (1u << left) - 1 : 0xffff)};
}

INLINE const bf16 *tiles_of_x(const call *c, size_t i, size_t block) {
    return c->x + (i * c->n_blocks + block) * TILE;
}

/* ---- many rows ---- */

/* Unpacks groups g .. g + NT of weights, blocks [first, first + n), to [block][NT] tiles. */
INLINE void unpack_panel(const call *c, bf16 *tiles, const size_t NT, size_t g, size_t first,
                         size_t n) {
    for (size_t j = 0; j < NT; j++) {
        const unsigned char *group = c->groups + (g + j) * c->group_bytes;
        for (size_t b = 0; b < n; b++) {
            const size_t in_step = b % c->f->step_blocks;
            const unsigned char *step = group + (first + b) / c->f->step_blocks * c->f->step_bytes;
            prefetch_part(c->f->step_bytes, prefetch_of(step, c->prefetch_end), in_step,
                          c->f->step_blocks);
            c->f->unpack(tiles + (b * NT + j) * TILE, step, in_step, 0);
        }
    }
}

/* Multiplies MT tiles of activations from i on with NT groups of weights from g on. */
INLINE void multiply(const int MT, const int NT, const call *c, size_t i, size_t g, const bf16 *w,
                     size_t first, size_t n) {
    const bf16 *x0 = tiles_of_x(c, i, first), *x1 = tiles_of_x(c, i + (MT > 1), first);
    for (int t = 0; t < 4; t++) {
        if (t / 2 >= MT || t % 2 >= NT) continue;
        const tile_out p = tile_out_of(c, i + (size_t)(t / 2), g + (size_t)(t % 2));
        resume_sums(t, c->ws, &p, first == 0);
    }
    for (size_t b = 0; b < n; b++, x0 += TILE, x1 += TILE, w += NT * TILE) {
        TILE_LOAD(6, w, 64);
        TILE_LOAD(4, x0, 64);
        TILE_DOT(0, 4, 6);
        if (NT > 1) {
            TILE_LOAD(7, w + TILE, 64);
            TILE_DOT(1, 4, 7);
        }
        if (MT > 1) {
            TILE_LOAD(5, x1, 64);
            TILE_DOT(2, 5, 6);
        }
        if (MT > 1 && NT > 1) TILE_DOT(3, 5, 7);
    }
    for (int t = 0; t < 4; t++) {
        if (t / 2 >= MT || t % 2 >= NT) continue;
        const tile_out p = tile_out_of(c, i + (size_t)(t / 2), g + (size_t)(t % 2));
        finish_sums(t, c->ws, &p);
    }
}

/* Multiplies all rows of activations with n_groups unpacked groups of weights from g on. */
INLINE void multiply_slab(const call *c, size_t g, size_t n_groups, size_t first, size_t n) {
    const size_t n_tiles = (c->m + AG_X16 - 1) / AG_X16;
    for (size_t i = 0; i < n_tiles; i += 2) {
        for (size_t j = 0; j < n_groups; j += 2) {
            const bf16 *w = c->ws->weights + j * n * TILE;
            const int pair = i + 1 < n_tiles;
            if (j + 1 < n_groups && pair) multiply(2, 2, c, i, g + j, w, first, n);
            else if (j + 1 < n_groups) multiply(1, 2, c, i, g + j, w, first, n);
            else if (pair) multiply(2, 1, c, i, g + j, w, first, n);
            else multiply(1, 1, c, i, g + j, w, first, n);
        }
    }
}

INLINE void matmul_many(const call *c) {
    const size_t n_groups = (c->n_rows + AG_X16 - 1) / AG_X16;
    for (size_t g = 0; g < n_groups; g += SLAB_ROWS / AG_X16) {
        const size_t left = n_groups - g;
        const size_t some = left < SLAB_ROWS / AG_X16 ? left : SLAB_ROWS / AG_X16;
        for (size_t first = 0; first < c->n_blocks; first += SLAB_BLOCKS) {
            const size_t n = c->n_blocks - first < SLAB_BLOCKS ? c->n_blocks - first : SLAB_BLOCKS;
            for (size_t j = 0; j < some; j += 2) {
                bf16 *tiles = c->ws->weights + j * n * TILE;
                if (j + 1 < some) unpack_panel(c, tiles, 2, g + j, first, n);
                else unpack_panel(c, tiles, 1, g + j, first, n);
            }
            multiply_slab(c, g, some, first, n);
        }
    }
}

/* ---- few rows ---- */

INLINE void dot(const int t, const int a, const int b) {
    if (t == 0 && a == 4 && b == 6) TILE_DOT(0, 4, 6);
    if (t == 1 && a == 4 && b == 7) TILE_DOT(1, 4, 7);
    if (t == 1 && a == 5 && b == 6) TILE_DOT(1, 5, 6);
    if (t == 2 && a == 4 && b == 6) TILE_DOT(2, 4, 6);
    if (t == 2 && a == 4 && b == 7) TILE_DOT(2, 4, 7);
    if (t == 3 && a == 4 && b == 7) TILE_DOT(3, 4, 7);
    if (t == 3 && a == 5 && b == 6) TILE_DOT(3, 5, 6);
    if (t == 3 && a == 5 && b == 7) TILE_DOT(3, 5, 7);
}

/* Multiplies the MT tiles of activations of block b with a tile of weights of group g. */
INLINE void multiply_tile(const int MT, const int g, const call *c, const bf16 *w, size_t b) {
    if (g % 2) TILE_LOAD(7, w, 64);
    else TILE_LOAD(6, w, 64);
    for (int i = 0; i < MT; i++) {
        const bf16 *x = tiles_of_x(c, (size_t)i, b);
        if (g == 0 && i % 2 == 0) TILE_LOAD(4, x, 64);
        if (g == 0 && i % 2 == 1) TILE_LOAD(5, x, 64);
        dot(g * MT + i, 4 + i % 2, 6 + g % 2);
    }
}

/* Returns the prefetch of a step if NG groups are read at a time: the next one is NG groups on. */
INLINE prefetch prefetch_among(const call *c, const unsigned char *step, size_t left, size_t NG) {
    const char *here = (const char *)step;
    prefetch p = {here, here};
    if (step + (NG - 1) * c->group_bytes >= c->prefetch_end) return p;
    p.near += NEAR_BYTES + (left > NEAR_BYTES ? 0 : (NG - 1) * c->group_bytes);
    if ((size_t)(c->prefetch_end - step) > NG * c->group_bytes) p.far += NG * c->group_bytes;
    return p;
}

/* Multiplies MT tiles of activations with NG groups of weights from g on. The independent sums hide
 * each other's latency. A tile is multiplied after two more have been unpacked: then it is in L1,
 * and its address does not yet alias, modulo 4096, the address being stored to. */
INLINE void multiply_groups(const int MT, const int NG, const call *c, size_t g) {
    enum { LAG = 2 };
    const unsigned char *step = c->groups + g * c->group_bytes;
    bf16 *ring = c->ws->weights;
    const size_t n = c->n_blocks * (size_t)NG;
    for (int t = 0; t < MT * NG; t++) zero_sums(t);
    const size_t step_blocks = c->f->step_blocks;
    for (size_t b = 0; b < c->n_blocks; b += step_blocks, step += c->f->step_bytes) {
        const size_t left = c->group_bytes - b / step_blocks * c->f->step_bytes;
        for (size_t in_step = 0; in_step < step_blocks; in_step++) {
            for (int j = 0; j < NG; j++) {
                const unsigned char *from = step + (size_t)j * c->group_bytes;
                const size_t at = (b + in_step) * (size_t)NG + (size_t)j;
                prefetch_part(c->f->step_bytes, prefetch_among(c, from, left, (size_t)NG), in_step,
                              step_blocks);
                c->f->unpack(ring + at % RING * TILE, from, in_step, 1);
                if (at < LAG) continue;
                multiply_tile(MT, (j + 2 * NG - LAG) % NG, c, ring + (at - LAG) % RING * TILE,
                              (at - LAG) / (size_t)NG);
            }
        }
    }
    multiply_tile(MT, (2 * NG - 2) % NG, c, ring + (n - 2) % RING * TILE, (n - 2) / (size_t)NG);
    multiply_tile(MT, (2 * NG - 1) % NG, c, ring + (n - 1) % RING * TILE, (n - 1) / (size_t)NG);
    for (int t = 0; t < MT * NG; t++) {
        const tile_out p = tile_out_of(c, (size_t)(t % MT), g + (size_t)(t / MT));
        finish_sums(t, c->ws, &p);
    }
}

INLINE void matmul_few(const call *c) {
    const size_t n_groups = (c->n_rows + AG_X16 - 1) / AG_X16;
    const size_t n_tiles = (c->m + AG_X16 - 1) / AG_X16;
    for (size_t g = 0; g < n_groups;) {
        if (n_tiles == 1 && g + 4 <= n_groups) {
            multiply_groups(1, 4, c, g);
            g += 4;
        } else if (n_tiles == 2 && g + 2 <= n_groups) {
            multiply_groups(2, 2, c, g);
            g += 2;
        } else {
            if (n_tiles == 1) multiply_groups(1, 1, c, g);
            else if (n_tiles == 2) multiply_groups(2, 1, c, g);
            else if (n_tiles == 3) multiply_groups(3, 1, c, g);
            else multiply_groups(4, 1, c, g);
            g++;
        }
    }
}

INLINE void matmul_tiles(const weight_format *f, float *y, size_t y_stride, const void *packed,
                         size_t m, const ag_cpu_weight *w, size_t row0, size_t n_rows,
                         void *scratch) {
    call c = {.f = f, .ws = scratch, .y = y, .y_stride = y_stride, .m = m, .n_rows = n_rows};
    c.x = packed;
    c.n_blocks = ag_x16_steps(w->k) * 2;
    c.group_bytes = c.n_blocks / f->step_blocks * f->step_bytes;
    c.groups = (const unsigned char *)w->data + row0 / AG_X16 * c.group_bytes;
    c.prefetch_end = w->prefetch_end;
    tiles_configure(&config);
    if (m <= FEW_TILES * AG_X16) matmul_few(&c);
    else matmul_many(&c);
    tiles_release();
}

#endif
