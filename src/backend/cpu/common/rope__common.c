/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/common/common.h"

void ag_rope__common(float *x, const float *cos_sin, size_t n) {
    const size_t half = n / 2;
    for (size_t i = 0; i < half; i++) {
        const double c = cos_sin[2 * i], s = cos_sin[2 * i + 1];
        const double a = x[i], b = x[i + half];
        x[i] = (float)(a * c - b * s);
        x[i + half] = (float)(b * c + a * s);
    }
}
