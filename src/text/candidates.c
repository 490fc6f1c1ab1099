/* SPDX-License-Identifier: Apache-2.0 */
#include "text/candidates.h"

#include "text/select.h"

#include <math.h>
#include <string.h>

static void reverse_ids(int32_t *ids, size_t n) {
    for (size_t i = 0; i < n / 2; i++) {
        const int32_t id = ids[i];
        ids[i] = ids[n - 1 - i];
        ids[n - 1 - i] = id;
    }
}

void ag_candidates_sort(ag_candidates *c) {
    if (c->is_sorted) return;
    ag_select_heapify(c->logits, c->ids, c->n);
    for (size_t remaining = c->n; remaining > 0; remaining--)
        ag_select_pop(c->logits, c->ids, remaining);
    reverse_ids(c->ids, c->n);
    c->is_sorted = true;
}

/* ---- selection ---- */

/* Returns the largest logit less n standard deviations of all logits that are not -INFINITY. */
static float sigma_limit(const float *logits, size_t n_vocab, float n) {
    double sum = 0, squares = 0;
    float top = -INFINITY;
    size_t count = 0;
    for (size_t i = 0; i < n_vocab; i++) {
        if (logits[i] == -INFINITY) continue;
        top = fmaxf(top, logits[i]);
        sum += (double)logits[i];
        count++;
    }
    const double mean = count ? sum / (double)count : 0;
    for (size_t i = 0; i < n_vocab; i++) {
        const double d = (double)logits[i] - mean;
        if (logits[i] != -INFINITY) squares += d * d;
    }
    return top - n * (float)sqrt(count ? squares / (double)count : 0);
}

void ag_candidates_select(ag_candidates *c, const ag_sampler_params *p, size_t n_vocab) {
    const float limit =
        p->top_n_sigma > 0 ? sigma_limit(c->logits, n_vocab, p->top_n_sigma) : -INFINITY;
    c->n = 0;
    c->is_sorted = p->top_k > 0;
    if (p->top_k) {
        c->n = ag_select_top(c->logits, n_vocab, p->top_k, c->ids);
        while (c->n > 1 && c->logits[c->ids[c->n - 1]] < limit) c->n--;
        return;
    }
    for (size_t i = 0; i < n_vocab; i++) {
        if (c->logits[i] > -INFINITY && c->logits[i] >= limit) c->ids[c->n++] = (int32_t)i;
    }
}

/* ---- weights ---- */

static float best_logit(const ag_candidates *c) {
    float best = -INFINITY;
    if (c->is_sorted) return c->logits[c->ids[0]];
    for (size_t i = 0; i < c->n; i++) best = fmaxf(best, c->logits[c->ids[i]]);
    return best;
}

/* Sets the weights of all candidates at a temperature above 0, 1 for the best. Returns their sum.
 */
static double set_weights(ag_candidates *c, float temperature) {
    const float best = best_logit(c);
    double sum = 0;
    for (size_t i = 0; i < c->n; i++)
        sum += (double)(c->weights[i] = expf((c->logits[c->ids[i]] - best) / temperature));
    return sum;
}

/* Returns the entropy of the weights in nats. */
static double entropy_of(const ag_candidates *c, double sum) {
    double entropy = 0;
    for (size_t i = 0; i < c->n; i++) {
        const double p = (double)c->weights[i] / sum;
        if (p > 0) entropy -= p * log(p);
    }
    return entropy;
}

/* ---- steps ---- */

/* Retains the candidates whose information is nearest to the entropy, until their probability
 * exceeds p. */
static void retain_typical(ag_candidates *c, float p) {
    const double sum = set_weights(c, 1), entropy = entropy_of(c, sum);
    double retained = 0;
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        const double information = -log((double)c->weights[i] / sum);
        c->scores[c->ids[i]] = (float)-fabs(information - entropy);
    }
    const float best = best_logit(c);
    ag_select_heapify(c->scores, c->ids, c->n);
    while (n < c->n && retained <= (double)p * sum) {
        const int32_t id = ag_select_pop(c->scores, c->ids, c->n - n);
        retained += (double)expf(c->logits[id] - best);
        n++;
    }
    memmove(c->ids, c->ids + c->n - n, n * sizeof *c->ids);
    c->n = n;
    c->is_sorted = false;
}

/* Retains the best candidates, until their probability reaches p. Candidates so unlikely that
 * together they weigh less than 1 - p are dropped before the others are sorted. */
static void retain_top_p(ag_candidates *c, float p) {
    const double sum = set_weights(c, 1), target = (double)p * sum;
    double retained = 0;
    size_t n = 0, n_likely = 0;
    if (c->is_sorted) {
        while (n < c->n && retained < target) retained += (double)c->weights[n++];
        c->n = n;
        return;
    }
    const double min_weight = (1 - (double)p) * sum / (double)c->n;
    const float best = best_logit(c);
    for (size_t i = 0; i < c->n; i++) {
        if ((double)c->weights[i] >= min_weight) c->ids[n_likely++] = c->ids[i];
    }
    ag_select_heapify(c->logits, c->ids, n_likely);
    while (n < n_likely && retained < target) {
        const int32_t id = ag_select_pop(c->logits, c->ids, n_likely - n);
        retained += (double)expf(c->logits[id] - best);
        n++;
    }
    memmove(c->ids, c->ids + n_likely - n, n * sizeof *c->ids);
    reverse_ids(c->ids, n);
    c->n = n;
    c->is_sorted = true;
}

static void retain_min_p(ag_candidates *c, float min_p) {
    const float limit = best_logit(c) + logf(min_p);
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (c->logits[c->ids[i]] >= limit) c->ids[n++] = c->ids[i];
    }
    c->n = n;
}

/* Removes all but the last of the candidates that have at least the probability `threshold`. */
static void remove_top_choices(ag_candidates *c, float threshold) {
    ag_candidates_sort(c);
    const double sum = set_weights(c, 1);
    size_t n = 0;
    while (n < c->n && (double)c->weights[n] / sum >= (double)threshold) n++;
    if (n < 2) return;
    c->n -= n - 1;
    memmove(c->ids, c->ids + n - 1, c->n * sizeof *c->ids);
}

/* Returns the temperature, which depends on the entropy of the candidates if it is dynamic. */
static float temperature_for(ag_candidates *c, const ag_sampler_params *p) {
    if (!(p->dynamic_range > 0) || c->n < 2) return p->temperature;
    const double sum = set_weights(c, 1);
    const float low = fmaxf(0, p->temperature - p->dynamic_range),
                high = p->temperature + p->dynamic_range,
                share = (float)(entropy_of(c, sum) / log((double)c->n));
    return low + (high - low) * powf(share, p->dynamic_exponent);
}

double ag_candidates_truncate(ag_candidates *c, const ag_sampler_params *p, ag_random *random) {
    if (ag_is_typical(p)) retain_typical(c, p->typical_p);
    if (p->top_p < 1) retain_top_p(c, p->top_p);
    if (p->min_p > 0) retain_min_p(c, p->min_p);
    if (p->xtc_probability > 0 && p->xtc_threshold <= 0.5f && c->n > 1 &&
        ag_random_unit(random) <= (double)p->xtc_probability) {
        remove_top_choices(c, p->xtc_threshold);
    }
    const float temperature = temperature_for(c, p);
    if (temperature > 0) return set_weights(c, temperature);
    ag_candidates_sort(c);
    c->n = 1;
    c->weights[0] = 1;
    return 1;
}
