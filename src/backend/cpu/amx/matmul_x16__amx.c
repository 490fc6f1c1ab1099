/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the interleaved types: one function unpacks 16 rows of a block of each type, as a
 * tile. */
#include "backend/cpu/amx/matmul_tiles.h"

/* Returns the value of the nibble at the lowest bits of each lane. */
INLINE __m512 value_q4_0(__m512i nibbles, __m512 d) {
    const __m512 levels = _mm512_set_ps(7, 6, 5, 4, 3, 2, 1, 0, -1, -2, -3, -4, -5, -6, -7, -8);
    return _mm512_mul_ps(_mm512_permutexvar_ps(nibbles, levels), d); /* uses 4 bits of a lane */
}

INLINE void unpack_q4_0(bf16 *tile, const unsigned char *step, size_t block, int to_l1) {
    const ag_q4_0_x16 *s = (const void *)step;
    const __m512 d = load_scales(s->d[block]);
    for (size_t v = 0; v < 4; v++) {
        __m512i q[4];
        for (int j = 0; j < 4; j++) q[j] = bytes_from(s->qs[block], v, j, to_l1);
        put_pair(tile, 2 * v, value_q4_0(q[0], d), value_q4_0(q[1], d), to_l1);
        put_pair(tile, 2 * v + 1, value_q4_0(q[2], d), value_q4_0(q[3], d), to_l1);
        for (int j = 0; j < 4; j++) q[j] = _mm512_srli_epi32(q[j], 4);
        put_pair(tile, 2 * v + 8, value_q4_0(q[0], d), value_q4_0(q[1], d), to_l1);
        put_pair(tile, 2 * v + 9, value_q4_0(q[2], d), value_q4_0(q[3], d), to_l1);
    }
}

INLINE void unpack_q4_1(bf16 *tile, const unsigned char *step, size_t block, int to_l1) {
    const ag_q4_1_x16 *s = (const void *)step;
    put_nibbles(tile, s->qs[block], load_scales(s->d[block]), load_scales(s->m[block]), to_l1);
}

/* Returns the value of the signed byte at the highest bits of each lane. */
INLINE __m512 value_q8_0(__m512i bytes, __m512 d) {
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_srai_epi32(bytes, 24)), d);
}

INLINE void unpack_q8_0(bf16 *tile, const unsigned char *step, size_t block, int to_l1) {
    const ag_q8_0_x16 *s = (const void *)step;
    const __m512 d = load_scales(s->d[block]);
    const __m512i offset = _mm512_set1_epi8(-128);
    for (size_t v = 0; v < 8; v++) {
        const __m512i q = _mm512_xor_si512(_mm512_loadu_si512(s->qs[block][v]), offset);
        put_pair(tile, 2 * v, value_q8_0(_mm512_slli_epi32(q, 24), d),
                 value_q8_0(_mm512_slli_epi32(q, 16), d), to_l1);
        put_pair(tile, 2 * v + 1, value_q8_0(_mm512_slli_epi32(q, 8), d), value_q8_0(q, d), to_l1);
    }
}

INLINE void unpack_q5_0(bf16 *tile, const unsigned char *step, size_t block, int to_l1) {
    const ag_q5_0_x16 *s = (const void *)step;
    const __m512 d = load_scales(s->d[block]), m = _mm512_mul_ps(d, _mm512_set1_ps(-16));
    __m512i q[8];
    unpack_nibbles(q, s->qs[block]);
    add_bit(q, s->qh[block], 4);
    put_levels(tile, q, (const __m512[]){d, d}, (const __m512[]){m, m}, to_l1);
}

INLINE void unpack_q5_1(bf16 *tile, const unsigned char *step, size_t block, int to_l1) {
    const ag_q5_1_x16 *s = (const void *)step;
    const __m512 d = load_scales(s->d[block]), m = load_scales(s->m[block]);
    __m512i q[8];
    unpack_nibbles(q, s->qs[block]);
    add_bit(q, s->qh[block], 4);
    put_levels(tile, q, (const __m512[]){d, d}, (const __m512[]){m, m}, to_l1);
}

INLINE void unpack_q4_k(bf16 *tile, const unsigned char *step, size_t block, int to_l1) {
    const ag_q4_k_x16 *s = (const void *)step;
    __m512 scales[2];
    unpack_scales(scales, &s->scales, block);
    const __m512 d = _mm512_mul_ps(load_scales(s->d), scales[0]);
    const __m512 m = _mm512_mul_ps(load_scales(s->m), scales[1]);
    put_nibbles(tile, s->qs[block], d, m, to_l1);
}

