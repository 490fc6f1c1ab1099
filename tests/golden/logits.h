/* SPDX-License-Identifier: Apache-2.0 */
/* Measures of a row of logits. */
#ifndef AG_TESTS_LOGITS_H
#define AG_TESTS_LOGITS_H

#include <math.h>
#include <stdint.h>

/* Negative logarithm of the token's probability. */
static inline double nll_of(const float *logits, int32_t n, int32_t id) {
    double top = logits[0], sum = 0;
    for (int32_t i = 1; i < n; i++) top = logits[i] > top ? logits[i] : top;
    for (int32_t i = 0; i < n; i++) sum += exp(logits[i] - top);
    return top + log(sum) - logits[id];
}

static inline int32_t argmax(const float *x, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++) best = x[i] > x[best] ? i : best;
    return best;
}

#endif
