/* SPDX-License-Identifier: Apache-2.0 */
/* Product of interleaved weights with packed activations. A type of weight provides a function that
 * unpacks 8 of the 16 rows of one block. All functions here are inlined into its kernel.
 *
 * Blocks of a group are unpacked to scratch memory, CHUNK of them at a time, and multiplied with
 * all rows of activations, ROWS at a time, whose sums stay in registers. Up to ROWS rows are
 * multiplied as their weights are unpacked.
 */
#ifndef AG_BACKEND_CPU_AVX2_MATMUL_X16_H
#define AG_BACKEND_CPU_AVX2_MATMUL_X16_H

#include "backend/cpu/avx2/avx2.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

/* Unrolls the next loop. With the address sanitizer, which checks each access, an unrolled kernel
 * would take 20 s to compile. */
#ifdef __SANITIZE_ADDRESS__
#define UNROLL(n)
#else
#define PRAGMA(text) _Pragma(#text)
#define UNROLL(n) PRAGMA(GCC unroll n)
#endif

enum { CHUNK = 8, ROWS = 4 };

/* One block of 8 rows: eight vectors of four columns. */
typedef struct weight_block {
    __m256i q[8];
#ifndef __AVXVNNI__
    __m256i sign[8]; /* weights of 8 bits, whose magnitudes are in q */
#endif
    __m256 d, m;
    __m256 part[2];   /* scales of the sums of columns 0 to 15 and 16 to 31 */
    __m256 part_m[2]; /* their m, if the halves have separate scales */
} weight_block;

/* A type of weight. interleaved.h describes steps and blocks of weights, and d, c, s and h of
 * activations. */
typedef struct weight_format {
    size_t step_bytes, step_blocks;
    void (*unpack)(weight_block *w, const unsigned char *step, size_t block, int half);
    /* Vectors whose products are summed in 16 bits, as pairs: 8 for levels of 4 bits (sums are at
     * most 8 * 2 * 15 * 127 = 30480), 4 for 5 bits (31496), 2 for 6 bits (32004). 1: weights of 8
     * bits with signs (2 * 128 * 127 = 32512). AVX-VNNI sums in 32 bits. */
    int together;
    uint32_t correction; /* factor of the tile's c */
    int has_m, has_parts;
} weight_format;

/* Describes a type of weight. */
#define WEIGHT_FORMAT(name, unpack, together, correction, has_m, has_parts)                     \
    {                                                                                           \
        sizeof(ag_##name##_x16), AG_X16_STEP_BLOCKS(name), unpack, together, correction, has_m, \
            has_parts                                                                           \
    }

INLINE __m256 load_halves(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128(p)); }
INLINE __m256i load_bytes(const void *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64(p)); }

/* Returns 2^(e - 128), the unit of values of MXFP4, for 8 exponent bytes e; NaN for 255, since
 * twice the unit is infinite. Subtraction is exact, also for units that are not normal. */
INLINE __m256 load_exponents(const void *p) {
    const __m256i bits = _mm256_slli_epi32(load_bytes(p), 23);
    const __m256i smallest = _mm256_set1_epi32(0x00400000); /* 2^-127 */
    const __m256 twice = _mm256_castsi256_ps(_mm256_max_epi32(bits, smallest));
    return _mm256_fnmadd_ps(twice, _mm256_set1_ps(0.5f), twice);
}

/* Unpacks the lower four bits of the levels of 8 rows of a block, from qs[v][8 * half] on. */
INLINE void unpack_nibbles(__m256i q[8], const uint8_t qs[4][AG_X16][4], int half) {
    const __m256i low = _mm256_set1_epi8(15);
    for (int v = 0; v < 4; v++) {
        const __m256i both = _mm256_loadu_si256((const void *)qs[v][8 * half]);
        q[v] = _mm256_and_si256(both, low);
        q[v + 4] = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
    }
}

/* Returns q | (bits << n & mask), byte by byte. */
INLINE __m256i add_bits(__m256i q, __m256i bits, const int n, int mask) {
    const __m256i there = n < 0 ? _mm256_srli_epi16(bits, -n) : _mm256_slli_epi16(bits, n);
    return _mm256_or_si256(q, _mm256_and_si256(there, _mm256_set1_epi8((char)mask)));
}

