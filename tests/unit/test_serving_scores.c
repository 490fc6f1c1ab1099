/* SPDX-License-Identifier: Apache-2.0 */
/* Log probabilities: of rows of logits; of prompts, whose tokens get the scores that a session
 * gives. */
#include "serving/logprobs.h"
#include "serving/model.h"
#include "support/serving_demo.h"

/* Prompt of a scoring request with the scores of a session that reads it alone. */
typedef struct scored_prompt {
    const int32_t *ids;
    size_t n, n_vocab;
    double logprobs[CLIENT_TOKENS];
    int32_t top[CLIENT_TOKENS];
} scored_prompt;

static bool score_row(void *user, size_t i, const float *logits) {
    scored_prompt *p = user;
    double sum = 0;
    size_t top = 0;
    if (i + 1 == p->n) return true;
    for (size_t k = 0; k < p->n_vocab; k++) {
        sum += exp((double)logits[k]);
        if (logits[k] > logits[top]) top = k;
    }
    p->logprobs[i + 1] = (double)logits[p->ids[i + 1]] - log(sum);
    p->top[i + 1] = (int32_t)top;
    return true;
}

static ag_request_params scoring_request(const int32_t *ids, size_t n) {
    ag_request_params p = request(ids, n, 1);
    p.logprobs = p.prompt_logprobs = true;
    p.n_top = 1;
    p.sampling.temperature = 0;
    return p;
}

static void scores_each_token_of_a_prompt(void **state) {
    static int32_t ids[600];
    static scored_prompt want;
    const size_t n = sizeof ids / sizeof ids[0];
    ag_session_params sp = ag_session_defaults();
    ag_session *session;
    ag_backend *be;
    ag_model *model;
    ag_error err;
    (void)state;
    fill_ids(ids, n, 21);
    sp.prefill_chunk = 256;
    must(ag_backend_create(NULL, &be, &err), &err);
    must(ag_model_load(be, DEMO, NULL, &model, &err), &err);
    must(ag_session_create(model, &sp, &session, &err), &err);
    want = (scored_prompt){.ids = ids, .n = n, .n_vocab = ag_model_get_info(model)->n_vocab};
    must(ag_session_score(session, ids, n, score_row, &want, &err), &err);

    for (size_t i = 0; i < 2; i++) { /* the second time a cached session has the prompt */
        ag_request_params p = scoring_request(ids, n);
        run_request(&clients[0], &p);
        const client *c = &clients[0];
        assert_int_equal(c->n_cached, 0);
        assert_int_equal(c->n_scored, n);
        assert_memory_equal(c->prompt_ids, ids, n * sizeof *ids);
        assert_true(isnan(c->prompt_logprobs[0]) && c->prompt_top[0].id == -1);
        for (size_t k = 1; k < n; k++) {
            assert_float_equal(c->prompt_logprobs[k], want.logprobs[k], 1e-4);
            assert_int_equal(c->prompt_top[k].id, want.top[k]);
            if (c->prompt_top[k].id == ids[k])
                assert_memory_equal(&c->prompt_top[k].logprob, &c->prompt_logprobs[k],
                                    sizeof(float));
        }
    }
    ag_session_destroy(session);
    ag_model_destroy(model);
    ag_backend_destroy(be);
}

/* Logits of a scored prompt are computed in groups of rows: a group must not depend on the other
 * requests of the pass. */
static void scored_prompts_match_single_ones(void **state) {
    enum { N = 12 };
    static int32_t ids[N][800];
    static float together[N][CLIENT_TOKENS];
    ag_request_params p[N];
    (void)state;
    for (size_t i = 0; i < N; i++) {
        fill_ids(ids[i], prompt_length(i), (unsigned)i + 40);
        p[i] = scoring_request(ids[i], prompt_length(i));
        p[i].no_prefix = true;
        client_destroy(&clients[i]);
        client_init(&clients[i]);
        send_request(&clients[i], &p[i]);
    }
    for (size_t i = 0; i < N; i++) {
        finish(&clients[i], AG_OK);
        memcpy(together[i], clients[i].prompt_logprobs, sizeof together[i]);
    }
    for (size_t i = 0; i < N; i++) {
        run_request(&clients[0], &p[i]);
        assert_int_equal(clients[0].n_scored, p[i].n_prompt);
        for (size_t k = 1; k < p[i].n_prompt; k++)
            if (memcmp(&together[i][k], &clients[0].prompt_logprobs[k], sizeof(float)) != 0)
                fail_msg("request %zu: logprob %zu is %.9g, alone %.9g", i, k,
                         (double)together[i][k], (double)clients[0].prompt_logprobs[k]);
    }
}

