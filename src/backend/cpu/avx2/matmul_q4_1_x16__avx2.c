/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx2/matmul_x16.h"

INLINE weight_block unpack(const unsigned char *step, int block, int half) {
    const ag_q4_1_x16 *s = (const void *)step;
    const __m256i low = _mm256_set1_epi8(15);
    weight_block w = {.d = load_halves(s->d[block] + 8 * half)};
    w.m = load_halves(s->m[block] + 8 * half);
    for (int v = 0; v < 4; v++) {
        const __m256i both = _mm256_loadu_si256((const void *)s->qs[block][v][8 * half]);
        w.q[v] = _mm256_and_si256(both, low);
        w.q[v + 4] = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
    }
    return w;
}

void ag_matmul_q4_1_x16__avx2(float *y, size_t y_stride, const void *packed, size_t m,
                              const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    (void)scratch;
    const weight_format f = {sizeof(ag_q4_1_x16), unpack, dot_nibbles, 0, 1};
    matmul_x16(&f, y, y_stride, packed, m, w, row0, n_rows);
}
