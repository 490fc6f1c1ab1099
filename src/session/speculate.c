/* SPDX-License-Identifier: Apache-2.0 */
#include "session/speculate.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "platform/clock.h"

/* Drafts may cost this share of the time, and at the beginning this much of a step. */
static const double share_to_lose = 0.02, steps_to_lose = 0.35;
/* Drafts that promise less are not worth the risk. */
static const double least_gain = 1.15;
/* Until it has been measured a further row is thought to cost this share of a step. */
static const double usual_row = 0.15;
/* A measurement counts as much; one that is further from what was known counts as if it were so
 * far, for other programs use the machine, too. */
static const double newest_share = 0.125, furthest = 1.5;
/* Tries of which a grade remembers, and as how many what is thought beforehand counts. */
static const double tries_remembered = 48, tries_assumed = 4;
/* What is thought of a guess after 2, 4, 8, 16, 32 tokens that were the same, of a model's, and of
 * the only way on, which other tokens may spell. */
static const double assumed[AG_SPECULATE_ALL_GRADES] = {0.4, 0.55, 0.7, 0.8, 0.9, 0.7, 0.9};
/* A guess of a draft model is thought to take this share of a step, until one has been timed. */
static const double usual_guess = 0.2;

enum { LEAST_MEASURED = 2, MOST_SINCE_ONE = 64 };
/* What is measured first: kernels like whole fours. */
enum { FIRST_ROWS = 4 };
/* After so many tokens without drafts half of what speaks against them is forgotten: machines
 * change, and the first measurement may have been a bad one. */
enum { TOKENS_TO_FORGET = 64 };

ag_status ag_speculation_create(size_t n_tokens, bool slow, ag_speculation **out, ag_error *err) {
    *out = NULL;
    ag_speculation *s = ag_calloc(1, sizeof *s);
    if (!s) return AG_FAIL(err, NOMEM, "speculation");
    ag_status st = ag_lookup_create(n_tokens, &s->lookup, err);
    s->slow = slow;
    if (st == AG_OK) *out = s;
    else ag_speculation_destroy(s);
    return st;
}

size_t ag_speculation_bytes(size_t n_tokens) {
    return sizeof(ag_speculation) + ag_lookup_bytes(n_tokens);
}

void ag_speculation_destroy(ag_speculation *s) {
    if (!s) return;
    ag_lookup_destroy(s->lookup);
    ag_draft_model_destroy(s->model);
    ag_free(s);
}

/* ---- the text ---- */

void ag_speculation_follow(ag_speculation *s, uint32_t position) {
    if (position > s->position) ag_lookup_push(s->lookup, -1);
    else if (position < s->position) ag_lookup_pop(s->lookup, s->position - position);
    if (s->model) ag_draft_model_shorten(s->model, ag_lookup_length(s->lookup));
    s->position = position;
}

void ag_speculation_read(ag_speculation *s, int32_t id) {
    ag_lookup_push(s->lookup, id);
    s->position++;
}

static size_t grade_of(size_t match) {
    size_t grade = 0;
    while (grade + 1 < AG_SPECULATE_GRADES && match >= (size_t)4 << grade) grade++;
    return grade;
}

static void count_guess(ag_guess_odds *o, size_t grade, bool hit) {
    const double stays = o->tries[grade] < tries_remembered ? 1 : 1 - 1 / tries_remembered;
    o->hits[grade] = o->hits[grade] * stays + hit;
    o->tries[grade] = o->tries[grade] * stays + 1;
}

/* Every token tells whether the guess would have been right, also where none was tried. */
void ag_speculation_chose(ag_speculation *s, int32_t id) {
    int32_t guess;
    const size_t match = ag_lookup_match(s->lookup);
    if (ag_lookup_draft(s->lookup, &guess, 1)) count_guess(&s->odds, grade_of(match), guess == id);
    ag_speculation_read(s, id);
}

/* ---- what is expected ---- */

static double odds_of(const ag_speculation *s, size_t grade) {
    return (s->odds.hits[grade] + assumed[grade] * tries_assumed) /
           (s->odds.tries[grade] + tries_assumed);
}

