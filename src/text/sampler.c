/* SPDX-License-Identifier: Apache-2.0 */
#include <antigravity/sampler.h>

#include "core/alloc.h"
#include "core/fail.h"
#include "text/random.h"
#include "text/sampler_filter.h"
#include "text/sampler_top.h"
#include "text/select.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { MAX_WINDOW = 1 << 20 };

struct ag_sampler {
    ag_sampler_params params;
    ag_logit_bias *bias;
    size_t n_vocab;
    ag_random random;
    float *logits;   /* [n_vocab] after bias and penalties */
    int32_t *ids;    /* [n_vocab] candidates, best first if the order matters */
    float *weights;  /* [n_vocab] of the candidates, proportional to their probabilities */
    int32_t *window; /* ring of the newest tokens; NULL if nothing is penalised */
    size_t n_window, window_at;
    uint32_t *counts;        /* [n_vocab] occurrences in the window */
    const int32_t *replayed; /* [n_replayed] borrowed */
    size_t n_replayed;
    ag_token_filter *filter; /* borrowed; NULL: all tokens are allowed */
};

ag_sampler_params ag_sampler_defaults(void) {
    return (ag_sampler_params){
        .repetition_penalty = 1.1f,
        .repetition_window = 64,
        .temperature = 0.8f,
        .top_k = 40,
        .top_p = 0.9f,
    };
}

static ag_status check_sampler_params(const ag_sampler_params *p, int32_t n_vocab, ag_error *err) {
    if (n_vocab <= 0)
        return AG_FAIL(err, INVALID, "n_vocab is %d: it must be positive", (int)n_vocab);
    if (!(p->repetition_penalty > 0) || isinf(p->repetition_penalty)) {
        return AG_FAIL(err, INVALID, "repetition_penalty is %g: it must be positive and finite",
                       (double)p->repetition_penalty);
    }
    if (p->repetition_window > MAX_WINDOW) {
        return AG_FAIL(err, INVALID, "repetition_window is %u: it must be at most %d",
                       p->repetition_window, MAX_WINDOW);
    }
    if (!isfinite(p->presence_penalty) || !isfinite(p->frequency_penalty)) {
        return AG_FAIL(err, INVALID,
                       "presence_penalty is %g, frequency_penalty is %g: both must be finite",
                       (double)p->presence_penalty, (double)p->frequency_penalty);
    }
    if (!(p->temperature >= 0) || isinf(p->temperature)) {
        return AG_FAIL(err, INVALID, "temperature is %g: it must be finite and at least 0",
                       (double)p->temperature);
    }
    if (!(p->top_p > 0 && p->top_p <= 1)) {
        return AG_FAIL(err, INVALID, "top_p is %g: it must be in (0, 1]", (double)p->top_p);
    }
    if (!(p->min_p >= 0 && p->min_p <= 1)) {
        return AG_FAIL(err, INVALID, "min_p is %g: it must be in [0, 1]", (double)p->min_p);
    }
    for (size_t i = 0; i < p->n_logit_bias; i++) {
        const ag_logit_bias *b = &p->logit_bias[i];
        if (b->id < 0 || b->id >= n_vocab) {
            return AG_FAIL(err, INVALID, "logit_bias: id %d is not in the vocabulary of %d",
                           (int)b->id, (int)n_vocab);
        }
        if (isnan(b->bias) || b->bias == INFINITY) {
            return AG_FAIL(err, INVALID,
                           "logit_bias: the bias of id %d is %g: it must be finite or -inf",
                           (int)b->id, (double)b->bias);
        }
    }
    return AG_OK;
}

static bool penalises(const ag_sampler_params *p) {
    return p->repetition_window &&
           (p->repetition_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0);
}

ag_status ag_sampler_create(const ag_sampler_params *params, int32_t n_vocab, ag_sampler **out,
                            ag_error *err) {
    *out = NULL;
    AG_TRY(check_sampler_params(params, n_vocab, err));
    ag_sampler *s = ag_calloc(1, sizeof *s);
    if (!s) return AG_FAIL(err, NOMEM, "sampler");
    size_t n = s->n_vocab = (size_t)n_vocab, n_bias = params->n_logit_bias;
    bool window = penalises(params);
    s->params = *params;
    s->bias = ag_calloc(n_bias, sizeof *s->bias);
    s->logits = ag_calloc(n, sizeof *s->logits);
    s->ids = ag_calloc(n, sizeof *s->ids);
    s->weights = ag_calloc(n, sizeof *s->weights);
    if (window) {
        s->window = ag_calloc(params->repetition_window, sizeof *s->window);
        s->counts = ag_calloc(n, sizeof *s->counts);
    }
    if (!s->bias || !s->logits || !s->ids || !s->weights ||
        (window && (!s->window || !s->counts))) {
        ag_sampler_destroy(s);
        return AG_FAIL(err, NOMEM, "sampler of %zu tokens", n);
    }
    if (n_bias) memcpy(s->bias, params->logit_bias, n_bias * sizeof *s->bias);
    s->params.logit_bias = s->bias;
    ag_sampler_reset(s);
    *out = s;
    return AG_OK;
}

