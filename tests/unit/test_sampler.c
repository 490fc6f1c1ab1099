/* SPDX-License-Identifier: Apache-2.0 */
/* Compares each stage of the sampler with a reference that sorts all tokens and computes in
 * double. */
#include <antigravity/alloc.h>
#include <antigravity/sampler.h>

#include "text/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_N = 2000 };

typedef struct pair {
    double logit;
    int32_t id;
} pair;

static int best_first(const void *pa, const void *pb) {
    const pair *a = pa, *b = pb;
    if (a->logit != b->logit) return a->logit > b->logit ? -1 : 1;
    return a->id - b->id;
}

/* The probability of each id, computed naively: all tokens are sorted and every stage is a loop.
 * window: the accepted tokens, oldest first. */
static void reference(const ag_sampler_params *p, const float *logits, size_t n,
                      const int32_t *window, size_t n_window, double *prob) {
    static pair v[MAX_N];
    for (size_t i = 0; i < n; i++) v[i] = (pair){logits[i], (int32_t)i};
    for (size_t i = 0; i < p->n_logit_bias; i++) {
        v[p->logit_bias[i].id].logit += p->logit_bias[i].bias;
    }
    size_t first = n_window > p->repetition_window ? n_window - p->repetition_window : 0;
    for (size_t id = 0; id < n; id++) {
        int count = 0;
        for (size_t i = first; i < n_window; i++) count += window[i] == (int32_t)id;
        if (!count) continue;
        double *l = &v[id].logit;
        *l = *l < 0 ? *l * p->repetition_penalty : *l / p->repetition_penalty;
        *l -= p->presence_penalty + count * p->frequency_penalty;
    }
    for (size_t i = 0; i < n; i++) prob[i] = 0;
    qsort(v, n, sizeof *v, best_first);
    if (p->temperature == 0) {
        prob[v[0].id] = 1;
        return;
    }
    const size_t kept = p->top_k && p->top_k < n ? p->top_k : n;
    const double top = v[0].logit;
    double total = 0, sum = 0;
    for (size_t i = 0; i < kept; i++) total += exp(v[i].logit - top);
    size_t nucleus = 0;
    for (; nucleus < kept && (p->top_p == 1 || sum < p->top_p * total); nucleus++)
        sum += exp(v[nucleus].logit - top);
    sum = 0;
    for (size_t i = 0; i < nucleus; i++) {
        if (exp(v[i].logit - top) >= p->min_p)
            sum += prob[v[i].id] = exp((v[i].logit - top) / p->temperature);
    }
    for (size_t i = 0; i < n; i++) prob[i] /= sum;
}

static ag_sampler *make(const ag_sampler_params *p, size_t n) {
    ag_sampler *s;
    ag_error err;
    if (ag_sampler_create(p, (int32_t)n, &s, &err) != AG_OK) fail_msg("%s", err.msg);
    return s;
}

static int32_t sample(ag_sampler *s, const float *logits) {
    int32_t id = -1;
    ag_error err;
    if (ag_sampler_sample(s, logits, &id, &err) != AG_OK) fail_msg("%s", err.msg);
    return id;
}

static ag_sampler_params plain(void) {
    return (ag_sampler_params){.repetition_penalty = 1, .temperature = 1, .top_p = 1, .seed = 7};
}

static void fill(ag_random *r, float *logits, size_t n, double spread) {
    for (size_t i = 0; i < n; i++) {
        logits[i] = (float)((ag_random_unit(r) + ag_random_unit(r) + ag_random_unit(r)) * spread);
    }
}

/* Draws 20000 tokens. The count of each must be within five standard deviations of the reference,
 * and 0 where the reference forbids the token. */
static void check_draws(const ag_sampler_params *p, const float *logits, size_t n,
                        const int32_t *window, size_t n_window) {
    enum { DRAWS = 20000 };
    static double prob[MAX_N];
    static int hits[MAX_N];
    memset(hits, 0, sizeof hits);
    reference(p, logits, n, window, n_window, prob);
    ag_sampler *s = make(p, n);
    for (size_t i = 0; i < n_window; i++) ag_sampler_accept(s, window[i]);
    for (int i = 0; i < DRAWS; i++) hits[sample(s, logits)]++;
    for (size_t i = 0; i < n; i++) {
        double mean = DRAWS * prob[i], sd = sqrt(mean * (1 - prob[i]));
        if (fabs(hits[i] - mean) > 5 * sd + 3 || (prob[i] == 0 && hits[i])) {
            fail_msg("token %zu came %d times, not %.1f", i, hits[i], mean);
        }
    }
    ag_sampler_destroy(s);
}

