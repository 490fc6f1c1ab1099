/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the interleaved types: one function unpacks 8 rows of a block of each type. */
#include "backend/cpu/avx2/matmul_x16.h"

INLINE void unpack_q4_0(weight_block *w, const unsigned char *step, size_t block, int half) {
    const ag_q4_0_x16 *s = (const void *)step;
    w->d = load_halves(s->d[block] + 8 * half);
    unpack_nibbles(w->q, s->qs[block], half);
}

INLINE void unpack_q4_1(weight_block *w, const unsigned char *step, size_t block, int half) {
    const ag_q4_1_x16 *s = (const void *)step;
    w->d = load_halves(s->d[block] + 8 * half);
    w->m = load_halves(s->m[block] + 8 * half);
    unpack_nibbles(w->q, s->qs[block], half);
}

INLINE void unpack_q8_0(weight_block *w, const unsigned char *step, size_t block, int half) {
    const ag_q8_0_x16 *s = (const void *)step;
    w->d = load_halves(s->d[block] + 8 * half);
    for (int v = 0; v < 8; v++) {
        const __m256i stored = _mm256_loadu_si256((const void *)s->qs[block][v][8 * half]);
        set_bytes(w, v, weight_bytes(stored));
    }
}

INLINE void unpack_q5_0(weight_block *w, const unsigned char *step, size_t block, int half) {
    const ag_q5_0_x16 *s = (const void *)step;
    w->d = load_halves(s->d[block] + 8 * half);
    unpack_nibbles(w->q, s->qs[block], half);
    add_bit(w->q, s->qh[block], half, 4);
}

INLINE void unpack_q5_1(weight_block *w, const unsigned char *step, size_t block, int half) {
    const ag_q5_1_x16 *s = (const void *)step;
    w->d = load_halves(s->d[block] + 8 * half);
    w->m = load_halves(s->m[block] + 8 * half);
    unpack_nibbles(w->q, s->qs[block], half);
    add_bit(w->q, s->qh[block], half, 4);
}

INLINE void unpack_q4_k(weight_block *w, const unsigned char *step, size_t block, int half) {
    const ag_q4_k_x16 *s = (const void *)step;
    __m256 scales[2];
    unpack_scales(scales, &s->scales, block, half);
    w->d = _mm256_mul_ps(load_halves(s->d + 8 * half), scales[0]);
    w->m = _mm256_mul_ps(load_halves(s->m + 8 * half), scales[1]);
    unpack_nibbles(w->q, s->qs[block], half);
}

INLINE void unpack_q5_k(weight_block *w, const unsigned char *step, size_t block, int half) {
    const ag_q5_k_x16 *s = (const void *)step;
    __m256 scales[2];
    unpack_scales(scales, &s->scales, block, half);
    w->d = _mm256_mul_ps(load_halves(s->d + 8 * half), scales[0]);
    w->m = _mm256_mul_ps(load_halves(s->m + 8 * half), scales[1]);
    unpack_nibbles(w->q, s->qs[block], half);
    add_bit(w->q, s->qh[block], half, 4);
}

INLINE void unpack_q6_k(weight_block *w, const unsigned char *step, size_t block, int half) {
    const ag_q6_k_x16 *s = (const void *)step;
    w->d = load_halves(s->d + 8 * half);
    for (int g = 0; g < 2; g++) {
        const __m128i scales = _mm_loadl_epi64((const void *)(s->scales[block][g] + 8 * half));
        w->part[g] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(scales));
    }
    unpack_nibbles(w->q, s->qs[block], half);
    add_pairs(w->q, s->qh[block], half, 4);
}

INLINE void unpack_q3_k(weight_block *w, const unsigned char *step, size_t block, int half) {
    const ag_q3_k_x16 *s = (const void *)step;
    /* Levels are doubled, and 8 is subtracted. */
    w->d = _mm256_mul_ps(load_halves(s->d + 8 * half), _mm256_set1_ps(0.5f));
    unpack_scales(w->part, &s->scales, block, half);
    for (int g = 0; g < 2; g++) w->part[g] = _mm256_sub_ps(w->part[g], _mm256_set1_ps(32));
    for (int v = 0; v < 8; v++) w->q[v] = _mm256_setzero_si256();
    add_pairs(w->q, s->qs[block], half, 1);
    add_bit(w->q, s->qh[block], half, 3);
}

