/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx2/matmul_x16.h"

INLINE weight_block unpack(const unsigned char *step, size_t block, int half) {
    const ag_q6_k_x16 *s = (const void *)step;
    weight_block w = {.d = load_halves(s->d + 8 * half)};
    for (int g = 0; g < 2; g++) {
        const __m128i scales = _mm_loadl_epi64((const void *)(s->scales[block][g] + 8 * half));
        w.part[g] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(scales));
    }
    unpack_nibbles(w.q, s->qs[block], half);
    add_pairs(w.q, s->qh[block], half, 4);
    return w;
}

void ag_matmul_q6_k_x16__avx2(float *y, size_t y_stride, const void *packed, size_t m,
                              const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    (void)scratch;
    const weight_format f = WEIGHT_FORMAT(q6_k, unpack, dot_sixes, 4, 0, 1);
    matmul_x16(&f, y, y_stride, packed, m, w, row0, n_rows);
}
