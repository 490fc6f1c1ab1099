/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/serving_impl.h"

#include <math.h>

static void insert_top(ag_logprob *top, size_t n, size_t *n_found, int32_t id, float logit) {
    size_t at = *n_found;
    if (at == n && !(logit > top[n - 1].logprob)) return;
    if (at < n) *n_found = at + 1;
    else at = n - 1;
    for (; at > 0 && logit > top[at - 1].logprob; at--) top[at] = top[at - 1];
    top[at] = (ag_logprob){.id = id, .logprob = logit};
}

float ag_logprob_of(const float *logits, size_t n_vocab, int32_t id, ag_logprob *top, size_t n) {
    float largest = -INFINITY;
    double sum = 0;
    size_t n_found = 0;
    for (size_t i = 0; i < n_vocab; i++) {
        if (logits[i] > largest) largest = logits[i];
        if (n) insert_top(top, n, &n_found, (int32_t)i, logits[i]);
    }
    for (size_t i = 0; i < n_vocab; i++) sum += exp((double)logits[i] - (double)largest);
    const double log_sum = (double)largest + log(sum);
    for (size_t i = 0; i < n_found; i++) top[i].logprob = (float)((double)top[i].logprob - log_sum);
    return (float)((double)logits[id] - log_sum);
}
