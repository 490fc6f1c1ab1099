/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx2/matmul_x16.h"

INLINE weight_block unpack(const unsigned char *step, size_t block, int half) {
    const ag_iq4_nl_x16 *s = (const void *)step;
    const __m128i values =
        _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
    weight_block w = {.d = load_halves(s->d[block] + 8 * half)};
    unpack_nibbles(w.q, s->qs[block], half);
    for (int v = 0; v < 8; v++) {
        w.q[v] = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), w.q[v]);
    }
    return w;
}

void ag_matmul_iq4_nl_x16__avx2(float *y, size_t y_stride, const void *packed, size_t m,
                                const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    (void)scratch;
    const weight_format f = WEIGHT_FORMAT(iq4_nl, unpack, dot_bytes, 0, 0, 0);
    matmul_x16(&f, y, y_stride, packed, m, w, row0, n_rows);
}
