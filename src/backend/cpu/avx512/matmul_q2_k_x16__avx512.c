/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx512/matmul_x16.h"

INLINE weight_block unpack(const unsigned char *step, size_t block) {
    const ag_q2_k_x16 *s = (const void *)step;
    weight_block w = {.d = load_halves(s->d)};
    unpack_q2_k_scales(w.part, w.part_m, s->scales[block]);
    for (int g = 0; g < 2; g++) w.part_m[g] = _mm512_mul_ps(w.part_m[g], load_halves(s->m));
    for (int v = 0; v < 8; v++) w.q[v] = _mm512_setzero_si512();
    add_pairs(w.q, s->qs[block], 0);
    return w;
}

void ag_matmul_q2_k_x16__avx512(float *y, size_t y_stride, const void *packed, size_t m,
                                const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    (void)scratch;
    const weight_format f = WEIGHT_FORMAT(q2_k, unpack, 0, 1, 1);
    matmul_x16(&f, y, y_stride, packed, m, w, row0, n_rows);
}