/* Adds one bit of each level at bit `bit`. */
INLINE void add_bit(__m256i q[8], const uint8_t qh[AG_X16][4], int half, const int bit) {
    const __m256i bits = _mm256_loadu_si256((const void *)qh[8 * half]);
    for (int v = 0; v < 8; v++) q[v] = add_bits(q[v], bits, bit - v, 1 << bit);
}

/* Adds two bits of each level at bits `bit` and `bit` + 1. */
INLINE void add_pairs(__m256i q[8], const uint8_t pairs[2][AG_X16][4], int half, const int bit) {
    for (int v = 0; v < 8; v++) {
        const __m256i bits = _mm256_loadu_si256((const void *)pairs[v / 4][8 * half]);
        q[v] = add_bits(q[v], bits, bit - v % 4 * 2, 3 << bit);
    }
}

/* Loads a block's 6-bit scale and minimum. They multiply the step's d and m. */
INLINE void unpack_scales(__m256 scales[2], const ag_x16_scales *s, size_t block, int half) {
    const __m256i low = load_bytes(s->low[block] + 8 * half);
    const __m128i shift = _mm_cvtsi32_si128((int)(block % 2 * 4));
    const __m256i high = _mm256_srl_epi32(load_bytes(s->high[block / 2] + 8 * half), shift);
    const __m256i upper = _mm256_set1_epi32(0x30), lower = _mm256_set1_epi32(15);
    const __m256i sc = _mm256_or_si256(_mm256_and_si256(low, lower),
                                       _mm256_and_si256(_mm256_slli_epi32(high, 4), upper));
    const __m256i mins = _mm256_or_si256(_mm256_srli_epi32(low, 4),
                                         _mm256_and_si256(_mm256_slli_epi32(high, 2), upper));
    scales[0] = _mm256_cvtepi32_ps(sc);
    scales[1] = _mm256_cvtepi32_ps(mins);
}

INLINE __m256i spread4(const int8_t *q) {
    int32_t four;
    __builtin_memcpy(&four, q, sizeof four);
    return _mm256_set1_epi32(four);
}

/* Returns the correction for the offset of the levels, from vector `from` on. */
INLINE __m256i correction(const weight_format *f, const ag_x16_tile *t, size_t at, const int from) {
    const int32_t c = !f->has_parts ? t->c[at] : from ? t->c[at] - t->h[at] : t->h[at];
    return _mm256_set1_epi32((int)((uint32_t)c * f->correction));
}

/* dot(): sums[i][h] = products of vectors [from, to) of w[h] with row `at` + i of the activations,
 * corrected, for i < N and h < H. */
#ifdef __AVXVNNI__
/* Weights of 8 bits stay as interleaved.h stores them, plus 128. */
enum { BYTES_CORRECTION = 16 }; /* -8 * 16 = -128 */
INLINE __m256i weight_bytes(__m256i stored) { return stored; }
INLINE void set_bytes(weight_block *w, int v, __m256i bytes) { w->q[v] = bytes; }

INLINE void dot(__m256i sums[][2], const int N, const int H, const weight_format *f,
                const weight_block *w, const ag_x16_tile *t, size_t at, const int from,
                const int to) {
    for (int i = 0; i < N; i++) {
        for (int h = 0; h < H; h++) sums[i][h] = correction(f, t, at + (size_t)i, from);
    }
    UNROLL(8)
    for (int v = from; v < to; v++) {
        for (int i = 0; i < N; i++) {
            const __m256i x = spread4(t->q + (at + (size_t)i) * 32 + v * 4);
            for (int h = 0; h < H; h++) {
                sums[i][h] = _mm256_dpbusd_avx_epi32(sums[i][h], w[h].q[v], x);
            }
        }
    }
}
#else
/* Weights of 8 bits become signed. */
enum { BYTES_CORRECTION = 0 };
INLINE __m256i weight_bytes(__m256i stored) {
    return _mm256_xor_si256(stored, _mm256_set1_epi8(-128));
}
INLINE void set_bytes(weight_block *w, int v, __m256i bytes) {
    w->sign[v] = bytes;
    w->q[v] = _mm256_abs_epi8(bytes);
}

