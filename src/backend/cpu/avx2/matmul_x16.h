/* SPDX-License-Identifier: Apache-2.0 */
/* Product of interleaved weights with packed activations, 8 of the 16 rows at a time. A type of
 * weight provides two functions: one unpacks 8 rows of one block, one multiplies them with
 * activations. All functions here are inlined into its kernel. */
#ifndef AG_BACKEND_CPU_AVX2_MATMUL_X16_H
#define AG_BACKEND_CPU_AVX2_MATMUL_X16_H

#include "backend/cpu/avx2/avx2.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

/* One block of 8 rows: eight vectors of four columns. */
typedef struct weight_block {
    __m256i q[8];
    __m256 d, m;
    __m256 part[2];   /* scales of the sums of columns 0 to 15 and 16 to 31 */
    __m256 part_m[2]; /* their m, if the halves have separate scales */
} weight_block;

/* A type of weight. interleaved.h describes steps and blocks of weights, and d, c, s and h of
 * activations. */
typedef struct weight_format {
    size_t step_bytes, step_blocks;
    weight_block (*unpack)(const unsigned char *step, size_t block, int half);
    /* Multiplies vectors [from, to) with their activations, in int32, one lane for each row. */
    __m256i (*dot)(const weight_block *w, const int8_t *q, const int from, const int to);
    uint32_t correction; /* factor of the tile's c */
    int has_m, has_parts;
} weight_format;

/* Describes a type of weight. */
#define WEIGHT_FORMAT(name, unpack, dot, correction, has_m, has_parts) \
    { sizeof(ag_##name##_x16), AG_X16_STEP_BLOCKS(name), unpack, dot, correction, has_m, has_parts }

INLINE __m256 load_halves(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128(p)); }
INLINE __m256i load_bytes(const void *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64(p)); }

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

#ifdef __AVXVNNI__
/* Multiplies unsigned levels. Sums are exact, also those of levels of 8 bits. */
INLINE __m256i dot_levels(const weight_block *w, const int8_t *q, const int from, const int to,
                          const int together) {
    (void)together;
    __m256i sums = _mm256_setzero_si256();
    for (int v = from; v < to; v++) {
        sums = _mm256_dpbusd_avx_epi32(sums, w->q[v], spread4(q + v * 4));
    }
    return sums;
}
#else
/* Multiplies unsigned levels. The sum of `together` pairs of products stays below 2^15. */
INLINE __m256i dot_levels(const weight_block *w, const int8_t *q, const int from, const int to,
                          const int together) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sums = _mm256_setzero_si256();
    for (int first = from; first < to; first += together) {
        __m256i some = _mm256_maddubs_epi16(w->q[first], spread4(q + first * 4));
        for (int v = first + 1; v < first + together; v++) {
            some = _mm256_add_epi16(some, _mm256_maddubs_epi16(w->q[v], spread4(q + v * 4)));
        }
        const __m256i wide = _mm256_madd_epi16(some, ones);
        sums = first == from ? wide : _mm256_add_epi32(sums, wide);
    }
    return sums;
}
#endif

/* Multiplies levels of 4 bits: sums are at most 8 * 2 * 15 * 127 = 30480. */
INLINE __m256i dot_nibbles(const weight_block *w, const int8_t *q, const int from, const int to) {
    return dot_levels(w, q, from, to, 8);
}
/* Multiplies levels of 5 bits: sums are at most 4 * 2 * 31 * 127 = 31496. */
INLINE __m256i dot_fives(const weight_block *w, const int8_t *q, const int from, const int to) {
    return dot_levels(w, q, from, to, 4);
}
/* Multiplies levels of 6 bits: sums are at most 2 * 2 * 63 * 127 = 32004. */
INLINE __m256i dot_sixes(const weight_block *w, const int8_t *q, const int from, const int to) {
    return dot_levels(w, q, from, to, 2);
}

#ifdef __AVXVNNI__
/* Weights of 8 bits stay as interleaved.h stores them, plus 128. */
enum { BYTES_CORRECTION = 16 }; /* -8 * 16 = -128 */
INLINE __m256i weight_bytes(__m256i stored) { return stored; }
INLINE __m256i dot_bytes(const weight_block *w, const int8_t *q, const int from, const int to) {
    return dot_levels(w, q, from, to, 1);
}
#else
/* Weights of 8 bits become signed. */
enum { BYTES_CORRECTION = 0 };
INLINE __m256i weight_bytes(__m256i stored) {
    return _mm256_xor_si256(stored, _mm256_set1_epi8(-128));
}
/* Multiplies signed bytes. The weights' signs are moved to the activations; a sum of two products
 * is at most 2 * 128 * 127 = 32512. */
