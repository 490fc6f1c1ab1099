/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/amx/matmul_x16.h"

INLINE weight_block unpack(const unsigned char *step, int block) {
    const ag_q8_0_x16 *s = (const void *)step;
    const __m512i offset = _mm512_set1_epi8(-128);
    weight_block w = {.d = load_halves(s->d[block])};
    for (int v = 0; v < 8; v++) {
        w.q[v] = _mm512_xor_si512(_mm512_loadu_si512(s->qs[block][v]), offset);
    }
    return w;
}

void ag_matmul_q8_0_x16__amx(float *y, size_t y_stride, const void *packed, size_t m,
                             const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    const weight_format f = {sizeof(ag_q8_0_x16), unpack, 0};
    const size_t done = matmul_tiles(&f, y, y_stride, packed, m, w, row0, n_rows, scratch);
    const unsigned char *rest = (const unsigned char *)packed + done * ag_x16_row_bytes(w->k);
    if (done == m) return;
    ag_matmul_q8_0_x16__avx512(y + done * y_stride, y_stride, rest, m - done, w, row0, n_rows,
                               scratch);
}
