/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the interleaved types: one function unpacks 16 rows of a block of each type. */
#include "backend/cpu/avx512/matmul_x16.h"

INLINE void unpack_q4_0(weight_block *w, const unsigned char *step, size_t block) {
    const ag_q4_0_x16 *s = (const void *)step;
    w->d = load_halves(s->d[block]);
    unpack_nibbles(w->q, s->qs[block]);
}

INLINE void unpack_q4_1(weight_block *w, const unsigned char *step, size_t block) {
    const ag_q4_1_x16 *s = (const void *)step;
    w->d = load_halves(s->d[block]);
    w->m = load_halves(s->m[block]);
    unpack_nibbles(w->q, s->qs[block]);
}

INLINE void unpack_q8_0(weight_block *w, const unsigned char *step, size_t block) {
    const ag_q8_0_x16 *s = (const void *)step;
    w->d = load_halves(s->d[block]);
    for (int v = 0; v < 8; v++) w->q[v] = _mm512_loadu_si512(s->qs[block][v]);
}

INLINE void unpack_q5_0(weight_block *w, const unsigned char *step, size_t block) {
    const ag_q5_0_x16 *s = (const void *)step;
    w->d = load_halves(s->d[block]);
    unpack_nibbles(w->q, s->qs[block]);
    add_bit(w->q, s->qh[block], 4);
}

INLINE void unpack_q5_1(weight_block *w, const unsigned char *step, size_t block) {
    const ag_q5_1_x16 *s = (const void *)step;
    w->d = load_halves(s->d[block]);
    w->m = load_halves(s->m[block]);
    unpack_nibbles(w->q, s->qs[block]);
    add_bit(w->q, s->qh[block], 4);
}

INLINE void unpack_q4_k(weight_block *w, const unsigned char *step, size_t block) {
    const ag_q4_k_x16 *s = (const void *)step;
    __m512 scales[2];
    unpack_scales(scales, &s->scales, block);
    w->d = _mm512_mul_ps(load_halves(s->d), scales[0]);
    w->m = _mm512_mul_ps(load_halves(s->m), scales[1]);
    unpack_nibbles(w->q, s->qs[block]);
}

INLINE void unpack_q5_k(weight_block *w, const unsigned char *step, size_t block) {
    const ag_q5_k_x16 *s = (const void *)step;
    __m512 scales[2];
    unpack_scales(scales, &s->scales, block);
    w->d = _mm512_mul_ps(load_halves(s->d), scales[0]);
    w->m = _mm512_mul_ps(load_halves(s->m), scales[1]);
    unpack_nibbles(w->q, s->qs[block]);
    add_bit(w->q, s->qh[block], 4);
}

INLINE void unpack_q6_k(weight_block *w, const unsigned char *step, size_t block) {
    const ag_q6_k_x16 *s = (const void *)step;
    w->d = load_halves(s->d);
    unpack_part_scales(w->part, s->scales[block]);
    unpack_nibbles(w->q, s->qs[block]);
    add_pairs(w->q, s->qh[block], 4);
}

INLINE void unpack_q3_k(weight_block *w, const unsigned char *step, size_t block) {
    const ag_q3_k_x16 *s = (const void *)step;
    w->d = _mm512_mul_ps(load_halves(s->d), _mm512_set1_ps(0.5f));
    unpack_q3_k_scales(w->part, &s->scales, block);
    unpack_twice_q3_k(w->q, s, block);
}

INLINE void unpack_q2_k(weight_block *w, const unsigned char *step, size_t block) {
    const ag_q2_k_x16 *s = (const void *)step;
    w->d = load_halves(s->d);
    unpack_q2_k_scales(w->part, w->part_m, s->scales[block]);
    for (int g = 0; g < 2; g++) w->part_m[g] = _mm512_mul_ps(w->part_m[g], load_halves(s->m));
    for (int v = 0; v < 8; v++) w->q[v] = _mm512_setzero_si512();
    add_pairs(w->q, s->qs[block], 0);
}

INLINE void unpack_iq4_nl(weight_block *w, const unsigned char *step, size_t block) {
    const ag_iq4_nl_x16 *s = (const void *)step;
    /* The values plus 128. */
    const __m128i values =
        _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, (char)129, (char)141, (char)153, (char)166,
                      (char)181, (char)197, (char)217, (char)241);
    w->d = load_halves(s->d[block]);
    unpack_nibbles(w->q, s->qs[block]);
    for (int v = 0; v < 8; v++) {
        w->q[v] = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), w->q[v]);
    }
}

INLINE void unpack_mxfp4(weight_block *w, const unsigned char *step, size_t block) {
    const ag_mxfp4_x16 *s = (const void *)step;
    /* The values in units of d, plus 16. */
    const __m128i values =
        _mm_setr_epi8(16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4);
    w->d = load_exponents(s->e[block]);
    unpack_nibbles(w->q, s->qs[block]);
    for (int v = 0; v < 8; v++) {
        w->q[v] = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), w->q[v]);
    }
}

/* Defines the kernel of a type of weight: see weight_format. */
#define KERNEL(name, correction, has_m, has_parts)                                                \
    void ag_matmul_##name##_x16__avx512(float *y, size_t y_stride, const void *packed, size_t m,  \
                                        const ag_cpu_weight *w, size_t row0, size_t n_rows,       \
                                        void *scratch) {                                          \
        const weight_format f = WEIGHT_FORMAT(name, unpack_##name, correction, has_m, has_parts); \
        matmul_x16(&f, y, y_stride, packed, m, w, row0, n_rows, scratch);                         \
    }

KERNEL(q4_0, 1, 0, 0)
KERNEL(q4_1, 0, 1, 0)
KERNEL(q8_0, 16, 0, 0) /* -8 * 16 = -128 */
KERNEL(q5_0, 2, 0, 0)
KERNEL(q5_1, 0, 1, 0)
KERNEL(q4_k, 0, 1, 0)
KERNEL(q5_k, 0, 1, 0)
KERNEL(q6_k, 4, 0, 1)
KERNEL(q3_k, 1, 0, 1)
KERNEL(q2_k, 0, 1, 1)
KERNEL(iq4_nl, 16, 0, 0) /* -8 * 16 = -128 */
KERNEL(mxfp4, 2, 0, 0)

size_t ag_scratch_bytes_x16__avx512(size_t k) {
    (void)k;
    return 2 * CHUNK * sizeof(weight_block);
}
