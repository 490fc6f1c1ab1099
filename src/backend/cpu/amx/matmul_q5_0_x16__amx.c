/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/amx/matmul_tiles.h"

INLINE void unpack(bf16 *tile, const unsigned char *step, size_t block, int to_l1) {
    const ag_q5_0_x16 *s = (const void *)step;
    const __m512 d = load_scales(s->d[block]), m = _mm512_mul_ps(d, _mm512_set1_ps(-16));
    __m512i q[8];
    unpack_nibbles(q, s->qs[block]);
    add_bit(q, s->qh[block], 4);
    put_levels(tile, q, (const __m512[]){d, d}, (const __m512[]){m, m}, to_l1);
}

void ag_matmul_q5_0_x16__amx(float *y, size_t y_stride, const void *packed, size_t m,
                             const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    const weight_format f = WEIGHT_FORMAT(q5_0, unpack);
    matmul_tiles(&f, y, y_stride, packed, m, w, row0, n_rows, scratch);
}
