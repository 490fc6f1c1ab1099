/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/amx/matmul_tiles.h"

INLINE void unpack(bf16 *tile, const unsigned char *step, size_t block, int to_l1) {
    const ag_q4_1_x16 *s = (const void *)step;
    put_nibbles(tile, s->qs[block], load_scales(s->d[block]), load_scales(s->m[block]), to_l1);
}

void ag_matmul_q4_1_x16__amx(float *y, size_t y_stride, const void *packed, size_t m,
                             const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    const weight_format f = WEIGHT_FORMAT(q4_1, unpack);
    matmul_tiles(&f, y, y_stride, packed, m, w, row0, n_rows, scratch);
}
