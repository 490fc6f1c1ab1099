/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/amx/matmul_tiles.h"

INLINE void unpack(bf16 *tile, const unsigned char *step, size_t block, int to_l1) {
    const ag_q4_k_x16 *s = (const void *)step;
    __m512 scales[2];
    unpack_scales(scales, &s->scales, block);
    const __m512 d = _mm512_mul_ps(load_scales(s->d), scales[0]);
    const __m512 m = _mm512_mul_ps(load_scales(s->m), scales[1]);
    put_nibbles(tile, s->qs[block], d, m, to_l1);
}

void ag_matmul_q4_k_x16__amx(float *y, size_t y_stride, const void *packed, size_t m,
                             const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    const weight_format f = WEIGHT_FORMAT(q4_k, unpack);
    matmul_tiles(&f, y, y_stride, packed, m, w, row0, n_rows, scratch);
}
