/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx2/matmul_x16.h"

INLINE weight_block unpack(const unsigned char *step, size_t block, int half) {
    const ag_q4_k_x16 *s = (const void *)step;
    weight_block w;
    __m256 scales[2];
    unpack_scales(scales, &s->scales, block, half);
    w.d = _mm256_mul_ps(load_halves(s->d + 8 * half), scales[0]);
    w.m = _mm256_mul_ps(load_halves(s->m + 8 * half), scales[1]);
    unpack_nibbles(w.q, s->qs[block], half);
    return w;
}

void ag_matmul_q4_k_x16__avx2(float *y, size_t y_stride, const void *packed, size_t m,
                              const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    (void)scratch;
    const weight_format f = WEIGHT_FORMAT(q4_k, unpack, dot_nibbles, 0, 1, 0);
    matmul_x16(&f, y, y_stride, packed, m, w, row0, n_rows);
}
