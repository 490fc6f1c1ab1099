/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/logprobs.h"

#include "serving/model.h"

#include <math.h>

static void insert_top(ag_logprob *top, size_t n, size_t *n_found, int32_t id, float logit) {
    size_t at = *n_found;
    if (at == n && !(logit > top[n - 1].logprob)) return;
    if (at < n) *n_found = at + 1;
    else at = n - 1;
    for (; at > 0 && logit > top[at - 1].logprob; at--) top[at] = top[at - 1];
    top[at] = (ag_logprob){.id = id, .logprob = logit};
}

/* Returns the log probability of `id`, and writes those of the n most likely tokens to top. */
static float logprob_of(const float *logits, size_t n_vocab, int32_t id, ag_logprob *top,
                        size_t n) {
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