void ag_sampler_destroy(ag_sampler *s) {
    if (!s) return;
    ag_free(s->bias);
    ag_free(s->logits);
    ag_free(s->ids);
    ag_free(s->weights);
    ag_free(s->window);
    ag_free(s->counts);
    ag_free(s);
}

void ag_sampler_accept(ag_sampler *s, int32_t id) {
    if (s->filter) s->filter->ops->accept(s->filter, id);
    ag_sampler_accept_prompt(s, id);
}

void ag_sampler_accept_prompt(ag_sampler *s, int32_t id) {
    if (!s->window || id < 0 || (size_t)id >= s->n_vocab) return;
    if (s->n_window == s->params.repetition_window) s->counts[s->window[s->window_at]]--;
    else s->n_window++;
    s->window[s->window_at] = id;
    s->counts[id]++;
    s->window_at = (s->window_at + 1) % s->params.repetition_window;
}

void ag_sampler_reset(ag_sampler *s) {
    for (size_t i = 0; i < s->n_window; i++) s->counts[s->window[i]] = 0;
    s->n_window = s->window_at = 0;
    ag_random_seed(&s->random, s->params.seed);
    s->n_replayed = 0;
    if (s->filter) s->filter->ops->reset(s->filter);
}

ag_status ag_sampler_set_filter(ag_sampler *s, ag_token_filter *f, ag_error *err) {
    if (f && f->n_vocab != s->n_vocab) {
        return AG_FAIL(err, INVALID,
                       "vocabularies differ: the constraint has %zu tokens, the sampler %zu",
                       f->n_vocab, s->n_vocab);
    }
    s->filter = f;
    return AG_OK;
}

/* Returns whether the filter permits a sampled token. */
static bool permits(ag_sampler *s, int32_t id) {
    return !s->filter || !s->filter->ops->permits || s->filter->ops->permits(s->filter, id);
}

size_t ag_sampler_forced(ag_sampler *s, int32_t *ids, size_t n) {
    return s->filter ? s->filter->ops->forced(s->filter, ids, n) : 0;
}

/* Applies the penalties once per distinct token. Its first occurrence in the ring clears the count,
 * so later ones are skipped; the second loop restores the counts. */
static void penalise(ag_sampler *s) {
    const ag_sampler_params *p = &s->params;
    for (size_t i = 0; i < s->n_window; i++) {
        int32_t id = s->window[i];
        uint32_t count = s->counts[id];
        if (count == 0) continue;
        s->counts[id] = 0;
        float *l = &s->logits[id];
        *l = *l < 0 ? *l * p->repetition_penalty : *l / p->repetition_penalty;
        *l -= p->presence_penalty + (float)count * p->frequency_penalty;
    }
    for (size_t i = 0; i < s->n_window; i++) s->counts[s->window[i]]++;
}

/* Sets the logits of forbidden tokens to -INFINITY. *only: the only allowed id, -1 if there are
 * several or none. */
static ag_status apply_filter(ag_sampler *s, int32_t *only, ag_error *err) {
    const uint32_t *mask;
    size_t n = 0;
    *only = -1;
    AG_TRY(s->filter->ops->mask(s->filter, &mask, err));
    if (!mask) return AG_OK;
    for (size_t first = 0; first < s->n_vocab; first += 32) {
        const uint32_t bits = mask[first / 32];
        const size_t end = first + 32 < s->n_vocab ? first + 32 : s->n_vocab;
        if (bits == UINT32_MAX) {
            n += 32;
            continue;
        }
        for (size_t i = first; i < end; i++) {
            if (bits >> (i - first) & 1) {
                n++;
                *only = (int32_t)i;
            } else {
                s->logits[i] = -INFINITY;
            }
        }
    }
    if (n != 1) *only = -1;
    return AG_OK;
}

/* Fills s->logits and finds the largest, the lowest id of equal ones. */
static ag_status adjust(ag_sampler *s, const float *logits, int32_t *best, bool *only,
                        ag_error *err) {
    memcpy(s->logits, logits, s->n_vocab * sizeof *logits);
    for (size_t i = 0; i < s->params.n_logit_bias; i++) {
        s->logits[s->bias[i].id] += s->bias[i].bias;
    }
    penalise(s);
    *best = -1;
    *only = false;
    if (s->filter) {
        AG_TRY(apply_filter(s, best, err));
        *only = *best >= 0;
        if (*only) return AG_OK;
    }
    float top = -INFINITY;
    for (size_t i = 0; i < s->n_vocab; i++) {
        float l = s->logits[i];
        if (l > top) {
            top = l;
            *best = (int32_t)i;
        }
        if (isnan(l) || l == INFINITY) {
            return AG_FAIL(err, INVALID, "logit %zu of %zu is %g", i, s->n_vocab, (double)l);
        }
    }
    if (*best < 0) return AG_FAIL(err, INVALID, "all %zu logits are -inf", s->n_vocab);
    return AG_OK;
}