/* Seconds of a step; of rows that have not been measured, as those that are nearest let expect. */
static double cost_of(const ag_step_costs *c, size_t rows) {
    const double one = c->seconds[1];
    size_t below = rows, above = rows;
    while (below > 1 && !c->n[below]) below--;
    while (above < AG_SPECULATE_ROWS && !c->n[above]) above++;
    const double low = below > 1 ? c->seconds[below] : one;
    if (below == rows) return low;
    if (c->n[above])
        return low + (c->seconds[above] - low) * (double)(rows - below) / (double)(above - below);
    const double row = below > 1 ? (low - one) / (double)(below - 1) : one * usual_row;
    return low + row * (double)(rows - below);
}

/* What may still be lost without anybody noticing. */
static double credit(const ag_speculation *s) {
    return s->won + s->spent * share_to_lose + s->costs.seconds[1] * steps_to_lose;
}

typedef struct plan {
    size_t rows;
    double rate; /* tokens a second that are expected */
} plan;

/* Seconds to guess a token. */
static double guess_cost(const ag_speculation *s, size_t grade) {
    if (grade != AG_SPECULATE_MODEL) return 0;
    return s->guess_seconds > 0 ? s->guess_seconds : s->costs.seconds[1] * usual_guess;
}

/* Rows of a step that brings most tokens a second; 1: without a draft. grade: of the guesses; 0: as
 * the lookup's match has it. */
static plan best_plan(const ag_speculation *s, size_t most, size_t grade) {
    const double one = s->costs.seconds[1], left = credit(s), guess = guess_cost(s, grade);
    const size_t match = ag_lookup_match(s->lookup);
    double tokens = 1, whole = 1;
    plan best = {1, least_gain / one};
    for (size_t n = 2; n <= most; n++) {
        const double cost = cost_of(&s->costs, n) + guess * (double)(n - 1);
        whole *= odds_of(s, grade ? grade : grade_of(match + n - 2));
        tokens += whole;
        if (cost - one > left || tokens / cost <= best.rate) continue;
        if (n != FIRST_ROWS && most >= FIRST_ROWS && !s->costs.n[FIRST_ROWS]) continue;
        best = (plan){n, tokens / cost};
    }
    return best;
}

static void keep_better(plan *best, size_t *from, plan other, size_t grade) {
    if (other.rows < 2 || (best->rows > 1 && other.rate <= best->rate)) return;
    *best = other;
    *from = grade;
}

/* Whose draft is expected to bring most, and how long it should be; 0: the lookup's, or nobody's.
 */
static size_t choose_source(const ag_speculation *s, const ag_draft_offer *offer, size_t *most) {
    const size_t match = ag_lookup_match(s->lookup), n_forced = offer->n_forced;
    plan best = {.rows = 1};
    size_t from = 0;
    if (match) best = best_plan(s, *most + 1, 0);
    if (s->model)
        keep_better(&best, &from, best_plan(s, *most + 1, AG_SPECULATE_MODEL), AG_SPECULATE_MODEL);
    if (n_forced)
        keep_better(&best, &from, best_plan(s, n_forced + 1, AG_SPECULATE_FORCED),
                    AG_SPECULATE_FORCED);
    *most = best.rows - 1;
    return from;
}

/* The same whatever it costs. */
static size_t any_source(const ag_speculation *s, const ag_draft_offer *offer, size_t *most) {
    if (offer->n_forced) {
        *most = offer->n_forced;
        return AG_SPECULATE_FORCED;
    }
    return s->model && ag_lookup_match(s->lookup) < 4 ? AG_SPECULATE_MODEL : 0;
}

static double usual_cost(const ag_step_costs *c, size_t rows) {
    return c->seconds[1] * (1 + usual_row * (double)(rows - 1));
}

/* Nobody has drafted for long: what speaks against it is old. */
static void forget(ag_speculation *s) {
    if (++s->since_draft < TOKENS_TO_FORGET) return;
    s->since_draft = 0;
    s->odds.hits[AG_SPECULATE_MODEL] /= 2;
    s->odds.tries[AG_SPECULATE_MODEL] /= 2;
    for (size_t n = 2; n <= AG_SPECULATE_ROWS; n++) {
        const double usual = usual_cost(&s->costs, n);
        if (s->costs.seconds[n] > usual) s->costs.seconds[n] = (s->costs.seconds[n] + usual) / 2;
    }
}

