/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/amx/matmul_tiles.h"

INLINE void unpack(bf16 *tile, const unsigned char *step, size_t block, int to_l1) {
    const ag_iq4_nl_x16 *s = (const void *)step;
    const __m512 values =
        _mm512_setr_ps(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
    put_values(tile, s->qs[block], values, load_scales(s->d[block]), _mm512_setzero_ps(), to_l1);
}

void ag_matmul_iq4_nl_x16__amx(float *y, size_t y_stride, const void *packed, size_t m,
                               const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    const weight_format f = WEIGHT_FORMAT(iq4_nl, unpack);
    matmul_tiles(&f, y, y_stride, packed, m, w, row0, n_rows, scratch);
}