static void each_stage_matches_the_reference(void **state) {
    (void)state;
    static float logits[MAX_N];
    ag_random r;
    ag_random_seed(&r, 1);
    fill(&r, logits, 300, 8);
    ag_sampler_params p = plain();
    check_draws(&p, logits, 300, NULL, 0);
    p.temperature = 0.6f;
    check_draws(&p, logits, 300, NULL, 0);
    p.top_k = 25;
    check_draws(&p, logits, 300, NULL, 0);
    p.top_k = 0;
    p.top_p = 0.7f;
    check_draws(&p, logits, 300, NULL, 0);
    p.top_p = 1;
    p.min_p = 0.2f;
    check_draws(&p, logits, 300, NULL, 0);
}

static void combined_stages_match_the_reference(void **state) {
    (void)state;
    static float logits[MAX_N];
    ag_random r;
    ag_random_seed(&r, 2);
    for (int round = 0; round < 12; round++) {
        size_t n = 50 + 30 * (size_t)round;
        fill(&r, logits, n, 6);
        for (size_t i = 0; i < n; i++) logits[i] -= 9; /* both signs, for the penalty */
        int32_t window[40];
        for (int i = 0; i < 40; i++) window[i] = (int32_t)(ag_random_unit(&r) * 60) % (int)n;
        ag_logit_bias bias[] = {{3, 2.5f}, {7, -INFINITY}, {3, 0.5f}};
        const ag_sampler_params p = {.logit_bias = bias,
                                     .n_logit_bias = 3,
                                     .repetition_penalty = 1.3f,
                                     .repetition_window = 25,
                                     .presence_penalty = 0.2f,
                                     .frequency_penalty = 0.1f,
                                     .top_k = round % 3 ? 30 : 0,
                                     .top_p = 0.85f,
                                     .min_p = 0.05f,
                                     .temperature = 0.9f,
                                     .seed = (uint64_t)round};
        check_draws(&p, logits, n, window, 40);
    }
}

static void greedy_takes_the_lowest_id_of_the_largest_logits(void **state) {
    (void)state;
    ag_sampler_params p = plain();
    p.temperature = 0;
    ag_sampler *s = make(&p, 6);
    assert_int_equal(sample(s, (float[]){0, 3, -1, 3, 3, 2}), 1);
    assert_int_equal(sample(s, (float[]){-9, -8, -8, -9, -8.5f, -INFINITY}), 1);
    ag_sampler_destroy(s);
}

static void top_k_of_one_equals_greedy(void **state) {
    (void)state;
    ag_sampler_params p = plain();
    p.top_k = 1;
    ag_sampler *s = make(&p, 5);
    for (int i = 0; i < 50; i++) assert_int_equal(sample(s, (float[]){1, 2, 2, 0, 2}), 1);
    ag_sampler_destroy(s);
    p.top_k = 2; /* the two lowest ids of three equal logits */
    s = make(&p, 5);
    for (int i = 0; i < 200; i++) assert_in_range(sample(s, (float[]){1, 2, 2, 0, 2}), 1, 2);
    ag_sampler_destroy(s);
}

static void tiny_top_p_leaves_one_token(void **state) {
    (void)state;
    for (uint32_t k = 0; k < 10; k += 3) {
        ag_sampler_params p = plain();
        p.top_p = 1e-30f;
        p.top_k = k;
        ag_sampler *s = make(&p, 5);
        for (int i = 0; i < 50; i++) assert_int_equal(sample(s, (float[]){1, 2, 2, 0, 2}), 1);
        ag_sampler_destroy(s);
    }
}

