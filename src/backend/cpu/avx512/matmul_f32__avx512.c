/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx512/floats.h"

#include "backend/cpu/simd/matmul_floats.h"

INLINE wide load(const unsigned char *p) { return v_load((const void *)p); }

void ag_matmul_f32__avx512(float *y, size_t y_stride, const void *packed, size_t m,
                           const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    (void)scratch;
    const float_format f = {sizeof(float), load};
    matmul_floats(&f, y, y_stride, packed, m, w, row0, n_rows);
}
