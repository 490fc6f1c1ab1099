/* SPDX-License-Identifier: Apache-2.0 */
#include <antigravity/sampler.h>

#include "core/alloc.h"
#include "core/fail.h"
#include "text/candidates.h"
#include "text/dry.h"
#include "text/sampler_filter.h"
#include "text/sampler_top.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

struct ag_sampler {
    ag_sampler_params params;
    ag_logit_bias *bias;
    size_t n_vocab;
    ag_random random;
    float *logits;            /* [n_vocab] after bias and penalties */
    ag_candidates candidates; /* arrays of n_vocab */
    ag_dry *dry;              /* NULL: off */
    int32_t *window;          /* ring of the newest tokens; NULL if nothing is penalised */
    size_t n_window, window_at;
    uint32_t *counts;        /* [n_vocab] occurrences in the window */
    const int32_t *replayed; /* [n_replayed] borrowed */
    size_t n_replayed;
    ag_token_filter *filter; /* borrowed; NULL: all tokens are allowed */
};

ag_sampler_params ag_sampler_defaults(void) {
    return (ag_sampler_params){
        .repetition_penalty = 1,
        .repetition_window = 64,
        .dry_base = 1.75f,
        .dry_allowed_length = 2,
        .dry_window = 1024,
        .top_k = 40,
        .typical_p = 1,
        .top_p = 0.95f,
        .min_p = 0.05f,
        .xtc_threshold = 0.1f,
        .temperature = 0.8f,
        .dynamic_exponent = 1,
    };
}

static ag_status check_windows(const ag_sampler_params *p, ag_error *err) {
    if (p->repetition_window > AG_SAMPLER_MAX_WINDOW) {
        return AG_FAIL(err, INVALID, "repetition_window is %u: it must be at most %d",
                       p->repetition_window, AG_SAMPLER_MAX_WINDOW);
    }
    if (p->dry_multiplier == 0) return AG_OK;
    if (p->dry_window > AG_SAMPLER_MAX_WINDOW) {
        return AG_FAIL(err, INVALID, "dry_window is %u: it must be at most %d", p->dry_window,
                       AG_SAMPLER_MAX_WINDOW);
    }
    if (p->dry_allowed_length > 0) return AG_OK;
    return AG_FAIL(err, INVALID, "dry_allowed_length is 0: it must be positive");
}

static ag_status check_numbers(const ag_sampler_params *p, ag_error *err) {
    const float max = FLT_MAX;
    const struct {
        const char *name;
        float value, low, high;
        bool is_above; /* low itself is not allowed */
    } numbers[] = {
        {"repetition_penalty", p->repetition_penalty, 0, max, true},
        {"presence_penalty", p->presence_penalty, -max, max, false},
        {"frequency_penalty", p->frequency_penalty, -max, max, false},
        {"dry_multiplier", p->dry_multiplier, 0, max, false},
        {"dry_base", p->dry_multiplier == 0 ? 1 : p->dry_base, 1, max, false},
        {"top_n_sigma", p->top_n_sigma, 0, max, false},
        {"typical_p", p->typical_p, 0, 1, false},
        {"top_p", p->top_p, 0, 1, true},
        {"min_p", p->min_p, 0, 1, false},
        {"xtc_probability", p->xtc_probability, 0, 1, false},
        {"xtc_threshold", p->xtc_threshold, 0, 1, false},
        {"temperature", p->temperature, 0, max, false},
        {"dynamic_range", p->dynamic_range, 0, max, false},
        {"dynamic_exponent", p->dynamic_exponent, 0, max, false},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const float v = numbers[i].value;
        if (v >= numbers[i].low && v <= numbers[i].high &&
            (v > numbers[i].low || !numbers[i].is_above))
            continue;
        return AG_FAIL(err, INVALID, "%s is %g: it must be in %c%g, %g]", numbers[i].name,
                       (double)v, numbers[i].is_above ? '(' : '[', (double)numbers[i].low,
                       (double)numbers[i].high);
    }
    return AG_OK;
}

