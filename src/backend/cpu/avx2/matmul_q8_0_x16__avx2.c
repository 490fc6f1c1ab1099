/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx2/matmul_x16.h"

INLINE weight_block unpack(const unsigned char *step, size_t block, int half) {
    const ag_q8_0_x16 *s = (const void *)step;
    const __m256i offset = _mm256_set1_epi8(-128);
    weight_block w = {.d = load_halves(s->d[block] + 8 * half)};
    for (int v = 0; v < 8; v++) {
        const __m256i q = _mm256_loadu_si256((const void *)s->qs[block][v][8 * half]);
        w.q[v] = _mm256_xor_si256(q, offset); /* back to signed */
    }
    return w;
}

void ag_matmul_q8_0_x16__avx2(float *y, size_t y_stride, const void *packed, size_t m,
                              const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    (void)scratch;
    const weight_format f = WEIGHT_FORMAT(q8_0, unpack, dot_bytes, 0, 0, 0);
    matmul_x16(&f, y, y_stride, packed, m, w, row0, n_rows);
}