static void scoring_reports_the_token_that_ends_an_answer(void **state) {
    ag_ids ids = encode("Once upon a time");
    ag_request_params p = scoring_request(ids.data, ids.n);
    (void)state;
    run_request(&clients[0], &p);
    const int32_t next = clients[0].answers[0].ids[0];
    p.stop_ids = &next;
    p.n_stop_ids = 1;
    p.ignore_eos = false;
    run_request(&clients[0], &p);
    assert_int_equal(clients[0].answers[0].n, 1);
    assert_int_equal(clients[0].answers[0].ids[0], next);
    assert_int_equal(clients[0].answers[0].len, 0);
    assert_int_equal(clients[0].answers[0].n_generated, 0);
    p.prompt_logprobs = false;
    run_request(&clients[0], &p);
    assert_int_equal(clients[0].answers[0].n, 0);
    ag_ids_free(&ids);
}

static void scoring_needs_logprobs(void **state) {
    const int32_t id = 20;
    ag_request_params p = scoring_request(&id, 1);
    ag_error err;
    (void)state;
    p.logprobs = false;
    p.n_top = 0;
    assert_int_equal(client_send(&clients[0], serving, &p, &err), AG_INVALID);
    assert_non_null(strstr(err.msg, "prompt_logprobs"));
}

/* Compares with sums in double, for spreads from those of real models to 1e30. */
static void scores_rows_of_any_spread(void **state) {
    (void)state;
    enum { N = 1000 };
    static float logits[N];
    static const float spreads[] = {0, 1e-3f, 1, 20, 90, 1000, 1e6f, 1e30f, INFINITY};
    for (size_t k = 0; k < sizeof spreads / sizeof *spreads; k++) {
        uint32_t seed = 7;
        double sum = 0, largest = -INFINITY;
        ag_logprob top[AG_SERVING_MAX_TOP];
        ag_served_model model = {.info = {.n_vocab = N}};
        for (size_t i = 0; i < N; i++) {
            seed = seed * 1664525 + 1013904223;
            const float part = (float)(seed >> 8) / 16777216;
            logits[i] = i % 3 || isfinite(spreads[k]) ? 3 - part * spreads[k] : part;
            if ((double)logits[i] > largest) largest = (double)logits[i];
        }
        for (size_t i = 0; i < N; i++) sum += exp((double)logits[i] - largest);
        for (uint32_t n_top = 0; n_top < 6; n_top += 5) {
            const ag_request_params p = {.model = &model, .n_top = n_top};
            ag_request_event e = {.id = 3};
            ag_event_set_logprobs(&e, &p, logits, top);
            const double want = (double)logits[3] - largest - log(sum);
            assert_float_equal(e.logprob, want, 2e-7 * (1 + fabs(want)));
            for (size_t i = 0; i < n_top; i++) {
                const double from_log = (double)logits[top[i].id] - largest - log(sum);
                assert_float_equal(top[i].logprob, from_log, 2e-7 * (1 + fabs(from_log)));
                assert_true(!i || logits[top[i].id] <= logits[top[i - 1].id]);
            }
        }
    }
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, start, stop)
    const struct CMUnitTest tests[] = {
        CASE(scores_each_token_of_a_prompt),
        CASE(scored_prompts_match_single_ones),
        CASE(scoring_reports_the_token_that_ends_an_answer),
        CASE(scoring_needs_logprobs),
        cmocka_unit_test(scores_rows_of_any_spread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
