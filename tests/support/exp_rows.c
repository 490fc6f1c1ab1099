/* SPDX-License-Identifier: Apache-2.0 */
/* The exponential of one instruction set over a row; compiled once for each set with its flags. */
#include AG_VEC_HEADER

#include "exp_rows.h"

void AG_EXP_ROWS(float *dst, const float *src, size_t n) {
    for (size_t i = 0; i < n; i += LANES) v_store(dst + i, v_exp(v_load(src + i)));
}