static float candidate_weight(const ag_sampler *s, int32_t id, float top) {
    return expf((s->logits[id] - top) / s->params.temperature);
}

/* Returns how many candidates top_p and min_p leave, and the sum of their weights. The candidates
 * are sorted, best first. total: sum of the weights of all candidates. */
static size_t truncate_candidates(const ag_sampler *s, size_t n, double total, double *sum) {
    double target = (double)s->params.top_p * total;
    size_t n_retained = 0;
    for (*sum = 0; n_retained < n && s->weights[n_retained] >= s->params.min_p; n_retained++) {
        if (s->params.top_p < 1 && *sum >= target) break;
        *sum += s->weights[n_retained];
    }
    return n_retained;
}

/* Returns how many of the candidates ids[0..n), best first, top_p and min_p leave. */
static size_t choose_best(ag_sampler *s, size_t n, float top, double *sum) {
    double total = 0;
    for (size_t i = 0; i < n; i++) total += s->weights[i] = candidate_weight(s, s->ids[i], top);
    return truncate_candidates(s, n, total, sum);
}

static size_t choose_top_k(ag_sampler *s, float top, double *sum) {
    return choose_best(s, ag_select_top(s->logits, s->n_vocab, s->params.top_k, s->ids), top, sum);
}

/* Reverses ids. ag_select_pop() leaves the popped ids in reverse order. */
static void reverse_ids(int32_t *ids, size_t n) {
    for (size_t i = 0; i < n / 2; i++) {
        int32_t id = ids[i];
        ids[i] = ids[n - 1 - i];
        ids[n - 1 - i] = id;
    }
}

/* Selects candidates by top_p without top_k: pops them from a heap until their weight suffices.
 * Candidates so unlikely that together they weigh less than 1 - top_p are dropped before. */
static size_t choose_top_p(ag_sampler *s, float top, double *sum) {
    double total = 0;
    for (size_t i = 0; i < s->n_vocab; i++) {
        total += s->weights[i] = candidate_weight(s, (int32_t)i, top);
    }
    double min_weight = (1 - (double)s->params.top_p) * total / (double)s->n_vocab;
    double target = (double)s->params.top_p * total;
    size_t n = 0, n_retained = 0;
    for (size_t i = 0; i < s->n_vocab; i++) {
        if (s->weights[i] >= min_weight && s->weights[i] >= s->params.min_p)
            s->ids[n++] = (int32_t)i;
    }
    ag_select_heapify(s->logits, s->ids, n);
    for (*sum = 0; n_retained < n && *sum < target; n_retained++) {
        int32_t id = ag_select_pop(s->logits, s->ids, n - n_retained);
        *sum += s->weights[n_retained] = candidate_weight(s, id, top);
    }
    reverse_ids(s->ids, n);
    return n_retained;
}

/* Selects candidates without top_k and top_p, in order of their ids. */
static size_t choose_all(ag_sampler *s, float top, double *sum) {
    size_t n = 0;
    *sum = 0;
    for (size_t i = 0; i < s->n_vocab; i++) {
        float w = candidate_weight(s, (int32_t)i, top);
        if (w < s->params.min_p || w == 0) continue;
        s->ids[n] = (int32_t)i;
        *sum += s->weights[n++] = w;
    }
    return n;
}

/* Draws a candidate with a probability proportional to its weight, never one of weight 0. */
static int32_t draw(ag_sampler *s, size_t n, double sum) {
    double remaining = ag_random_unit(&s->random) * sum;
    size_t chosen = 0;
    for (size_t i = 0; i < n; i++) {
        if (s->weights[i] == 0) continue;
        chosen = i;
        remaining -= s->weights[i];
        if (remaining < 0) break;
    }
    return s->ids[chosen];
}

static ag_status choose_from_row(ag_sampler *s, const float *logits, int32_t *id, ag_error *err) {
    int32_t best;
    bool only;
    AG_TRY(adjust(s, logits, &best, &only, err));
    *id = best;
    if (only || s->params.temperature == 0) return AG_OK;
    double sum;
    float top = s->logits[best];
    size_t n = s->params.top_k       ? choose_top_k(s, top, &sum)
               : s->params.top_p < 1 ? choose_top_p(s, top, &sum)
                                     : choose_all(s, top, &sum);
    *id = draw(s, n, sum);
    return AG_OK;
}

