/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/neon/floats.h"

#include "backend/cpu/simd/matmul_floats.h"

INLINE wide load(const unsigned char *p) {
    const uint16x8_t halves = vld1q_u16((const void *)p);
    return (wide){vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(halves), 16)),
                  vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(halves), 16))};
}

void ag_matmul_bf16__neon(float *y, size_t y_stride, const void *packed, size_t m,
                          const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    (void)scratch;
    const float_format f = {sizeof(uint16_t), load};
    matmul_floats(&f, y, y_stride, packed, m, w, row0, n_rows);
}