/* Fixes the order of additions. The compiler would otherwise form all products first, which are
 * more than there are registers. */
INLINE void in_order(__m256i *sum) { __asm__("" : "+x"(*sum)); }

/* Returns the sums of pairs of products in 16 bits. The signs of weights are moved to x. A block in
 * registers has no space for magnitudes beside signs. */
INLINE __m256i pairs(const weight_format *f, const weight_block *w, const int v, __m256i x,
                     const int in_registers) {
    if (f->together > 1) return _mm256_maddubs_epi16(w->q[v], x);
    __m256i sign = w->sign[v], q = w->q[v];
    if (in_registers) {
        in_order(&sign);
        q = _mm256_abs_epi8(sign);
    }
    return _mm256_maddubs_epi16(q, _mm256_sign_epi8(x, sign));
}

INLINE void dot(__m256i sums[][2], const int N, const int H, const weight_format *f,
                const weight_block *w, const ag_x16_tile *t, size_t at, const int from,
                const int to) {
    __m256i some[ROWS][2];
    UNROLL(8)
    for (int v = from; v < to; v++) {
        for (int i = 0; i < N; i++) {
            const __m256i x = spread4(t->q + (at + (size_t)i) * 32 + v * 4);
            for (int h = 0; h < H; h++) {
                const __m256i p = pairs(f, &w[h], v, x, H == 1);
                some[i][h] = v % f->together ? _mm256_add_epi16(some[i][h], p) : p;
                if (N > 1) in_order(&some[i][h]);
                if ((v + 1) % f->together && v + 1 < to) continue;
                const __m256i wide = _mm256_madd_epi16(some[i][h], _mm256_set1_epi16(1));
                sums[i][h] = v - from < f->together ? wide : _mm256_add_epi32(sums[i][h], wide);
                if (N > 1) in_order(&sums[i][h]);
            }
        }
    }
    for (int i = 0; f->correction && i < N; i++) {
        const __m256i c = correction(f, t, at + (size_t)i, from);
        for (int h = 0; h < H; h++) sums[i][h] = _mm256_add_epi32(sums[i][h], c);
    }
}
#endif

/* Returns acc + m times the sum of the activations. */
INLINE __m256 add_m(__m256 acc, const weight_format *f, const weight_block *w, const ag_x16_tile *t,
                    size_t at) {
    if (!f->has_parts) return _mm256_fmadd_ps(w->m, _mm256_set1_ps(t->s[at]), acc);
    const float first = ag_x16_first_s(t, at);
    acc = _mm256_fmadd_ps(w->part_m[0], _mm256_set1_ps(first), acc);
    return _mm256_fmadd_ps(w->part_m[1], _mm256_set1_ps(t->s[at] - first), acc);
}

/* total[i][h] = products of w[h] with row `at` + i of the activations, before their scales; of one
 * of two parts: added to the other's, with the scale of the part. */
INLINE void dot_part(__m256 total[][2], const int N, const int H, const weight_format *f,
                     const weight_block *w, const ag_x16_tile *t, size_t at, const int part) {
    __m256i sums[ROWS][2];
    dot(sums, N, H, f, w, t, at, 4 * part, f->has_parts ? 4 * part + 4 : 8);
    for (int i = 0; i < N; i++) {
        for (int h = 0; h < H; h++) {
            const __m256 sum = _mm256_cvtepi32_ps(sums[i][h]);
            if (!f->has_parts) total[i][h] = sum;
            else if (!part) total[i][h] = _mm256_mul_ps(sum, w[h].part[0]);
            else total[i][h] = _mm256_fmadd_ps(sum, w[h].part[1], total[i][h]);
        }
    }
}

