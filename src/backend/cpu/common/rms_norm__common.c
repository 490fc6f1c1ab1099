/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/common/common.h"

#include <math.h>

void ag_rms_norm__common(float *y, const float *x, const float *w, size_t n, float eps) {
    double squares = 0;
    for (size_t i = 0; i < n; i++) squares += (double)x[i] * x[i];
    const double factor = 1.0 / sqrt(squares / (double)n + eps);
    for (size_t i = 0; i < n; i++) y[i] = (float)(x[i] * factor * w[i]);
}
