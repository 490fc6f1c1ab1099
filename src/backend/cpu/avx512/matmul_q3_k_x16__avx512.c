/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx512/matmul_x16.h"

INLINE weight_block unpack(const unsigned char *step, size_t block) {
    const ag_q3_k_x16 *s = (const void *)step;
    weight_block w = {.d = _mm512_mul_ps(load_halves(s->d), _mm512_set1_ps(0.5f))};
    unpack_q3_k_scales(w.part, &s->scales, block);
    unpack_twice_q3_k(w.q, s, block);
    return w;
}

void ag_matmul_q3_k_x16__avx512(float *y, size_t y_stride, const void *packed, size_t m,
                                const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    (void)scratch;
    const weight_format f = WEIGHT_FORMAT(q3_k, unpack, 1, 0, 1);
    matmul_x16(&f, y, y_stride, packed, m, w, row0, n_rows);
}
