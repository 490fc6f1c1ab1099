/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/amx/matmul_tiles.h"

/* Returns the value of the nibble at the lowest bits of each lane. */
INLINE __m512 value(__m512i nibbles, __m512 d) {
    const __m512 levels = _mm512_set_ps(7, 6, 5, 4, 3, 2, 1, 0, -1, -2, -3, -4, -5, -6, -7, -8);
    return _mm512_mul_ps(_mm512_permutexvar_ps(nibbles, levels), d); /* uses 4 bits of a lane */
}

INLINE void unpack(bf16 *tile, const unsigned char *step, size_t block, int to_l1) {
    const ag_q4_0_x16 *s = (const void *)step;
    const __m512 d = load_scales(s->d[block]);
    for (size_t v = 0; v < 4; v++) {
        __m512i q[4];
        for (int j = 0; j < 4; j++) q[j] = bytes_from(s->qs[block], v, j, to_l1);
        put_pair(tile, 2 * v, value(q[0], d), value(q[1], d), to_l1);
        put_pair(tile, 2 * v + 1, value(q[2], d), value(q[3], d), to_l1);
        for (int j = 0; j < 4; j++) q[j] = _mm512_srli_epi32(q[j], 4);
        put_pair(tile, 2 * v + 8, value(q[0], d), value(q[1], d), to_l1);
        put_pair(tile, 2 * v + 9, value(q[2], d), value(q[3], d), to_l1);
    }
}

void ag_matmul_q4_0_x16__amx(float *y, size_t y_stride, const void *packed, size_t m,
                             const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    const weight_format f = WEIGHT_FORMAT(q4_0, unpack);
    matmul_tiles(&f, y, y_stride, packed, m, w, row0, n_rows, scratch);
}
