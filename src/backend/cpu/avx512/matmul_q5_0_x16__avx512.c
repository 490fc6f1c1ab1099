/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx512/matmul_x16.h"

INLINE weight_block unpack(const unsigned char *step, size_t block) {
    const ag_q5_0_x16 *s = (const void *)step;
    weight_block w = {.d = load_halves(s->d[block])};
    unpack_nibbles(w.q, s->qs[block]);
    add_bit(w.q, s->qh[block], 4);
    return w;
}

void ag_matmul_q5_0_x16__avx512(float *y, size_t y_stride, const void *packed, size_t m,
                                const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    (void)scratch;
    const weight_format f = WEIGHT_FORMAT(q5_0, unpack, 2, 0, 0);
    matmul_x16(&f, y, y_stride, packed, m, w, row0, n_rows);
}