static void never_draws_forbidden_tokens(void **state) {
    (void)state;
    float row[8];
    for (int i = 0; i < 8; i++) row[i] = -INFINITY;
    row[5] = -3;
    for (int mode = 0; mode < 4; mode++) {
        ag_sampler_params p = plain();
        p.top_k = mode == 1 ? 3 : mode == 2 ? 100 : 0;
        p.top_p = mode == 3 ? 0.9f : 1;
        ag_sampler *s = make(&p, 8);
        for (int i = 0; i < 20; i++) assert_int_equal(sample(s, row), 5);
        ag_sampler_destroy(s);
    }
}

static void rejects_logits_that_are_not_finite(void **state) {
    (void)state;
    ag_sampler_params p = plain();
    ag_sampler *s = make(&p, 3);
    ag_error err;
    int32_t id;
    float none[] = {-INFINITY, -INFINITY, -INFINITY}, nan_row[] = {1, NAN, 2},
          inf_row[] = {1, 2, INFINITY};
    assert_int_equal(ag_sampler_sample(s, none, &id, &err), AG_INVALID);
    assert_string_equal(err.msg, "all 3 logits are -inf");
    assert_int_equal(ag_sampler_sample(s, nan_row, &id, &err), AG_INVALID);
    assert_string_equal(err.msg, "logit 1 of 3 is nan");
    assert_int_equal(ag_sampler_sample(s, inf_row, &id, &err), AG_INVALID);
    ag_sampler_destroy(s);
}

static void penalises_a_repeated_token_once(void **state) {
    (void)state;
    ag_sampler_params p = plain();
    p.temperature = 0;
    p.repetition_penalty = 2;
    p.repetition_window = 8;
    ag_sampler *s = make(&p, 4);
    for (int i = 0; i < 3; i++) ag_sampler_accept(s, 1);
    /* The penalty applies once: 8 / 2 = 4 exceeds 3.9, 8 / 8 = 1 would not. */
    assert_int_equal(sample(s, (float[]){3.9f, 8, 0, 0}), 1);
    assert_int_equal(sample(s, (float[]){4.1f, 8, 0, 0}), 0);
    /* A negative logit is multiplied. */
    assert_int_equal(sample(s, (float[]){-1.9f, -1, -5, -5}), 0);
    assert_int_equal(sample(s, (float[]){-2.1f, -1, -5, -5}), 1);
    ag_sampler_destroy(s);
}

static void window_forgets_old_tokens(void **state) {
    (void)state;
    ag_sampler_params p = plain();
    p.temperature = 0;
    p.frequency_penalty = 1;
    p.repetition_window = 2;
    ag_sampler *s = make(&p, 4);
    float row[] = {2.5f, 4, 0, 0};
    ag_sampler_accept(s, 1);
    assert_int_equal(sample(s, row), 1);
    ag_sampler_accept(s, 1);
    assert_int_equal(sample(s, row), 0);
    ag_sampler_accept(s, 2);
    assert_int_equal(sample(s, row), 1);
    ag_sampler_accept(s, -1); /* ids that are not tokens are ignored */
    ag_sampler_accept(s, 4);
    ag_sampler_accept(s, 1);
    assert_int_equal(sample(s, row), 1);
    ag_sampler_destroy(s);
    p.repetition_window = 0;
    s = make(&p, 4);
    for (int i = 0; i < 5; i++) ag_sampler_accept(s, 1);
    assert_int_equal(sample(s, row), 1);
    ag_sampler_destroy(s);
}

static void equal_seeds_draw_equal_tokens(void **state) {
    (void)state;
    static float logits[MAX_N];
    ag_random r;
    ag_random_seed(&r, 3);
    fill(&r, logits, MAX_N, 3);
    ag_sampler_params p = ag_sampler_defaults();
    p.seed = 42;
    ag_sampler *a = make(&p, MAX_N), *b = make(&p, MAX_N);
    p.seed = 43;
    ag_sampler *c = make(&p, MAX_N);
    int32_t first[100];
    int same = 0;
    for (int i = 0; i < 100; i++) {
        first[i] = sample(a, logits);
        assert_int_equal(first[i], sample(b, logits));
        same += first[i] == sample(c, logits);
        ag_sampler_accept(a, first[i]);
        ag_sampler_accept(b, first[i]);
    }
    assert_true(same < 60);
    ag_sampler_reset(a);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(sample(a, logits), first[i]);
        ag_sampler_accept(a, first[i]);
    }
    ag_sampler_destroy(a);
    ag_sampler_destroy(b);
    ag_sampler_destroy(c);
}

