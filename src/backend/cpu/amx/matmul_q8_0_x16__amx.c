/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/amx/matmul_tiles.h"

/* Returns the value of the signed byte at the highest bits of each lane. */
INLINE __m512 value(__m512i bytes, __m512 d) {
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_srai_epi32(bytes, 24)), d);
}

INLINE void unpack(bf16 *tile, const unsigned char *step, size_t block, int to_l1) {
    const ag_q8_0_x16 *s = (const void *)step;
    const __m512 d = load_scales(s->d[block]);
    const __m512i offset = _mm512_set1_epi8(-128);
    for (size_t v = 0; v < 8; v++) {
        const __m512i q = _mm512_xor_si512(_mm512_loadu_si512(s->qs[block][v]), offset);
        put_pair(tile, 2 * v, value(_mm512_slli_epi32(q, 24), d),
                 value(_mm512_slli_epi32(q, 16), d), to_l1);
        put_pair(tile, 2 * v + 1, value(_mm512_slli_epi32(q, 8), d), value(q, d), to_l1);
    }
}

void ag_matmul_q8_0_x16__amx(float *y, size_t y_stride, const void *packed, size_t m,
                             const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    const weight_format f = WEIGHT_FORMAT(q8_0, unpack);
    matmul_tiles(&f, y, y_stride, packed, m, w, row0, n_rows, scratch);
}