/* acc[i][h] += w[h] times row `at` + i of the activations, i < N, h < H. */
INLINE void add_block(__m256 acc[][2], const int N, const int H, const weight_format *f,
                      const weight_block *w, const ag_x16_tile *t, size_t at) {
    __m256 total[ROWS][2];
    dot_part(total, N, H, f, w, t, at, 0);
    if (f->has_parts) dot_part(total, N, H, f, w, t, at, 1);
    for (int i = 0; i < N; i++) {
        for (int h = 0; h < H; h++) {
            const __m256 d = _mm256_set1_ps(t->d[at + (size_t)i]);
            acc[i][h] = _mm256_fmadd_ps(total[i][h], _mm256_mul_ps(w[h].d, d), acc[i][h]);
            if (f->has_m) acc[i][h] = add_m(acc[i][h], f, &w[h], t, at + (size_t)i);
        }
    }
}

/* Prefetch distances: from memory to L2, from L2 to L1. */
enum { FAR_BYTES = 32768, NEAR_BYTES = 4608 };

/* Prefetches one of n_parts equal parts of a step's lines. */
INLINE void prefetch_part(const weight_format *f, const unsigned char *step,
                          const unsigned char *end, size_t part) {
    if (step >= end) return;
    const size_t left = (size_t)(end - step), n_parts = f->step_blocks;
    const size_t lines = (f->step_bytes + 63) / 64, some = (lines + n_parts - 1) / n_parts;
    for (size_t i = part * some; i < (part + 1) * some && i < lines; i++) {
        const char *line = (const char *)step + i * 64;
        if (left > FAR_BYTES) _mm_prefetch(line + FAR_BYTES, _MM_HINT_T1);
        _mm_prefetch(line + NEAR_BYTES, _MM_HINT_T0);
    }
}

/* One group of weights and its 16 columns of y. */
typedef struct group_call {
    const weight_format *f;
    const unsigned char *group, *prefetch_end;
    float *y;
    size_t y_stride, n; /* n: rows of the group that exist */
} group_call;

INLINE void load_row(__m256 row[2], const float *y, size_t n) {
    float all[AG_X16] = {0};
    if (n < AG_X16) {
        for (size_t i = 0; i < n; i++) all[i] = y[i];
        y = all;
    }
    row[0] = _mm256_loadu_ps(y);
    row[1] = _mm256_loadu_ps(y + 8);
}

INLINE void store_row(float *y, const __m256 row[2], size_t n) {
    float all[AG_X16], *to = n < AG_X16 ? all : y;
    _mm256_storeu_ps(to, row[0]);
    _mm256_storeu_ps(to + 8, row[1]);
    for (size_t i = 0; to == all && i < n; i++) y[i] = all[i];
}

/* Makes the compiler load activations again. It would otherwise keep those of one half for the
 * other half, in more registers than there are, and spill them to the stack. */
INLINE void forget_loads(void) { __asm__ volatile("" ::: "memory"); }

/* Multiplies the N rows of a panel with the group, whose blocks stay in registers. */
INLINE void multiply_few(const int N, const group_call *c, const ag_x16_tile *t) {
    __m256 acc[2][ROWS][2]; /* the last index is 0 */
    for (int i = 0; i < N; i++) acc[0][i][0] = acc[1][i][0] = _mm256_setzero_ps();
    const unsigned char *step = c->group;
    for (size_t b = 0; b < t->n_blocks; step += c->f->step_bytes) {
        for (size_t in_step = 0; in_step < c->f->step_blocks; in_step++, b++) {
            prefetch_part(c->f, step, c->prefetch_end, in_step);
            UNROLL(2)
            for (int half = 0; half < 2; half++) {
                weight_block w;
                c->f->unpack(&w, step, in_step, half);
                for (int i = 0; i < N; i++) {
                    if (N > 1 || c->f->has_parts) forget_loads();
                    add_block(&acc[half][i], 1, 1, c->f, &w, t, b * t->n_rows + (size_t)i);
                }
            }
        }
    }
    for (int i = 0; i < N; i++) {
        const __m256 row[2] = {acc[0][i][0], acc[1][i][0]};
        store_row(c->y + (size_t)i * c->y_stride, row, c->n);
    }
}

/* Unpacks n blocks of the group, from block `first` on. */
INLINE void unpack_chunk(weight_block *w, const group_call *c, size_t first, size_t n) {
    const weight_format *f = c->f;
    for (size_t b = first; b < first + n; b++, w += 2) {
        const unsigned char *step = c->group + b / f->step_blocks * f->step_bytes;
        prefetch_part(f, step, c->prefetch_end, b % f->step_blocks);
        for (int half = 0; half < 2; half++) f->unpack(&w[half], step, b % f->step_blocks, half);
    }
}

