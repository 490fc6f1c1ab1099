/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx2/floats.h"

#include "backend/cpu/simd/matmul_floats.h"

INLINE wide load(const unsigned char *p) {
    const __m128i halves = _mm_loadu_si128((const void *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

void ag_matmul_bf16__avx2(float *y, size_t y_stride, const void *packed, size_t m,
                          const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    (void)scratch;
    const float_format f = {sizeof(uint16_t), load};
    matmul_floats(&f, y, y_stride, packed, m, w, row0, n_rows);
}
