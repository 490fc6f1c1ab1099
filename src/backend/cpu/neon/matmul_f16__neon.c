/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/neon/matmul_floats.h"

INLINE float32x4_t load(const unsigned char *p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const void *)p)));
}

void ag_matmul_f16__neon(float *y, size_t y_stride, const void *packed, size_t m,
                         const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    (void)scratch;
    const float_format f = {sizeof(uint16_t), load};
    matmul_floats(&f, y, y_stride, packed, m, w, row0, n_rows);
}
