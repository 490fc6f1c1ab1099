/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/neon/neon.h"
#include "backend/cpu/neon/vec.h"

#include "backend/cpu/simd/recurrence.h"

void ag_conv_row__neon(float *y, const float *const taps[], size_t n_taps, const float *w,
                       size_t stride, size_t n, bool with_silu) {
    conv_row(y, taps, n_taps, w, stride, n, with_silu);
}

void ag_delta_token__neon(float *out, float *state, const ag_delta_token *t, float *scratch) {
    delta_token(out, state, t, scratch);
}
