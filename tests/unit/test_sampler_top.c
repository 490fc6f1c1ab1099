/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling from the largest logits gives the same token as sampling from the whole row. */
#include "text/random.h"
#include "text/sampler_top.h"
#include "text/select.h"
#include "unit/random_filter.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 500, MAX_IDS = 128, MAX_K = 384, ROUNDS = 200 };

static const ag_logit_bias biases[] = {
    {3, -INFINITY}, {7, 2.5f}, {7, 1.0f}, {499, -1.0f}, {0, 0.125f}};
enum { N_BIASES = sizeof biases / sizeof biases[0] };

/* Multiples of 1/8, so that many logits are equal. */
static void fill(ag_random *random, float *row) {
    for (int i = 0; i < N; i++) {
        row[i] = roundf((float)ag_random_unit(random) * 64 - 32) / 8;
        if (ag_random_unit(random) < 0.1) row[i] = -INFINITY;
    }
}

/* Computes the largest logits as a device does. */
static ag_status sample_top(ag_sampler *s, const float *row, int32_t *id, ag_error *err) {
    int32_t ids[MAX_IDS], best_ids[MAX_K];
    float best[MAX_K], at[MAX_IDS], masked[N];
    size_t n_ids, k, bad = SIZE_MAX;
    const uint32_t *mask;
    assert_true(ag_sampler_top_k(s, &mask, ids, MAX_IDS, &n_ids, MAX_K, &k));
    for (size_t i = N; i-- > 0;) {
        const bool allowed = !mask || mask[i / 32] >> (i % 32) & 1;
        masked[i] = allowed && isfinite(row[i]) ? row[i] : -INFINITY;
        if (allowed && (isnan(row[i]) || row[i] == INFINITY)) bad = i;
    }
    const size_t n_best = k ? ag_select_top(masked, N, k, best_ids) : 0;
    for (size_t i = 0; i < n_best; i++) best[i] = row[best_ids[i]];
    for (size_t i = 0; i < n_ids; i++) at[i] = row[ids[i]];
    const ag_top_logits top = {.mask = mask,
                               .best_ids = best_ids,
                               .best = best,
                               .n_best = n_best,
                               .ids = ids,
                               .at = at,
                               .n_ids = n_ids,
                               .bad = bad};
    return ag_sampler_sample_top(s, &top, id, err);
}

/* filters: equal ones of both samplers, or NULL. n_bad: values of a row that are not numbers. */
static void compare_filtered(const ag_sampler_params *p, random_filter *filters, size_t n_bad) {
    ag_sampler *whole, *best;
    float row[N];
    ag_random random;
    ag_error err;
    ag_random_seed(&random, p->seed);
    assert_int_equal(ag_sampler_create(p, N, &whole, &err), AG_OK);
    assert_int_equal(ag_sampler_create(p, N, &best, &err), AG_OK);
    if (filters) {
        assert_int_equal(ag_sampler_set_filter(whole, &filters[0].base, &err), AG_OK);
        assert_int_equal(ag_sampler_set_filter(best, &filters[1].base, &err), AG_OK);
    }
    for (int i = 0; i < ROUNDS; i++) {
        int32_t expected, actual;
        fill(&random, row);
        for (size_t b = 0; b < n_bad; b++)
            row[(size_t)(ag_random_unit(&random) * N)] = b % 2 ? NAN : INFINITY;
        const ag_status st = ag_sampler_sample(whole, row, &expected, &err);
        assert_true(st == AG_OK || n_bad);
        ag_status top;
        do top = sample_top(best, row, &actual, &err);
        while (top == AG_OK && actual < 0);
        if (top != st) fail_msg("round %d: %s instead of %s", i, err.msg, ag_status_name(st));
        if (st != AG_OK) expected = actual = 0;
        if (actual != expected) fail_msg("round %d: %d instead of %d", i, actual, expected);
        ag_sampler_accept(whole, expected);
        ag_sampler_accept(best, expected);
    }
    ag_sampler_destroy(best);
    ag_sampler_destroy(whole);
}

static void compare(const ag_sampler_params *p) { compare_filtered(p, NULL, 0); }