INLINE void unpack_q5_k(bf16 *tile, const unsigned char *step, size_t block, int to_l1) {
    const ag_q5_k_x16 *s = (const void *)step;
    __m512 scales[2];
    __m512i q[8];
    unpack_scales(scales, &s->scales, block);
    const __m512 d = _mm512_mul_ps(load_scales(s->d), scales[0]);
    const __m512 m = _mm512_mul_ps(load_scales(s->m), scales[1]);
    unpack_nibbles(q, s->qs[block]);
    add_bit(q, s->qh[block], 4);
    put_levels(tile, q, (const __m512[]){d, d}, (const __m512[]){m, m}, to_l1);
}

INLINE void unpack_q6_k(bf16 *tile, const unsigned char *step, size_t block, int to_l1) {
    const ag_q6_k_x16 *s = (const void *)step;
    __m512 d[2], m[2];
    __m512i q[8];
    unpack_part_scales(d, s->scales[block]);
    for (int g = 0; g < 2; g++) {
        d[g] = _mm512_mul_ps(d[g], load_scales(s->d));
        m[g] = _mm512_mul_ps(d[g], _mm512_set1_ps(-32));
    }
    unpack_nibbles(q, s->qs[block]);
    add_pairs(q, s->qh[block], 4);
    put_levels(tile, q, d, m, to_l1);
}

INLINE void unpack_q3_k(bf16 *tile, const unsigned char *step, size_t block, int to_l1) {
    const ag_q3_k_x16 *s = (const void *)step;
    __m512 d[2], m[2];
    __m512i q[8];
    const __m512 half = _mm512_mul_ps(load_scales(s->d), _mm512_set1_ps(0.5f));
    unpack_q3_k_scales(d, &s->scales, block);
    for (int g = 0; g < 2; g++) {
        d[g] = _mm512_mul_ps(d[g], half);
        m[g] = _mm512_mul_ps(d[g], _mm512_set1_ps(-8));
    }
    unpack_twice_q3_k(q, s, block);
    put_levels(tile, q, d, m, to_l1);
}

INLINE void unpack_q2_k(bf16 *tile, const unsigned char *step, size_t block, int to_l1) {
    const ag_q2_k_x16 *s = (const void *)step;
    __m512 d[2], m[2];
    __m512i q[8];
    unpack_q2_k_scales(d, m, s->scales[block]);
    for (int g = 0; g < 2; g++) {
        d[g] = _mm512_mul_ps(d[g], load_scales(s->d));
        m[g] = _mm512_mul_ps(m[g], load_scales(s->m));
    }
    for (int v = 0; v < 8; v++) q[v] = _mm512_setzero_si512();
    add_pairs(q, s->qs[block], 0);
    put_levels(tile, q, d, m, to_l1);
}

INLINE void unpack_iq4_nl(bf16 *tile, const unsigned char *step, size_t block, int to_l1) {
    const ag_iq4_nl_x16 *s = (const void *)step;
    const __m512 values =
        _mm512_setr_ps(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
    put_values(tile, s->qs[block], values, load_scales(s->d[block]), _mm512_setzero_ps(), to_l1);
}

/* Values are exact in bfloat16. The instructions read those below 2^-126 as 0. */
INLINE void unpack_mxfp4(bf16 *tile, const unsigned char *step, size_t block, int to_l1) {
    const ag_mxfp4_x16 *s = (const void *)step;
    const __m512 values = _mm512_setr_ps(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    put_values(tile, s->qs[block], values, load_exponents(s->e[block]), _mm512_setzero_ps(), to_l1);
}

/* Defines the kernel of a type of weight. */
#define KERNEL(NAME, name)                                                                    \
    void ag_matmul_##name##_x16__amx(float *y, size_t y_stride, const void *packed, size_t m, \
                                     const ag_cpu_weight *w, size_t row0, size_t n_rows,      \
                                     void *scratch) {                                         \
        const weight_format f = WEIGHT_FORMAT(name, unpack_##name);                           \
        matmul_tiles(&f, y, y_stride, packed, m, w, row0, n_rows, scratch);                   \
    }
AG_X16_MAP(KERNEL)