static ag_status check_bias(const ag_sampler_params *p, int32_t n_vocab, ag_error *err) {
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

static ag_status check_sampler_params(const ag_sampler_params *p, int32_t n_vocab, ag_error *err) {
    if (n_vocab <= 0)
        return AG_FAIL(err, INVALID, "n_vocab is %d: it must be positive", (int)n_vocab);
    AG_TRY(check_numbers(p, err));
    AG_TRY(check_windows(p, err));
    return check_bias(p, n_vocab, err);
}

static bool penalises(const ag_sampler_params *p) {
    return p->repetition_window &&
           (p->repetition_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0);
}

size_t ag_sampler_bytes(const ag_sampler_params *p, size_t n_vocab) {
    const size_t own = 3 + ag_is_typical(p) + penalises(p), /* arrays of 4 bytes a token */
        window = penalises(p) ? p->repetition_window : 0;
    return sizeof(ag_sampler) + p->n_logit_bias * sizeof *p->logit_bias +
           (own * n_vocab + window) * sizeof(float) + ag_dry_bytes(p, n_vocab);
}

/* Allocates what a sampler needs. The caller destroys it after a failure. */
static ag_status allocate_arrays(ag_sampler *s, ag_error *err) {
    const ag_sampler_params *p = &s->params;
    const size_t n = s->n_vocab;
    const bool window = penalises(p), scores = ag_is_typical(p);
    s->bias = ag_calloc(p->n_logit_bias, sizeof *s->bias);
    s->logits = ag_calloc(n, sizeof *s->logits);
    s->candidates.ids = ag_calloc(n, sizeof *s->candidates.ids);
    s->candidates.weights = ag_calloc(n, sizeof *s->candidates.weights);
    if (scores) s->candidates.scores = ag_calloc(n, sizeof *s->candidates.scores);
    if (window) {
        s->window = ag_calloc(p->repetition_window, sizeof *s->window);
        s->counts = ag_calloc(n, sizeof *s->counts);
    }
    s->candidates.logits = s->logits;
    if (!s->bias || !s->logits || !s->candidates.ids || !s->candidates.weights ||
        (scores && !s->candidates.scores) || (window && (!s->window || !s->counts))) {
        return AG_FAIL(err, NOMEM, "sampler of %zu tokens", n);
    }
    return ag_dry_create(p, n, &s->dry, err);
}

ag_status ag_sampler_create(const ag_sampler_params *params, int32_t n_vocab, ag_sampler **out,
                            ag_error *err) {
    *out = NULL;
    AG_TRY(check_sampler_params(params, n_vocab, err));
    ag_sampler *s = ag_calloc(1, sizeof *s);
    if (!s) return AG_FAIL(err, NOMEM, "sampler");
    s->n_vocab = (size_t)n_vocab;
    s->params = *params;
    const ag_status st = allocate_arrays(s, err);
    if (st != AG_OK) {
        ag_sampler_destroy(s);
        return st;
    }
    if (params->n_logit_bias)
        memcpy(s->bias, params->logit_bias, params->n_logit_bias * sizeof *s->bias);
    s->params.logit_bias = s->bias;
    s->params.dry_breakers = NULL; /* the reference is in s->dry */
    ag_sampler_reset(s);
    *out = s;
    return AG_OK;
}

void ag_sampler_destroy(ag_sampler *s) {
    if (!s) return;
    ag_free(s->bias);
    ag_free(s->logits);
    ag_free(s->candidates.ids);
    ag_free(s->candidates.weights);
    ag_free(s->candidates.scores);
    ag_dry_destroy(s->dry);
    ag_free(s->window);
    ag_free(s->counts);
    ag_free(s);
}

void ag_sampler_accept(ag_sampler *s, int32_t id) {
    if (s->filter) s->filter->ops->accept(s->filter, id);
    ag_sampler_accept_prompt(s, id);
}

void ag_sampler_accept_prompt(ag_sampler *s, int32_t id) {
    if (id < 0 || (size_t)id >= s->n_vocab) return;
    ag_dry_accept(s->dry, id);
    if (!s->window) return;
    if (s->n_window == s->params.repetition_window) s->counts[s->window[s->window_at]]--;
    else s->n_window++;
    s->window[s->window_at] = id;
    s->counts[id]++;
    s->window_at = (s->window_at + 1) % s->params.repetition_window;
}

void ag_sampler_reset(ag_sampler *s) {
    for (size_t i = 0; i < s->n_window; i++) s->counts[s->window[i]] = 0;
    s->n_window = s->window_at = 0;
    ag_dry_reset(s->dry);
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

bool ag_sampler_is_free(const ag_sampler *s) {
    return !s->filter || s->filter->ops->is_free(s->filter);
}

/* Sets *mask to the filter's mask; NULL: all tokens are allowed. */
static ag_status get_mask(const ag_sampler *s, const uint32_t **mask, ag_error *err) {
    *mask = NULL;
    return s->filter ? s->filter->ops->mask(s->filter, mask, err) : AG_OK;
}

static bool is_allowed(const uint32_t *mask, size_t id) {
    return !mask || mask[id / 32] >> (id % 32) & 1;
}

/* Returns the only id of n that the mask allows; -1 if there are several or none. */
static int32_t only_allowed(const uint32_t *mask, size_t n) {
    int32_t only = -1;
    for (size_t id = 0; mask && id < n; id++) {
        if (!mask[id / 32]) id |= 31;
        if (!is_allowed(mask, id)) continue;
        if (only >= 0) return -1;
        only = (int32_t)id;
    }
    return only;
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
    AG_TRY(get_mask(s, &mask, err));
    *only = only_allowed(mask, s->n_vocab);
    for (size_t id = 0; mask && id < s->n_vocab; id++) {
        if (mask[id / 32] == UINT32_MAX) id |= 31;
        else if (!is_allowed(mask, id)) s->logits[id] = -INFINITY;
    }
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
    ag_dry_penalise(s->dry, s->logits);
    AG_TRY(apply_filter(s, best, err));
    *only = *best >= 0;
    if (*only) return AG_OK;
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

/* Draws a candidate with a probability proportional to its weight, never one of weight 0. */
static int32_t draw(ag_sampler *s, double sum) {
    const ag_candidates *c = &s->candidates;
    double remaining = ag_random_unit(&s->random) * sum;
    size_t chosen = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (c->weights[i] == 0) continue;
        chosen = i;
        remaining -= (double)c->weights[i];
        if (remaining < 0) break;
    }
    return c->ids[chosen];
}

const ag_candidates *ag_sampler_candidates(const ag_sampler *s) { return &s->candidates; }

static int32_t draw_truncated(ag_sampler *s) {
    return draw(s, ag_candidates_truncate(&s->candidates, &s->params, &s->random));
}

static ag_status choose_from_row(ag_sampler *s, const float *logits, int32_t *id, ag_error *err) {
    int32_t best;
    bool only;
    AG_TRY(adjust(s, logits, &best, &only, err));
    *id = best;
    if (only || s->params.temperature == 0) return AG_OK;
    ag_candidates_select(&s->candidates, &s->params, s->n_vocab);
    *id = draw_truncated(s);
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

ag_random ag_sampler_random(const ag_sampler *s) { return s->random; }

void ag_sampler_set_random(ag_sampler *s, ag_random random) { s->random = random; }

/* Each changed logit can displace at most one of the best, so n_ids more are needed. */
bool ag_sampler_top_k(const ag_sampler *s, const uint32_t **mask, int32_t *ids, size_t max_ids,
                      size_t *n_ids, size_t max_k, size_t *k) {
    const ag_sampler_params *p = &s->params;
    const size_t top_k = p->temperature == 0 ? 1 : p->top_k;
    *n_ids = *k = 0;
    if (s->dry || (p->temperature > 0 && p->top_n_sigma > 0)) return false;
    if (!top_k || top_k > max_k) return false;
    for (size_t i = 0; i < p->n_logit_bias; i++) {
        if (!add_once(ids, max_ids, n_ids, s->bias[i].id)) return false;
    }
    for (size_t i = 0; i < s->n_window; i++) {
        if (!add_once(ids, max_ids, n_ids, s->window[i])) return false;
    }
    if (top_k + *n_ids > max_k || get_mask(s, mask, NULL) != AG_OK) return false;
    if (only_allowed(*mask, s->n_vocab) < 0) *k = top_k + *n_ids;
    return true;
}

/* Writes the known logits to s->logits and applies bias, penalties and mask. Other entries are
 * stale and not read. */
static ag_status adjust_top(ag_sampler *s, const ag_top_logits *top, ag_error *err) {
    for (size_t i = 0; i < top->n_best; i++) s->logits[top->best_ids[i]] = top->best[i];
    for (size_t i = 0; i < top->n_ids; i++) s->logits[top->ids[i]] = top->at[i];
    for (size_t i = 0; i < s->params.n_logit_bias; i++) {
        s->logits[s->bias[i].id] += s->bias[i].bias;
    }
    penalise(s);
    size_t bad = top->bad;
    for (size_t i = 0; i < top->n_ids; i++) {
        const size_t id = (size_t)top->ids[i];
        float *l = &s->logits[id];
        if (!is_allowed(top->mask, id)) *l = -INFINITY;
        if ((isnan(*l) || *l == INFINITY) && id < bad) bad = id;
    }
    if (bad == SIZE_MAX) return AG_OK;
    return AG_FAIL(err, INVALID, "logit %zu of %zu is NaN or infinite", bad, s->n_vocab);
}

/* Makes the known logits the candidates, best first. */
static void rank_top(ag_sampler *s, const ag_top_logits *top) {
    ag_candidates *c = &s->candidates;
    c->n = 0;
    c->is_sorted = false;
    for (size_t i = 0; i < top->n_best; i++) {
        if (!is_among(top->ids, top->n_ids, top->best_ids[i])) c->ids[c->n++] = top->best_ids[i];
    }
    for (size_t i = 0; i < top->n_ids; i++) {
        if (s->logits[top->ids[i]] > -INFINITY) c->ids[c->n++] = top->ids[i];
    }
    ag_candidates_sort(c);
}

static ag_status choose_from_top(ag_sampler *s, const ag_top_logits *top, int32_t *id,
                                 ag_error *err) {
    *id = only_allowed(top->mask, s->n_vocab);
    if (*id >= 0) return AG_OK;
    AG_TRY(adjust_top(s, top, err));
    rank_top(s, top);
    ag_candidates *c = &s->candidates;
    if (!c->n) return AG_FAIL(err, INVALID, "all %zu logits are -inf", s->n_vocab);
    *id = c->ids[0];
    if (s->params.temperature == 0) return AG_OK;
    if (c->n > s->params.top_k) c->n = s->params.top_k;
    *id = draw_truncated(s);
    return AG_OK;
}

ag_status ag_sampler_sample_top(ag_sampler *s, const ag_top_logits *top, int32_t *id,
                                ag_error *err) {
    AG_TRY(choose_from_top(s, top, id, err));
    *id = permits(s, *id) ? next_replayed(s, *id) : -1;
    return AG_OK;
}