/* Adds the products of n blocks from block `first` on with rows row .. row + N of the tile. */
INLINE void multiply_chunk(const int N, const group_call *c, const weight_block *w, size_t first,
                           size_t n, const ag_x16_tile *t, size_t row) {
    __m256 acc[ROWS][2];
    float *y = c->y + row * c->y_stride;
    for (int i = 0; i < N; i++) {
        if (first) load_row(acc[i], y + (size_t)i * c->y_stride, c->n);
        else acc[i][0] = acc[i][1] = _mm256_setzero_ps();
    }
    for (size_t b = 0; b < n; b++, w += 2) {
        add_block(acc, N, 2, c->f, w, t, (first + b) * t->n_rows + row);
    }
    for (int i = 0; i < N; i++) store_row(y + (size_t)i * c->y_stride, acc[i], c->n);
}

/* Multiplies a chunk of n blocks of the group, from block `first` on, with a panel of m rows. */
INLINE void multiply_panel(group_call *c, const weight_block *w, size_t first, size_t n,
                           const void *packed, size_t m, size_t k) {
    float *y = c->y;
    for (size_t i = 0; i < m; i += AG_X16) {
        const ag_x16_tile t = ag_x16_tile_of(packed, i, m, k);
        size_t row = 0;
        c->y = y + i * c->y_stride;
        for (; row + ROWS <= t.n_rows; row += ROWS) multiply_chunk(ROWS, c, w, first, n, &t, row);
        if (row + 2 <= t.n_rows) {
            multiply_chunk(2, c, w, first, n, &t, row);
            row += 2;
        }
        if (row < t.n_rows) multiply_chunk(1, c, w, first, n, &t, row);
    }
}

/* Multiplies all groups with a panel of m rows. Their chunks take turns: a part of the panel is
 * read once for all groups, however large the panel is. */
INLINE void multiply_many(group_call c, const void *packed, size_t m, const ag_cpu_weight *w,
                          size_t n_rows, size_t group_bytes, weight_block *unpacked) {
    const size_t n_blocks = ag_x16_steps(w->k) * 2;
    const unsigned char *groups = c.group;
    float *y = c.y;
    for (size_t b = 0; b < n_blocks; b += CHUNK) {
        const size_t n = n_blocks - b < CHUNK ? n_blocks - b : CHUNK;
        for (size_t j = 0; j < n_rows; j += AG_X16) {
            c.group = groups + j / AG_X16 * group_bytes;
            c.n = n_rows - j < AG_X16 ? n_rows - j : AG_X16;
            c.y = y + j;
            unpack_chunk(unpacked, &c, b, n);
            multiply_panel(&c, unpacked, b, n, packed, m, w->k);
        }
    }
}

INLINE void matmul_x16(const weight_format *f, float *y, size_t y_stride, const void *packed,
                       size_t m, const ag_cpu_weight *w, size_t row0, size_t n_rows,
                       void *scratch) {
    const size_t group_bytes = ag_x16_steps(w->k) * 2 / f->step_blocks * f->step_bytes;
    const ag_x16_tile only = ag_x16_tile_of(packed, 0, m, w->k);
    group_call c = {.f = f, .y = y, .y_stride = y_stride, .prefetch_end = w->prefetch_end};
    c.group = (const unsigned char *)w->data + row0 / AG_X16 * group_bytes;
    if (m > ROWS) {
        multiply_many(c, packed, m, w, n_rows, group_bytes, scratch);
        return;
    }
    for (size_t j = 0; j < n_rows; j += AG_X16, c.group += group_bytes, c.y += AG_X16) {
        c.n = n_rows - j < AG_X16 ? n_rows - j : AG_X16;
        if (m == 1) multiply_few(1, &c, &only);
        else if (m == 2) multiply_few(2, &c, &only);
        else if (m == 3) multiply_few(3, &c, &only);
        else multiply_few(ROWS, &c, &only);
    }
}

#endif
