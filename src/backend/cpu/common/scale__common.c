/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/common/common.h"

void ag_scale__common(float *x, float v, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] *= v;
}