INLINE __m256i dot_bytes(const weight_block *w, const int8_t *q, const int from, const int to) {
    __m256i sums = _mm256_setzero_si256();
    for (int v = from; v < to; v++) {
        const __m256i x = _mm256_sign_epi8(spread4(q + v * 4), w->q[v]);
        const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w->q[v]), x);
        sums = _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    return sums;
}
#endif

/* Returns the products of vectors [from, to), corrected for the offset of the levels. */
INLINE __m256 sum_of(const weight_format *f, const weight_block *w, const ag_x16_tile *t, size_t at,
                     const int from, const int to) {
    const __m256i sums = f->dot(w, t->q + at * 32, from, to);
    if (!f->correction) return _mm256_cvtepi32_ps(sums);
    const int32_t c = !f->has_parts ? t->c[at] : from ? t->c[at] - t->h[at] : t->h[at];
    const __m256i correction = _mm256_set1_epi32((int)((uint32_t)c * f->correction));
    return _mm256_cvtepi32_ps(_mm256_add_epi32(sums, correction));
}

INLINE __m256 add_block(__m256 acc, const weight_format *f, const weight_block *w,
                        const ag_x16_tile *t, size_t at) {
    const __m256 scale = _mm256_mul_ps(w->d, _mm256_set1_ps(t->d[at]));
    __m256 sum = sum_of(f, w, t, at, 0, f->has_parts ? 4 : 8);
    if (f->has_parts) {
        sum = _mm256_mul_ps(sum, w->part[0]);
        sum = _mm256_fmadd_ps(sum_of(f, w, t, at, 4, 8), w->part[1], sum);
    }
    acc = _mm256_fmadd_ps(sum, scale, acc);
    if (!f->has_m) return acc;
    if (!f->has_parts) return _mm256_fmadd_ps(w->m, _mm256_set1_ps(t->s[at]), acc);
    const float first = ag_x16_first_s(t, at);
    acc = _mm256_fmadd_ps(w->part_m[0], _mm256_set1_ps(first), acc);
    return _mm256_fmadd_ps(w->part_m[1], _mm256_set1_ps(t->s[at] - first), acc);
}

/* Prefetch distances: from memory to L2, from L2 to L1. */
enum { FAR_BYTES = 32768, NEAR_BYTES = 4608 };

/* Prefetches one of n_parts equal parts of a step's lines. */
INLINE void prefetch_part(const weight_format *f, const unsigned char *step,
                          const unsigned char *end, size_t part) {
    if (step >= end) return;
    const size_t left = (size_t)(end - step), n_parts = f->step_blocks;
    const size_t lines = f->step_bytes / 64, some = (lines + n_parts - 1) / n_parts;
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

/* Makes the compiler load activations again. It would otherwise keep those of one half for the
 * other half, in more registers than there are, and spill them to the stack. */
INLINE void forget_loads(void) { __asm__ volatile("" ::: "memory"); }

/* Multiplies rows first .. first + N of the tile with the group. */
INLINE void multiply_rows(const int N, const group_call *c, const ag_x16_tile *t, size_t first) {
    __m256 acc[4][2];
    for (int i = 0; i < N; i++) acc[i][0] = acc[i][1] = _mm256_setzero_ps();
    const unsigned char *step = c->group;
    for (size_t b = 0; b < t->n_blocks; step += c->f->step_bytes) {
        for (size_t in_step = 0; in_step < c->f->step_blocks; in_step++, b++) {
            prefetch_part(c->f, step, c->prefetch_end, in_step);
            for (int half = 0; half < 2; half++) {
                const weight_block w = c->f->unpack(step, in_step, half);
                for (int i = 0; i < N; i++) {
                    const size_t at = b * t->n_rows + first + (size_t)i;
                    if (N > 1 || c->f->has_parts) forget_loads();
                    acc[i][half] = add_block(acc[i][half], c->f, &w, t, at);
                }
            }
        }
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
    const size_t group_bytes = ag_x16_steps(w->k) * 2 / f->step_blocks * f->step_bytes;
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
