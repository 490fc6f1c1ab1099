/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx2/avx2.h"
#include "backend/cpu/avx2/vec.h"

#include "backend/cpu/simd/recurrence.h"

void ag_conv_row__avx2(float *y, const float *const taps[], size_t n_taps, const float *w,
                       size_t stride, size_t n, bool with_silu) {
    conv_row(y, taps, n_taps, w, stride, n, with_silu);
}

void ag_delta_token__avx2(float *out, float *state, const ag_delta_token *t, float *scratch) {
    delta_token(out, state, t, scratch);
}