static size_t ask_model(ag_speculation *s, int32_t *ids, size_t n, const ag_draft_offer *offer) {
    const double begin = ag_now_s();
    n = ag_draft_model_guess(s->model, s->lookup, ids, n, offer->stop, offer->user);
    s->guessing = ag_now_s() - begin;
    return n;
}

size_t ag_speculation_draft(ag_speculation *s, int32_t *ids, const ag_draft_offer *offer) {
    size_t most = offer->most < AG_SPECULATE_ROWS - 1 ? offer->most : AG_SPECULATE_ROWS - 1;
    s->n_guessed = s->grade = 0;
    s->guessing = 0;
    if (!most || (!s->model && !offer->n_forced && !ag_lookup_match(s->lookup))) return 0;
    forget(s);
    if (!offer->always && (s->costs.n[1] < LEAST_MEASURED || s->since_one >= MOST_SINCE_ONE))
        return 0;
    s->grade = (offer->always ? any_source : choose_source)(s, offer, &most);
    if (!s->grade) return ag_lookup_draft(s->lookup, ids, most);
    s->n_guessed = s->grade == AG_SPECULATE_MODEL ? ask_model(s, ids, most, offer) : most;
    return s->n_guessed;
}

/* ---- what has come of it ---- */

static double bounded(double x, double low, double high) {
    return x < low ? low : x > high ? high : x;
}

/* A measurement far from what is known counts as if it were nearer; a second one in a row tells
 * that what is known is wrong. */
static double without_outliers(ag_step_costs *c, size_t rows, double seconds) {
    const double known = c->seconds[rows];
    const double near = bounded(seconds, known / furthest, known * furthest);
    const bool again = c->was_far[rows];
    c->was_far[rows] = seconds != near;
    if (seconds == near || !again) return near;
    c->seconds[rows] = seconds;
    return seconds;
}

/* Returns the seconds as they count. Of the first two measurements the smaller one does: what comes
 * between makes steps longer, never shorter. */
static double measure(ag_step_costs *c, size_t rows, double seconds) {
    double *known = &c->seconds[rows];
    if (!c->n[rows]) {
        *known = rows > 1 ? bounded(seconds, 0, 2 * usual_cost(c, rows)) : seconds;
    } else if (c->n[rows] < LEAST_MEASURED) {
        if (seconds < *known) *known = seconds;
    } else {
        seconds = without_outliers(c, rows, seconds);
        *known += (seconds - *known) * newest_share;
    }
    if (c->n[rows] < UINT32_MAX) c->n[rows]++;
    return seconds;
}

/* Guesses behind the first wrong one tell nothing. Reading a prompt once is no usual cost. Returns
 * the seconds of guessing as they count. */
static double learn_of_guesses(ag_speculation *s, size_t n_tokens) {
    const double most = s->costs.seconds[1] * furthest;
    for (size_t i = 0; i < s->n_guessed && i < n_tokens; i++)
        count_guess(&s->odds, s->grade, i + 1 < n_tokens);
    if (!s->n_guessed || s->grade != AG_SPECULATE_MODEL) return bounded(s->guessing, 0, most);
    const double each = bounded(s->guessing / (double)s->n_guessed, 0, most);
    double *known = &s->guess_seconds;
    *known += (each - *known) * (*known > 0 ? newest_share : 1);
    return each * (double)s->n_guessed;
}

void ag_speculation_learn(ag_speculation *s, size_t rows, size_t n_tokens, double seconds) {
    const double one = s->costs.seconds[1];
    s->since_one = rows > 1 ? s->since_one + 1 : 0;
    if (rows > 1) s->since_draft = 0;
    const double guessing = learn_of_guesses(s, n_tokens);
    seconds -= s->guessing;
    if (s->slow && s->after_refusal && s->costs.n[1]) {
        const double usual = cost_of(&s->costs, rows); /* the rest belongs to the draft before */
        s->won -= bounded(seconds - usual, 0, one * furthest);
        seconds = bounded(seconds, 0, usual);
    } else {
        seconds = measure(&s->costs, rows, seconds);
    }
    s->after_refusal = n_tokens < rows;
    s->spent += one * (double)n_tokens;
    if (rows > 1 || guessing > 0) s->won += one * (double)n_tokens - seconds - guessing;
}