static void chooses_the_tokens_of_a_full_row(void **state) {
    (void)state;
    ag_sampler_params p = ag_sampler_defaults();
    const uint32_t top_k[] = {1, 2, 40, 256};
    for (size_t i = 0; i < sizeof top_k / sizeof top_k[0]; i++) {
        p.top_k = top_k[i];
        for (p.seed = 1; p.seed <= 4; p.seed++) {
            p.temperature = p.seed == 4 ? 0 : 2.0f;
            p.top_p = p.seed == 3 ? 1 : 0.9f;
            p.min_p = p.seed == 2 ? 0.05f : 0;
            p.frequency_penalty = 0.25f;
            p.logit_bias = biases;
            p.n_logit_bias = p.seed == 1 ? 0 : N_BIASES;
            compare(&p);
        }
    }
}

/* Values that are not numbers are errors unless the mask leaves them out. */
static void chooses_among_the_tokens_of_a_mask(void **state) {
    (void)state;
    ag_sampler_params p = ag_sampler_defaults();
    p.repetition_penalty = 1.3f;
    p.logit_bias = biases;
    for (p.seed = 1; p.seed <= 8; p.seed++) {
        random_filter filters[2];
        for (size_t i = 0; i < 2; i++)
            filters[i] = make_random_filter(N, (uint32_t)p.seed, p.seed % 2);
        p.top_k = p.seed % 3 ? 40 : 300;
        p.temperature = p.seed % 4 ? 1.5f : 0;
        p.n_logit_bias = p.seed > 4 ? N_BIASES : 0;
        compare_filtered(&p, filters, p.seed > 6 ? 6 : 0);
    }
}

/* Penalties that lower all of the largest logits. */
static void strong_penalties_need_more_logits(void **state) {
    (void)state;
    ag_sampler_params p = ag_sampler_defaults();
    p.top_k = 5;
    p.repetition_window = 120;
    p.presence_penalty = 30;
    compare(&p);
    p.presence_penalty = -3; /* raises the logits of accepted tokens */
    compare(&p);
}

static void requires_the_full_row_when_few_do_not_suffice(void **state) {
    (void)state;
    ag_sampler_params p = ag_sampler_defaults();
    int32_t ids[MAX_IDS];
    size_t n_ids, k;
    const uint32_t *mask;
    ag_sampler *s;
    p.repetition_penalty = 1.1f;
    p.repetition_window = 200;
    for (int i = 0; i < 3; i++) {
        p.top_k = i == 0 ? 0 : i == 1 ? MAX_K + 1 : 40;
        assert_int_equal(ag_sampler_create(&p, N, &s, NULL), AG_OK);
        for (int32_t id = 0; id <= MAX_IDS; id++) ag_sampler_accept(s, id);
        assert_false(ag_sampler_top_k(s, &mask, ids, MAX_IDS, &n_ids, MAX_K, &k));
        ag_sampler_destroy(s);
    }
}

static void rejects_rows_that_are_not_finite(void **state) {
    (void)state;
    ag_sampler_params p = ag_sampler_defaults();
    float row[N];
    ag_sampler *s;
    ag_error err;
    int32_t id;
    p.repetition_penalty = 1.1f;
    assert_int_equal(ag_sampler_create(&p, N, &s, NULL), AG_OK);
    for (int i = 0; i < N; i++) row[i] = 0;
    row[17] = NAN;
    assert_int_equal(sample_top(s, row, &id, &err), AG_INVALID);
    assert_non_null(strstr(err.msg, "logit 17 of 500"));
    for (int i = 0; i < N; i++) row[i] = -INFINITY;
    assert_int_equal(sample_top(s, row, &id, &err), AG_INVALID);
    assert_non_null(strstr(err.msg, "-inf"));
    ag_sampler_accept(s, 20);
    row[20] = INFINITY;
    assert_int_equal(sample_top(s, row, &id, &err), AG_INVALID);
    assert_non_null(strstr(err.msg, "logit 20 of 500"));
    ag_sampler_destroy(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chooses_the_tokens_of_a_full_row),
        cmocka_unit_test(chooses_among_the_tokens_of_a_mask),
        cmocka_unit_test(strong_penalties_need_more_logits),
        cmocka_unit_test(requires_the_full_row_when_few_do_not_suffice),
        cmocka_unit_test(rejects_rows_that_are_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
