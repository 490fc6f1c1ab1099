/* SPDX-License-Identifier: Apache-2.0 */
#include "session/speculate.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "platform/clock.h"

/* Drafts may cost this share of decoding time, plus this share of one step. */
static const double max_loss_share = 0.02, max_loss_steps = 0.35;
/* Minimum expected gain of a draft over a step without one, as a factor. */
static const double min_gain = 1.15;
/* Assumed cost of each further row, as a share of a step, until it is measured. */
static const double assumed_row = 0.15;
/* Weight of a new measurement. It is clipped to this factor around the known value, since other
 * programs use the machine too. */
static const double newest_weight = 0.125, max_deviation = 1.5;
/* Tries that a bucket remembers, and weight of the prior in tries. */
static const double max_tries = 48, prior_tries = 4;
/* Prior acceptance: after matches of 2, 4, 8, 16 and 32 tokens, of a draft model, and of forced
 * tokens, whose text other tokens may spell too. */
static const double prior[AG_SPECULATE_BUCKETS] = {0.4, 0.55, 0.7, 0.8, 0.9, 0.7, 0.9};
/* Assumed cost of a draft model's token, as a share of a step, until it is measured. */
static const double assumed_draft_token = 0.2;

enum { MIN_MEASURED = 2, MAX_SINCE_ONE = 64 };
/* Measured first, as kernels work on groups of 4 rows. */
enum { FIRST_ROWS = 4 };
/* After this many steps without drafts, half of the evidence against them is dropped: the machine
 * may have changed, or the first measurement was bad. */
enum { DECAY_TOKENS = 64 };

ag_status ag_speculation_create(size_t n_tokens, bool slow_rollback, ag_speculation **out,
                                ag_error *err) {
    *out = NULL;
    ag_speculation *s = ag_calloc(1, sizeof *s);
    if (!s) return AG_FAIL(err, NOMEM, "speculation");
    ag_status st = ag_ngram_lookup_create(n_tokens, &s->lookup, err);
    s->slow_rollback = slow_rollback;
    if (st == AG_OK) *out = s;
    else ag_speculation_destroy(s);
    return st;
}

size_t ag_speculation_bytes(size_t n_tokens) {
    return sizeof(ag_speculation) + ag_ngram_lookup_bytes(n_tokens);
}

void ag_speculation_destroy(ag_speculation *s) {
    if (!s) return;
    ag_ngram_lookup_destroy(s->lookup);
    ag_draft_model_destroy(s->model);
    ag_free(s);
}

/* ---- text ---- */

void ag_speculation_sync(ag_speculation *s, uint32_t position) {
    if (position > s->position) ag_ngram_lookup_push(s->lookup, -1);
    else if (position < s->position) ag_ngram_lookup_pop(s->lookup, s->position - position);
    if (s->model) ag_draft_model_truncate(s->model, ag_ngram_lookup_length(s->lookup));
    s->position = position;
}

void ag_speculation_push(ag_speculation *s, int32_t id) {
    ag_ngram_lookup_push(s->lookup, id);
    s->position++;
}

static size_t match_bucket(size_t match) {
    size_t bucket = 0;
    while (bucket + 1 < AG_SPECULATE_MATCH_BUCKETS && match >= (size_t)4 << bucket) bucket++;
    return bucket;
}

static void count_draft_token(ag_draft_acceptance *o, size_t bucket, bool hit) {
    const double kept_weight = o->tries[bucket] < max_tries ? 1 : 1 - 1 / max_tries;
    o->hits[bucket] = o->hits[bucket] * kept_weight + hit;
    o->tries[bucket] = o->tries[bucket] * kept_weight + 1;
}

/* Counts every chosen token for or against the lookup, even if no draft was fed. */
void ag_speculation_push_chosen(ag_speculation *s, int32_t id) {
    int32_t draft_token;
    const size_t match = ag_ngram_lookup_match(s->lookup);
    if (ag_ngram_lookup_draft(s->lookup, &draft_token, 1))
        count_draft_token(&s->acceptance, match_bucket(match), draft_token == id);
    ag_speculation_push(s, id);
}

/* ---- expectation ---- */

static double acceptance_rate(const ag_speculation *s, size_t bucket) {
    return (s->acceptance.hits[bucket] + prior[bucket] * prior_tries) /
           (s->acceptance.tries[bucket] + prior_tries);
}