INLINE void unpack_q2_k(weight_block *w, const unsigned char *step, size_t block, int half) {
    const ag_q2_k_x16 *s = (const void *)step;
    w->d = load_halves(s->d + 8 * half);
    const __m256 m = load_halves(s->m + 8 * half);
    for (int g = 0; g < 2; g++) {
        const __m256i both = load_bytes(s->scales[block][g] + 8 * half);
        const __m256i scale = _mm256_and_si256(both, _mm256_set1_epi32(15));
        w->part[g] = _mm256_cvtepi32_ps(scale);
        w->part_m[g] = _mm256_mul_ps(m, _mm256_cvtepi32_ps(_mm256_srli_epi32(both, 4)));
    }
    for (int v = 0; v < 8; v++) w->q[v] = _mm256_setzero_si256();
    add_pairs(w->q, s->qs[block], half, 0);
}

INLINE void unpack_iq4_nl(weight_block *w, const unsigned char *step, size_t block, int half) {
    const ag_iq4_nl_x16 *s = (const void *)step;
    /* The values plus 128. */
    const __m128i values =
        _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, (char)129, (char)141, (char)153, (char)166,
                      (char)181, (char)197, (char)217, (char)241);
    const __m256i table = weight_bytes(_mm256_broadcastsi128_si256(values));
    w->d = load_halves(s->d[block] + 8 * half);
    unpack_nibbles(w->q, s->qs[block], half);
    for (int v = 0; v < 8; v++) set_bytes(w, v, _mm256_shuffle_epi8(table, w->q[v]));
}

INLINE void unpack_mxfp4(weight_block *w, const unsigned char *step, size_t block, int half) {
    const ag_mxfp4_x16 *s = (const void *)step;
    /* The values in units of d, plus 16. */
    const __m128i values =
        _mm_setr_epi8(16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4);
    const __m256i table = _mm256_broadcastsi128_si256(values);
    w->d = load_exponents(s->e[block] + 8 * half);
    unpack_nibbles(w->q, s->qs[block], half);
    for (int v = 0; v < 8; v++) w->q[v] = _mm256_shuffle_epi8(table, w->q[v]);
}

/* Defines the kernel of a type of weight: see weight_format. */
#define KERNEL(name, together, correction, has_m, has_parts)                                  \
    void SET(ag_matmul_##name##_x16)(float *y, size_t y_stride, const void *packed, size_t m, \
                                     const ag_cpu_weight *w, size_t row0, size_t n_rows,      \
                                     void *scratch) {                                         \
        const weight_format f =                                                               \
            WEIGHT_FORMAT(name, unpack_##name, together, correction, has_m, has_parts);       \
        matmul_x16(&f, y, y_stride, packed, m, w, row0, n_rows, scratch);                     \
    }

KERNEL(q4_0, 8, 1, 0, 0)
KERNEL(q4_1, 8, 0, 1, 0)
KERNEL(q8_0, 1, BYTES_CORRECTION, 0, 0)
KERNEL(q5_0, 4, 2, 0, 0)
KERNEL(q5_1, 4, 0, 1, 0)
KERNEL(q4_k, 8, 0, 1, 0)
KERNEL(q5_k, 4, 0, 1, 0)
KERNEL(q6_k, 2, 4, 0, 1)
KERNEL(q3_k, 4, 1, 0, 1)
KERNEL(q2_k, 4, 0, 1, 1)
KERNEL(iq4_nl, 1, BYTES_CORRECTION, 0, 0)
KERNEL(mxfp4, 4, 2, 0, 0)

size_t SET(ag_scratch_bytes_x16)(size_t k) {
    (void)k;
    return 2 * CHUNK * sizeof(weight_block);
}
