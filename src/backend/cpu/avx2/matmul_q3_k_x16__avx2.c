/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx2/matmul_x16.h"

INLINE weight_block unpack(const unsigned char *step, size_t block, int half) {
    const ag_q3_k_x16 *s = (const void *)step;
    /* Levels are doubled, and 8 is subtracted. */
    weight_block w = {.d = _mm256_mul_ps(load_halves(s->d + 8 * half), _mm256_set1_ps(0.5f))};
    unpack_scales(w.part, &s->scales, block, half);
    for (int g = 0; g < 2; g++) w.part[g] = _mm256_sub_ps(w.part[g], _mm256_set1_ps(32));
    for (int v = 0; v < 8; v++) w.q[v] = _mm256_setzero_si256();
    add_pairs(w.q, s->qs[block], half, 1);
    add_bit(w.q, s->qh[block], half, 3);
    return w;
}

void ag_matmul_q3_k_x16__avx2(float *y, size_t y_stride, const void *packed, size_t m,
                              const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    (void)scratch;
    const weight_format f = WEIGHT_FORMAT(q3_k, unpack, dot_fives, 1, 0, 1);
    matmul_x16(&f, y, y_stride, packed, m, w, row0, n_rows);
}
