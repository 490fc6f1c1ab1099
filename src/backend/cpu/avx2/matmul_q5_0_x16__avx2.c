/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx2/matmul_x16.h"

INLINE weight_block unpack(const unsigned char *step, size_t block, int half) {
    const ag_q5_0_x16 *s = (const void *)step;
    weight_block w = {.d = load_halves(s->d[block] + 8 * half)};
    unpack_nibbles(w.q, s->qs[block], half);
    add_bit(w.q, s->qh[block], half, 4);
    return w;
}

void ag_matmul_q5_0_x16__avx2(float *y, size_t y_stride, const void *packed, size_t m,
                              const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    (void)scratch;
    const weight_format f = WEIGHT_FORMAT(q5_0, unpack, dot_fives, 2, 0, 0);
    matmul_x16(&f, y, y_stride, packed, m, w, row0, n_rows);
}
