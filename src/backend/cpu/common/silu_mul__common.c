/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/common/common.h"

#include <math.h>

void ag_silu_mul__common(float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const double v = a[i];
        a[i] = (float)(v / (1.0 + exp(-v)) * b[i]);
    }
}
