/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx2/matmul_x16.h"

INLINE weight_block unpack(const unsigned char *step, size_t block, int half) {
    const ag_q2_k_x16 *s = (const void *)step;
    weight_block w = {.d = load_halves(s->d + 8 * half)};
    const __m256 m = load_halves(s->m + 8 * half);
    for (int g = 0; g < 2; g++) {
        const __m256i both = load_bytes(s->scales[block][g] + 8 * half);
        const __m256i scale = _mm256_and_si256(both, _mm256_set1_epi32(15));
        w.part[g] = _mm256_cvtepi32_ps(scale);
        w.part_m[g] = _mm256_mul_ps(m, _mm256_cvtepi32_ps(_mm256_srli_epi32(both, 4)));
    }
    for (int v = 0; v < 8; v++) w.q[v] = _mm256_setzero_si256();
    add_pairs(w.q, s->qs[block], half, 0);
    return w;
}

void ag_matmul_q2_k_x16__avx2(float *y, size_t y_stride, const void *packed, size_t m,
                              const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    (void)scratch;
    const weight_format f = WEIGHT_FORMAT(q2_k, unpack, dot_fives, 0, 1, 1);
    matmul_x16(&f, y, y_stride, packed, m, w, row0, n_rows);
}