/* Returns the seconds of a step; for unmeasured row counts by interpolation. */
static double cost_of(const ag_step_costs *c, size_t rows) {
    const double one = c->seconds[1];
    size_t below = rows, above = rows;
    while (below > 1 && !c->n[below]) below--;
    while (above < AG_SPECULATE_ROWS && !c->n[above]) above++;
    const double low = below > 1 ? c->seconds[below] : one;
    if (below == rows) return low;
    if (c->n[above])
        return low + (c->seconds[above] - low) * (double)(rows - below) / (double)(above - below);
    const double row = below > 1 ? (low - one) / (double)(below - 1) : one * assumed_row;
    return low + row * (double)(rows - below);
}

/* Returns the seconds that drafts may still lose. */
static double credit(const ag_speculation *s) {
    return s->saved_s + s->baseline_s * max_loss_share + s->costs.seconds[1] * max_loss_steps;
}

typedef struct plan {
    size_t rows;
    double rate; /* expected tokens per second */
} plan;

/* Returns the seconds to draft a token. */
static double draft_token_cost(const ag_speculation *s, size_t bucket) {
    if (bucket != AG_SPECULATE_MODEL) return 0;
    return s->draft_token_s > 0 ? s->draft_token_s : s->costs.seconds[1] * assumed_draft_token;
}

/* Returns the number of rows with most tokens per second; 1: no draft. bucket 0: the lookup's match
 * decides. */
static plan best_plan(const ag_speculation *s, size_t max, size_t bucket) {
    const double one = s->costs.seconds[1], credit_s = credit(s),
                 draft_token = draft_token_cost(s, bucket);
    const size_t match = ag_ngram_lookup_match(s->lookup);
    double tokens = 1, p_all = 1;
    plan best = {1, min_gain / one};
    for (size_t n = 2; n <= max; n++) {
        const double cost = cost_of(&s->costs, n) + draft_token * (double)(n - 1);
        p_all *= acceptance_rate(s, bucket ? bucket : match_bucket(match + n - 2));
        tokens += p_all;
        if (cost - one > credit_s || tokens / cost <= best.rate) continue;
        if (n != FIRST_ROWS && max >= FIRST_ROWS && !s->costs.n[FIRST_ROWS]) continue;
        best = (plan){n, tokens / cost};
    }
    return best;
}

static void choose_better(plan *best, size_t *source, plan other, size_t bucket) {
    if (other.rows < 2 || (best->rows > 1 && other.rate <= best->rate)) return;
    *best = other;
    *source = bucket;
}

/* Returns the bucket of the best source and sets *max to the draft's length. 0: the lookup, or no
 * draft. */
static size_t choose_source(const ag_speculation *s, const ag_draft_offer *offer, size_t *max) {
    const size_t match = ag_ngram_lookup_match(s->lookup), n_forced = offer->n_forced;
    plan best = {.rows = 1};
    size_t source = 0;
    if (match) best = best_plan(s, *max + 1, 0);
    if (s->model)
        choose_better(&best, &source, best_plan(s, *max + 1, AG_SPECULATE_MODEL),
                      AG_SPECULATE_MODEL);
    if (n_forced)
        choose_better(&best, &source, best_plan(s, n_forced + 1, AG_SPECULATE_FORCED),
                      AG_SPECULATE_FORCED);
    *max = best.rows - 1;
    return source;
}

/* The same without regard to cost. */
static size_t any_source(const ag_speculation *s, const ag_draft_offer *offer, size_t *max) {
    if (offer->n_forced) {
        *max = offer->n_forced;
        return AG_SPECULATE_FORCED;
    }
    return s->model && ag_ngram_lookup_match(s->lookup) < 4 ? AG_SPECULATE_MODEL : 0;
}

static double assumed_cost(const ag_step_costs *c, size_t rows) {
    return c->seconds[1] * (1 + assumed_row * (double)(rows - 1));
}

/* Drops old evidence against drafts. */
static void decay(ag_speculation *s) {
    if (++s->since_draft < DECAY_TOKENS) return;
    s->since_draft = 0;
    s->acceptance.hits[AG_SPECULATE_MODEL] /= 2;
    s->acceptance.tries[AG_SPECULATE_MODEL] /= 2;
    for (size_t n = 2; n <= AG_SPECULATE_ROWS; n++) {
        const double assumed_s = assumed_cost(&s->costs, n);
        if (s->costs.seconds[n] > assumed_s)
            s->costs.seconds[n] = (s->costs.seconds[n] + assumed_s) / 2;
    }
}

