/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx512/floats.h"

#include "backend/cpu/simd/matmul_floats.h"

INLINE wide load(const unsigned char *p) {
    const __m256i halves = _mm256_loadu_si256((const void *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

void ag_matmul_bf16__avx512(float *y, size_t y_stride, const void *packed, size_t m,
                            const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    (void)scratch;
    const float_format f = {sizeof(uint16_t), load};
    matmul_floats(&f, y, y_stride, packed, m, w, row0, n_rows);
}
