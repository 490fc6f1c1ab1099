/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/common/common.h"

#include <math.h>

void ag_softmax__common(float *x, size_t n) {
    float max = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        if (x[i] > max) max = x[i];
    }
    if (max == -INFINITY) {
        /* A row of only -inf becomes 0. NaN is retained so that it is noticed. */
        for (size_t i = 0; i < n; i++) x[i] = isnan(x[i]) ? x[i] : 0.0f;
        return;
    }
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double e = exp((double)x[i] - max);
        sum += e;
        x[i] = (float)e;
    }
    const double factor = 1.0 / sum;
    for (size_t i = 0; i < n; i++) x[i] = (float)(x[i] * factor);
}