/* Recorded from the authors' C code with the state 1, 2, 3, 4. */
static void generator_is_xoshiro256_star_star(void **state) {
    (void)state;
    ag_random r = {{1, 2, 3, 4}};
    assert_true(ag_random_next(&r) == 11520);
    assert_true(ag_random_next(&r) == 0);
    assert_true(ag_random_next(&r) == UINT64_C(1509978240));
    assert_true(ag_random_next(&r) == UINT64_C(1215971899390074240));
}

static void sample_does_not_allocate_or_change_logits(void **state) {
    (void)state;
    static float logits[MAX_N], before[MAX_N];
    ag_random r;
    ag_random_seed(&r, 4);
    fill(&r, logits, MAX_N, 3);
    memcpy(before, logits, sizeof logits);
    for (uint32_t k = 0; k <= 40; k += 40) {
        ag_sampler_params p = ag_sampler_defaults();
        p.top_k = k;
        ag_sampler *s = make(&p, MAX_N);
        size_t count = ag_allocation_count();
        for (int i = 0; i < 50; i++) ag_sampler_accept(s, sample(s, logits));
        assert_int_equal(ag_allocation_count(), count);
        ag_sampler_destroy(s);
    }
    assert_memory_equal(logits, before, sizeof logits);
}

static void rejects_bad_parameters_with_a_reason(void **state) {
    (void)state;
    ag_logit_bias outside = {9, 1}, not_a_number = {1, NAN};
    struct {
        ag_sampler_params p;
        const char *name;
    } cases[12];
    for (int i = 0; i < 12; i++) cases[i].p = ag_sampler_defaults();
    int n = 0;
    cases[n].p.temperature = -1, cases[n++].name = "temperature";
    cases[n].p.temperature = NAN, cases[n++].name = "temperature";
    cases[n].p.top_p = 0, cases[n++].name = "top_p";
    cases[n].p.top_p = 1.5f, cases[n++].name = "top_p";
    cases[n].p.top_p = NAN, cases[n++].name = "top_p";
    cases[n].p.min_p = -0.1f, cases[n++].name = "min_p";
    cases[n].p.repetition_penalty = 0, cases[n++].name = "repetition_penalty";
    cases[n].p.repetition_window = UINT32_MAX, cases[n++].name = "repetition_window";
    cases[n].p.presence_penalty = NAN, cases[n++].name = "presence_penalty";
    cases[n].p.frequency_penalty = INFINITY, cases[n++].name = "frequency_penalty";
    cases[n].p.logit_bias = &outside, cases[n].p.n_logit_bias = 1, cases[n++].name = "id 9";
    cases[n].p.logit_bias = &not_a_number, cases[n].p.n_logit_bias = 1, cases[n++].name = "id 1";
    for (int i = 0; i < n; i++) {
        ag_sampler *s = (ag_sampler *)&n;
        ag_error err;
        assert_int_equal(ag_sampler_create(&cases[i].p, 9, &s, &err), AG_INVALID);
        assert_null(s);
        assert_non_null(strstr(err.msg, cases[i].name));
    }
    ag_sampler *s;
    ag_sampler_params p = ag_sampler_defaults();
    assert_int_equal(ag_sampler_create(&p, 0, &s, NULL), AG_INVALID);
    ag_sampler_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_stage_matches_the_reference),
        cmocka_unit_test(combined_stages_match_the_reference),
        cmocka_unit_test(greedy_takes_the_lowest_id_of_the_largest_logits),
        cmocka_unit_test(top_k_of_one_equals_greedy),
        cmocka_unit_test(tiny_top_p_leaves_one_token),
        cmocka_unit_test(never_draws_forbidden_tokens),
        cmocka_unit_test(rejects_logits_that_are_not_finite),
        cmocka_unit_test(penalises_a_repeated_token_once),
        cmocka_unit_test(window_forgets_old_tokens),
        cmocka_unit_test(equal_seeds_draw_equal_tokens),
        cmocka_unit_test(generator_is_xoshiro256_star_star),
        cmocka_unit_test(sample_does_not_allocate_or_change_logits),
        cmocka_unit_test(rejects_bad_parameters_with_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