/* ---- a text that is known ---- */

void ag_sampler_replay(ag_sampler *s, const int32_t *ids, size_t n) {
    s->replayed = ids;
    s->n_replayed = n;
}

/* Returns the next replayed id, or id if there is none. */
static int32_t next_replayed(ag_sampler *s, int32_t id) {
    if (!s->n_replayed) return id;
    s->n_replayed--;
    return *s->replayed++;
}

ag_status ag_sampler_sample(ag_sampler *s, const float *logits, int32_t *id, ag_error *err) {
    do AG_TRY(choose_from_row(s, logits, id, err));
    while (!permits(s, *id));
    *id = next_replayed(s, *id);
    return AG_OK;
}

/* ---- a few logits ---- */

static bool is_among(const int32_t *ids, size_t n, int32_t id) {
    for (size_t i = 0; i < n; i++) {
        if (ids[i] == id) return true;
    }
    return false;
}

static bool add_once(int32_t *ids, size_t max, size_t *n, int32_t id) {
    if (is_among(ids, *n, id)) return true;
    if (*n == max) return false;
    ids[(*n)++] = id;
    return true;
}

/* Each changed logit can displace at most one of the best, so n_ids more are needed. */
bool ag_sampler_top_k(const ag_sampler *s, int32_t *ids, size_t max_ids, size_t *n_ids,
                      size_t max_k, size_t *k) {
    const ag_sampler_params *p = &s->params;
    const size_t top_k = p->temperature == 0 ? 1 : p->top_k;
    *n_ids = 0;
    if (s->filter && !s->filter->ops->is_free(s->filter)) return false;
    if (!top_k || top_k > max_k) return false;
    for (size_t i = 0; i < p->n_logit_bias; i++) {
        if (!add_once(ids, max_ids, n_ids, s->bias[i].id)) return false;
    }
    for (size_t i = 0; i < s->n_window; i++) {
        if (!add_once(ids, max_ids, n_ids, s->window[i])) return false;
    }
    *k = top_k + *n_ids;
    return *k <= max_k;
}

/* Writes the known logits to s->logits and applies bias and penalties. Other entries are stale and
 * not read. */
static ag_status adjust_top(ag_sampler *s, const ag_top_logits *top, ag_error *err) {
    for (size_t i = 0; i < top->n_best; i++) s->logits[top->best_ids[i]] = top->best[i];
    for (size_t i = 0; i < top->n_ids; i++) s->logits[top->ids[i]] = top->at[i];
    for (size_t i = 0; i < s->params.n_logit_bias; i++) {
        s->logits[s->bias[i].id] += s->bias[i].bias;
    }
    penalise(s);
    size_t bad = top->bad;
    for (size_t i = 0; i < top->n_ids; i++) {
        const float l = s->logits[top->ids[i]];
        if ((isnan(l) || l == INFINITY) && (size_t)top->ids[i] < bad) bad = (size_t)top->ids[i];
    }
    if (bad == SIZE_MAX) return AG_OK;
    return AG_FAIL(err, INVALID, "logit %zu of %zu is NaN or infinite", bad, s->n_vocab);
}

/* Writes the known candidates to s->ids, best first. Returns how many there are. */
static size_t rank_top(ag_sampler *s, const ag_top_logits *top) {
    size_t n = 0;
    for (size_t i = 0; i < top->n_best; i++) {
        if (!is_among(top->ids, top->n_ids, top->best_ids[i])) s->ids[n++] = top->best_ids[i];
    }
    for (size_t i = 0; i < top->n_ids; i++) {
        if (s->logits[top->ids[i]] > -INFINITY) s->ids[n++] = top->ids[i];
    }
    ag_select_heapify(s->logits, s->ids, n);
    for (size_t remaining = n; remaining > 0; remaining--)
        ag_select_pop(s->logits, s->ids, remaining);
    reverse_ids(s->ids, n);
    return n;
}

static ag_status choose_from_top(ag_sampler *s, const ag_top_logits *top, int32_t *id,
                                 ag_error *err) {
    AG_TRY(adjust_top(s, top, err));
    size_t n = rank_top(s, top);
    if (!n) return AG_FAIL(err, INVALID, "all %zu logits are -inf", s->n_vocab);
    *id = s->ids[0];
    if (s->params.temperature == 0) return AG_OK;
    double sum;
    if (n > s->params.top_k) n = s->params.top_k;
    n = choose_best(s, n, s->logits[s->ids[0]], &sum);
    *id = draw(s, n, sum);
    return AG_OK;
}

ag_status ag_sampler_sample_top(ag_sampler *s, const ag_top_logits *top, int32_t *id,
                                ag_error *err) {
    AG_TRY(choose_from_top(s, top, id, err));
    *id = permits(s, *id) ? next_replayed(s, *id) : -1;
    return AG_OK;
}
