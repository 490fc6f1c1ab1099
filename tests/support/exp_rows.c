/* SPDX-License-Identifier: Apache-2.0 */
/* The exponentials of one instruction set over a row; compiled once for each set with its flags. */
#include AG_VEC_HEADER

#include "exp_rows.h"

void AG_EXP_ROWS(float *y, float *weights, const float *x, size_t n) {
    for (size_t i = 0; i < n; i += LANES) {
        v_store(y + i, v_exp(v_load(x + i)));
        v_store(weights + i, v_weight(v_load(x + i)));
    }
}
