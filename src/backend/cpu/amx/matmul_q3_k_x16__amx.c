/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/amx/matmul_tiles.h"

INLINE void unpack(bf16 *tile, const unsigned char *step, size_t block, int to_l1) {
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

void ag_matmul_q3_k_x16__amx(float *y, size_t y_stride, const void *packed, size_t m,
                             const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    const weight_format f = WEIGHT_FORMAT(q3_k, unpack);
    matmul_tiles(&f, y, y_stride, packed, m, w, row0, n_rows, scratch);
}
