/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/common/common.h"

void ag_add__common(float *x, const float *y, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] += y[i];
}
