/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/amx/matmul_tiles.h"

INLINE void unpack(bf16 *tile, const unsigned char *step, size_t block, int to_l1) {
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

void ag_matmul_q6_k_x16__amx(float *y, size_t y_stride, const void *packed, size_t m,
                             const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    const weight_format f = WEIGHT_FORMAT(q6_k, unpack);
    matmul_tiles(&f, y, y_stride, packed, m, w, row0, n_rows, scratch);
}
