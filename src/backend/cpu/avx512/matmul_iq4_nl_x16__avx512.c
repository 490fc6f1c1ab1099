/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx512/matmul_x16.h"

INLINE weight_block unpack(const unsigned char *step, size_t block) {
    const ag_iq4_nl_x16 *s = (const void *)step;
    /* The values plus 128. */
    const __m128i values =
        _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, (char)129, (char)141, (char)153, (char)166,
                      (char)181, (char)197, (char)217, (char)241);
    weight_block w = {.d = load_halves(s->d[block])};
    unpack_nibbles(w.q, s->qs[block]);
    for (int v = 0; v < 8; v++) {
        w.q[v] = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), w.q[v]);
    }
    return w;
}

void ag_matmul_iq4_nl_x16__avx512(float *y, size_t y_stride, const void *packed, size_t m,
                                  const ag_cpu_weight *w, size_t row0, size_t n_rows,
                                  void *scratch) {
    (void)scratch;
    const weight_format f = WEIGHT_FORMAT(iq4_nl, unpack, 16, 0, 0); /* -8 * 16 = -128 */
    matmul_x16(&f, y, y_stride, packed, m, w, row0, n_rows);
}
