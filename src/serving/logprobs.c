/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/logprobs.h"

#include "serving/model.h"

#include <math.h>
#include <stdint.h>

/* Inserts a logit that is among the n largest so far. */
static void insert_top(ag_logprob *top, size_t n, size_t *n_found, int32_t id, float logit) {
    size_t at = *n_found;
    if (at < n) *n_found = at + 1;
    else at = n - 1;
    for (; at > 0 && logit > top[at - 1].logprob; at--) top[at] = top[at - 1];
    top[at] = (ag_logprob){.id = id, .logprob = logit};
}

enum { BLOCK = 64 };

/* Writes exp(x - largest) for x[BLOCK] of at most `largest`; 0 below the range of floats, and
 * infinity or NaN for a difference beyond 10^12. The relative error is below 2^-22. Compilers
 * vectorise this loop: exp() takes four times as long. Source of the polynomial: Cephes, expf(). */
static void exp_block(float *y, const float *x, float largest) {
    static const float log2_e = 1.44269504f, round = 12582912; /* 1.5 * 2^23 */
    static const float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    for (size_t i = 0; i < BLOCK; i++) {
        const float v = x[i] - largest, rounded = v * log2_e + round, k = rounded - round;
        const float r = (v - k * ln2_high) - k * ln2_low;
        float p = 1.9875691500e-4f;
        p = p * r + 1.3981999507e-3f;
        p = p * r + 8.3334519073e-3f;
        p = p * r + 4.1665795894e-2f;
        p = p * r + 1.6666665459e-1f;
        p = p * r + 5.0000001201e-1f;
        union {
            float f;
            uint32_t bits;
        } power = {.f = rounded}; /* its bits are those of `round` plus k */
        const uint32_t exponent = power.bits - 0x4b400000 + 127;
        power.bits = (exponent <= 127 ? exponent : 0) << 23;
        y[i] = (p * r * r + r + 1) * power.f;
    }
}

/* Returns the sum of exp(x - largest) for x[n]. */
static double sum_of_exp(const float *x, size_t n, float largest) {
    const size_t n_blocks = n / BLOCK;
    double sums[4] = {0}, sum = 0;
    float e[BLOCK];
    for (size_t i = 0; i < n_blocks; i++) {
        exp_block(e, x + i * BLOCK, largest);
        for (size_t k = 0; k < BLOCK; k += 4) {
            sums[0] += (double)e[k];
            sums[1] += (double)e[k + 1];
            sums[2] += (double)e[k + 2];
            sums[3] += (double)e[k + 3];
        }
    }
    const double blocks = sums[0] + sums[1] + sums[2] + sums[3];
    const size_t first = isfinite(blocks) ? n_blocks * BLOCK : 0;
    for (size_t i = first; i < n; i++) sum += exp((double)x[i] - (double)largest);
    return first ? blocks + sum : sum;
}

/* Returns the log probability of `id`, and writes those of the n most likely tokens to top. */
static float logprob_of(const float *logits, size_t n_vocab, int32_t id, ag_logprob *top,
                        size_t n) {
    ag_logprob best[1];
    size_t n_found = 0;
    if (!n) top = best;
    if (!n) n = 1;
    for (size_t i = 0; i < n_vocab; i++)
        if (n_found < n || logits[i] > top[n - 1].logprob)
            insert_top(top, n, &n_found, (int32_t)i, logits[i]);
    const float largest = top[0].logprob;
    const double log_sum = (double)largest + log(sum_of_exp(logits, n_vocab, largest));
    for (size_t i = 0; i < n_found; i++) top[i].logprob = (float)((double)top[i].logprob - log_sum);
    return (float)((double)logits[id] - log_sum);
}

void ag_event_set_logprobs(ag_request_event *e, const ag_request_params *p, const float *logits,
                           ag_logprob *top) {
    const size_t n_vocab = p->model->info.n_vocab;
    e->n_top = p->n_top < n_vocab ? p->n_top : n_vocab;
    e->logprob = logprob_of(logits, n_vocab, e->id, top, e->n_top);
    e->top = top;
}

bool ag_request_score_row(void *user, size_t i, const float *logits) {
    ag_served_request *r = user;
    ag_logprob top[AG_SERVING_MAX_TOP];
    const size_t next = r->n_read + i + 1;
    if (!r->n_scored) {
        ag_request_event first = {
            .kind = AG_REQUEST_PROMPT_TOKEN, .id = r->p.prompt[0], .logprob = NAN};
        ag_request_send_event(r, &first);
        r->n_scored = 1;
    }
    if (next != r->n_scored || next == r->p.n_prompt) return true;
    ag_request_event e = {.kind = AG_REQUEST_PROMPT_TOKEN, .id = r->p.prompt[next]};
    ag_event_set_logprobs(&e, &r->p, logits, top);
    ag_request_send_event(r, &e);
    r->n_scored++;
    return true;
}
