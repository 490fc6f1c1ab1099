/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/common/common.h"

#include <math.h>

void ag_silu_mul__common(float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const double v = a[i];
        a[i] = (float)(v / (1.0 + exp(-v)) * b[i]);
    }
}

void ag_gelu_mul__common(float *a, const float *b, size_t n) {
    const double root = 0.79788456080286535588; /* sqrt(2 / pi) */
    for (size_t i = 0; i < n; i++) {
        const double v = a[i], inner = root * (v + 0.044715 * v * v * v);
        a[i] = (float)(v / (1.0 + exp(-2.0 * inner)) * b[i]);
    }
}

void ag_mul__common(float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++) a[i] *= b[i];
}

void ag_sigmoid_mul__common(float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++) a[i] = (float)(b[i] / (1.0 + exp(-(double)a[i])));
}

void ag_softcap__common(float *x, float cap, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = (float)(cap * tanh((double)x[i] / cap));
}

void ag_swiglu_clamped__common(float *a, const float *b, float limit, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const double g = fmin((double)a[i], limit), u = fmax(fmin((double)b[i], limit), -limit);
        a[i] = (float)((u + 1) * g / (1 + exp(-1.702 * g)));
    }
}