static size_t draft_with_model(ag_speculation *s, int32_t *ids, size_t n,
                               const ag_draft_offer *offer) {
    const double begin = ag_now_s();
    n = ag_draft_model_draft(s->model, s->lookup, ids, n, offer->stop, offer->user);
    s->drafting_s = ag_now_s() - begin;
    return n;
}

size_t ag_speculation_draft(ag_speculation *s, int32_t *ids, const ag_draft_offer *offer) {
    size_t max = offer->max < AG_SPECULATE_ROWS - 1 ? offer->max : AG_SPECULATE_ROWS - 1;
    s->n_drafted_tokens = s->bucket = 0;
    s->drafting_s = 0;
    if (!max || (!s->model && !offer->n_forced && !ag_ngram_lookup_match(s->lookup))) return 0;
    decay(s);
    if (!offer->always && (s->costs.n[1] < MIN_MEASURED || s->since_one >= MAX_SINCE_ONE)) return 0;
    s->bucket = (offer->always ? any_source : choose_source)(s, offer, &max);
    if (!s->bucket) return ag_ngram_lookup_draft(s->lookup, ids, max);
    s->n_drafted_tokens =
        s->bucket == AG_SPECULATE_MODEL ? draft_with_model(s, ids, max, offer) : max;
    return s->n_drafted_tokens;
}

/* ---- measurement ---- */

static double bounded(double x, double low, double high) {
    return x < low ? low : x > high ? high : x;
}

/* Clips an outlier. A second outlier in a row replaces the known value. */
static double without_outliers(ag_step_costs *c, size_t rows, double seconds) {
    const double known = c->seconds[rows];
    const double near = bounded(seconds, known / max_deviation, known * max_deviation);
    const bool again = c->was_far[rows];
    c->was_far[rows] = seconds != near;
    if (seconds == near || !again) return near;
    c->seconds[rows] = seconds;
    return seconds;
}

/* Returns the seconds that count. The smaller of the first two measurements is used: disturbances
 * only make steps longer. */
static double measure(ag_step_costs *c, size_t rows, double seconds) {
    double *known = &c->seconds[rows];
    if (!c->n[rows]) {
        *known = rows > 1 ? bounded(seconds, 0, 2 * assumed_cost(c, rows)) : seconds;
    } else if (c->n[rows] < MIN_MEASURED) {
        if (seconds < *known) *known = seconds;
    } else {
        seconds = without_outliers(c, rows, seconds);
        *known += (seconds - *known) * newest_weight;
    }
    if (c->n[rows] < UINT32_MAX) c->n[rows]++;
    return seconds;
}

/* Tokens after the first rejected one are no evidence. Clips the drafting time, since a draft model
 * reads a prompt only once. Returns the drafting seconds that count. */
static double update_acceptance(ag_speculation *s, size_t n_tokens) {
    const double max = s->costs.seconds[1] * max_deviation;
    for (size_t i = 0; i < s->n_drafted_tokens && i < n_tokens; i++)
        count_draft_token(&s->acceptance, s->bucket, i + 1 < n_tokens);
    if (!s->n_drafted_tokens || s->bucket != AG_SPECULATE_MODEL)
        return bounded(s->drafting_s, 0, max);
    const double each = bounded(s->drafting_s / (double)s->n_drafted_tokens, 0, max);
    double *known = &s->draft_token_s;
    *known += (each - *known) * (*known > 0 ? newest_weight : 1);
    return each * (double)s->n_drafted_tokens;
}

void ag_speculation_update(ag_speculation *s, size_t rows, size_t n_tokens, double seconds) {
    const double one = s->costs.seconds[1];
    s->since_one = rows > 1 ? s->since_one + 1 : 0;
    if (rows > 1) s->since_draft = 0;
    const double drafting_s = update_acceptance(s, n_tokens);
    seconds -= s->drafting_s;
    if (s->slow_rollback && s->after_rejection && s->costs.n[1]) {
        const double assumed_s =
            cost_of(&s->costs, rows); /* the excess is caused by the previous draft */
        s->saved_s -= bounded(seconds - assumed_s, 0, one * max_deviation);
        seconds = bounded(seconds, 0, assumed_s);
    } else {
        seconds = measure(&s->costs, rows, seconds);
    }
    s->after_rejection = n_tokens < rows;
    s->baseline_s += one * (double)n_tokens;
    if (rows > 1 || drafting_s > 0) s->saved_s += one * (double)n_tokens - seconds - drafting_s;
}
