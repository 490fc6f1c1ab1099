/* SPDX-License-Identifier: Apache-2.0 */
/* Mask thread: constrained answers get the tokens that they get alone, whatever the timing, and do
 * not delay other requests. */
#include "serving/serving_impl.h"
#include "support/serving_demo.h"

#include <time.h>

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":40},\"n\":"
    "{\"type\":\"integer\"},\"list\":{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"bc\",7]}}},"
    "\"required\":[\"name\",\"n\",\"list\"]}";
/* Each character multiplies the readings of the text. */
static const char ambiguous[] = "root ::= s+\ns ::= [a-z ]+ | [a-z ]+ s | [a-z ]* [a-z ]*";

static int32_t prompt[40];

static ag_request_params constrained(ag_constraint *c, size_t n_answers, int64_t max_tokens) {
    fill_ids(prompt, 40, 5);
    ag_request_params p = request(prompt, 40, max_tokens);
    p.constraint = c;
    p.n_answers = n_answers;
    p.sampling.temperature = 1;
    p.sampling.seed = 3;
    p.ignore_eos = false;
    p.no_prefix = true;
    return p;
}

static ag_request_params plain(int64_t max_tokens) {
    ag_request_params p = constrained(NULL, 1, max_tokens);
    p.ignore_eos = true;
    return p;
}

/* ---- gate before the jobs of the mask thread ---- */

enum { PATIENCE_S = 120, DEMO_EOS = 4091 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t n_jobs, n_free; /* started jobs; jobs that a closed gate lets through */
    bool is_closed, has_waited;
    bool has_timed_out;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static bool gate_wait(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    return pthread_cond_timedwait(&gate.changed, &gate.lock, &until) == 0;
}

static void pass_gate(void *user, size_t answer) {
    (void)user;
    (void)answer;
    pthread_mutex_lock(&gate.lock);
    const size_t job = gate.n_jobs++;
    while (gate.is_closed && job >= gate.n_free && !gate.has_timed_out) {
        gate.has_waited = true;
        pthread_cond_broadcast(&gate.changed);
        if (!gate_wait()) gate.has_timed_out = true;
    }
    pthread_mutex_unlock(&gate.lock);
}

static void close_gate(size_t n_free) {
    pthread_mutex_lock(&gate.lock);
    gate.is_closed = true;
    gate.n_jobs = 0;
    gate.n_free = n_free;
    gate.has_waited = gate.has_timed_out = false;
    pthread_mutex_unlock(&gate.lock);
    serving->masks.before_job = pass_gate;
}

static void open_gate(void) {
    pthread_mutex_lock(&gate.lock);
    gate.is_closed = false;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

/* Waits until a job blocks at the gate. */
static void wait_for_job(void) {
    pthread_mutex_lock(&gate.lock);
    while (!gate.has_waited && gate_wait()) {}
    assert_true(gate.has_waited);
    pthread_mutex_unlock(&gate.lock);
}

static void expect_in_time(void) { assert_false(gate.has_timed_out); }

/* ---- equal tokens ---- */

/* Checks clients[0] against sessions with the request's parameters. */
static void expect_answers_of_sessions(const ag_request_params *p, const char *text,
                                       ag_constraint_kind kind) {
    ag_session_params sp = ag_session_defaults();
    ag_generate_stats stats;
    ag_backend *be;
    ag_model *model;
    ag_error err;
    sp.prefill_chunk = 256;
    must(ag_backend_create(NULL, &be, &err), &err);
    must(ag_model_load(be, DEMO, NULL, &model, &err), &err);
    for (size_t i = 0; i < p->n_answers; i++) {
        const client_answer *a = &clients[0].answers[i];
        ag_generate_params g = ag_generate_defaults();
        ag_sampler_params sampling = p->sampling;
        ag_session *session;
        sampling.seed += i;
        ag_constraint *c = demo_constraint(kind, text, 0);
        must(ag_session_create(model, &sp, &session, &err), &err);
        must(ag_sampler_create(&sampling, (int32_t)ag_model_get_info(model)->n_vocab, &g.sampler,
                               &err),
             &err);
        must(ag_sampler_constrain(g.sampler, c, &err), &err);
        g.max_tokens = p->max_tokens;
        g.ignore_eos = p->ignore_eos;
        must(ag_session_generate(session, prompt, 40, &g, &stats, &err), &err);
        assert_int_equal(a->n_generated, stats.n_generated);
        assert_int_equal(a->finish, stats.finish);
        if (stats.finish == AG_FINISH_MAX_TOKENS) assert_int_equal(a->ids[a->n - 1], stats.last_id);
        ag_sampler_destroy(g.sampler);
        ag_constraint_destroy(c);
        ag_session_destroy(session);
    }
    ag_model_destroy(model);
    ag_backend_destroy(be);
}

static void matches_a_session(void **state) {
    (void)state;
    ag_request_params p = constrained(demo_constraint(AG_CONSTRAINT_JSON_SCHEMA, schema, 0), 3, 40);
    run_request(&clients[0], &p);
    expect_answers_of_sessions(&p, schema, AG_CONSTRAINT_JSON_SCHEMA);
}

/* Delays some masks, at random. */
static void delay_some(void *user, size_t answer) {
    unsigned *seed = user;
    (void)answer;
    *seed = *seed * 1103515245u + 12345u;
    const struct timespec pause = {0, (long)(*seed >> 16) % 16 * 1000000};
    if (*seed >> 16 & 16) nanosleep(&pause, NULL);
}

static void tokens_do_not_depend_on_timing(void **state) {
    static client_answer alone[4];
    unsigned seed = 1;
    (void)state;
    ag_request_params p = constrained(demo_constraint(AG_CONSTRAINT_JSON_SCHEMA, schema, 0), 4, 30);
    p.logprobs = true;
    run_request(&clients[0], &p);
    memcpy(alone, clients[0].answers, sizeof alone);
    serving->masks.before_job = delay_some;
    serving->masks.before_job_user = &seed;
    ag_request_params q = plain(60);
    p.constraint = demo_constraint(AG_CONSTRAINT_JSON_SCHEMA, schema, 0);
    send_request(&clients[1], &q);
    send_request(&clients[2], &p);
    p.constraint = demo_constraint(AG_CONSTRAINT_JSON_SCHEMA, schema, 0);
    send_request(&clients[3], &p);
    for (size_t i = 1; i < 4; i++) finish(&clients[i], AG_OK);
    for (size_t i = 0; i < 4; i++) {
        same_answer(&clients[2].answers[i], &alone[i], i);
        same_answer(&clients[3].answers[i], &alone[i], i);
    }
}

/* ---- triggers ---- */

/* Begins with a word that the model often writes, in tokens of different lengths. */
static const char triggered[] =
    "%trigger {\"anywhere\": [\"\\\"th\\\"\"]}\n"
    "root ::= \"th\" (\"e \" | \"at \") [a-z]{3,8} \" says \" [0-9]{2} \".\"";
static const char never_triggered[] =
    "%trigger {\"anywhere\": [\"\\\"no such mark\\\"\"]}\nroot ::= \"no such mark!\"";

static ag_request_params triggered_request(size_t n_answers, int64_t max_tokens) {
    ag_request_params p =
        constrained(demo_constraint(AG_CONSTRAINT_GRAMMAR, triggered, 0), n_answers, max_tokens);
    p.ignore_eos = true;
    return p;
}

static void count_jobs(void *user, size_t answer) {
    (void)answer;
    ++*(size_t *)user;
}

static void free_text_needs_no_job(void **state) {
    static client_answer alone[2];
    size_t n = 0;
    (void)state;
    ag_request_params p = plain(60);
    p.n_answers = 2;
    run_request(&clients[0], &p);
    memcpy(alone, clients[0].answers, sizeof alone);
    serving->masks.before_job = count_jobs;
    serving->masks.before_job_user = &n;
    p.constraint = demo_constraint(AG_CONSTRAINT_GRAMMAR, never_triggered, 0);
    run_request(&clients[1], &p);
    for (size_t i = 0; i < 2; i++) same_answer(&clients[1].answers[i], &alone[i], i);
    assert_int_equal(n, 0);
}

static void triggered_answers_match_a_session(void **state) {
    size_t n = 0;
    (void)state;
    serving->masks.before_job = count_jobs;
    serving->masks.before_job_user = &n;
    ag_request_params p = triggered_request(3, 120);
    run_request(&clients[0], &p);
    assert_true(n > 30);
    expect_answers_of_sessions(&p, triggered, AG_CONSTRAINT_GRAMMAR);
}

static void triggered_tokens_do_not_depend_on_timing(void **state) {
    static client_answer alone[4];
    unsigned seed = 5;
    (void)state;
    ag_request_params p = triggered_request(4, 80);
    p.logprobs = true;
    run_request(&clients[0], &p);
    memcpy(alone, clients[0].answers, sizeof alone);
    serving->masks.before_job = delay_some;
    serving->masks.before_job_user = &seed;
    ag_request_params q = plain(60);
    p.constraint = demo_constraint(AG_CONSTRAINT_GRAMMAR, triggered, 0);
    send_request(&clients[1], &q);
    send_request(&clients[2], &p);
    p.constraint = demo_constraint(AG_CONSTRAINT_GRAMMAR, triggered, 0);
    send_request(&clients[3], &p);
    for (size_t i = 1; i < 4; i++) finish(&clients[i], AG_OK);
    for (size_t i = 0; i < 4; i++) {
        same_answer(&clients[2].answers[i], &alone[i], i);
        same_answer(&clients[3].answers[i], &alone[i], i);
    }
}

/* The token that fires the trigger waits for its job. */
static void cancels_a_request_that_holds_a_token(void **state) {
    (void)state;
    close_gate(0);
    ag_request_params p = triggered_request(2, 200), q = plain(30);
    send_request(&clients[0], &p);
    wait_for_job();
    send_request(&clients[1], &q);
    finish(&clients[1], AG_OK);
    assert_false(clients[0].ended);
    ag_serving_cancel(serving, clients[0].id);
    finish(&clients[0], AG_CANCELLED);
    open_gate();
    p = triggered_request(2, 60);
    run_request(&clients[2], &p);
    expect_in_time();
}

/* ---- late masks ---- */

static void late_mask_does_not_delay_other_requests(void **state) {
    (void)state;
    close_gate(6); /* two tokens of three answers */
    ag_request_params p = constrained(demo_constraint(AG_CONSTRAINT_JSON_SCHEMA, schema, 0), 3, 12);
    ag_request_params q = plain(30);
    send_request(&clients[0], &p);
    wait_for_job();
    send_request(&clients[1], &q);
    finish(&clients[1], AG_OK);
    assert_int_equal(clients[1].answers[0].n, 30);
    assert_false(clients[0].ended);
    for (size_t i = 0; i < 3; i++) assert_int_equal(clients[0].answers[i].n, 2);
    open_gate();
    finish(&clients[0], AG_OK);
    for (size_t i = 0; i < 3; i++) assert_true(clients[0].answers[i].n > 2);
    expect_in_time();
}

/* Runs on the engine thread. Reads the number of rounds. */
static ag_status read_round(ag_serving *s, ag_serving_job *job, ag_error *err) {
    (void)err;
    *(uint64_t *)job->user = s->round;
    return AG_OK;
}

static uint64_t n_rounds(void) {
    uint64_t n = 0;
    ag_serving_job job = {.run = read_round, .user = &n};
    ag_error err;
    must(ag_serving_run_job(serving, &job, &err), &err);
    return n;
}

static void engine_sleeps_while_all_masks_are_late(void **state) {
    (void)state;
    close_gate(2);
    ag_request_params p = constrained(demo_constraint(AG_CONSTRAINT_JSON_SCHEMA, schema, 0), 1, 8);
    send_request(&clients[0], &p);
    wait_for_job();
    client_wait_tokens(&clients[0], 2);
    (void)n_rounds(); /* the pass after the second token */
    const uint64_t before = n_rounds();
    const struct timespec while_ = {0, 500000000};
    nanosleep(&while_, NULL);
    assert_in_range(n_rounds() - before, 0, 4); /* the job itself wakes the engine */
    open_gate();
    finish(&clients[0], AG_OK);
    expect_in_time();
}

/* ---- ends during a job ---- */

static void cancels_a_request_while_its_mask_is_made(void **state) {
    (void)state;
    close_gate(3);
    ag_request_params p = constrained(demo_constraint(AG_CONSTRAINT_JSON_SCHEMA, schema, 0), 2, 20);
    send_request(&clients[0], &p);
    wait_for_job();
    client_wait_tokens(&clients[0], 1);
    ag_serving_cancel(serving, clients[0].id);
    finish(&clients[0], AG_CANCELLED);
    open_gate();
    /* Other requests continue. */
    p.constraint = demo_constraint(AG_CONSTRAINT_JSON_SCHEMA, schema, 0);
    run_request(&clients[1], &p);
    expect_in_time();
}

static void deadline_ends_a_late_request(void **state) {
    (void)state;
    close_gate(1);
    ag_request_params p = constrained(demo_constraint(AG_CONSTRAINT_JSON_SCHEMA, schema, 0), 2, 20);
    p.deadline_s = 2;
    send_request(&clients[0], &p);
    finish(&clients[0], AG_CANCELLED);
    assert_non_null(strstr(clients[0].error.msg, "within 2 s"));
    open_gate();
    expect_in_time();
}

/* The engine handles cancellations of waiting requests while it sleeps. */
static void cancels_a_waiting_request_while_masks_are_late(void **state) {
    (void)state;
    stop(NULL);
    ag_serving_params params = ag_serving_defaults();
    params.max_running = 1;
    start_with(&params);
    close_gate(1);
    ag_request_params p = constrained(demo_constraint(AG_CONSTRAINT_JSON_SCHEMA, schema, 0), 1, 8);
    ag_request_params q = plain(4);
    send_request(&clients[0], &p);
    wait_for_job();
    send_request(&clients[1], &q);
    send_request(&clients[2], &q);
    ag_serving_cancel(serving, clients[1].id);
    finish(&clients[1], AG_CANCELLED);
    assert_false(clients[0].ended);
    open_gate();
    finish(&clients[0], AG_OK);
    finish(&clients[2], AG_OK);
    expect_in_time();
}

static void *open_at_end(void *user) {
    client_wait(user);
    open_gate();
    return NULL;
}

static void engine_is_destroyed_while_a_mask_is_made(void **state) {
    pthread_t thread;
    (void)state;
    close_gate(3);
    ag_request_params p = constrained(demo_constraint(AG_CONSTRAINT_JSON_SCHEMA, schema, 0), 2, 20);
    send_request(&clients[0], &p);
    wait_for_job();
    assert_int_equal(pthread_create(&thread, NULL, open_at_end, &clients[0]), 0);
    ag_serving_destroy(serving);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(clients[0].status, AG_CANCELLED);
    expect_in_time();
    start_with(NULL); /* for the teardown */
}

/* ---- budgets ---- */

static size_t n_jobs;
static void count_job(void *user, size_t answer) {
    (void)answer;
    n_jobs++;
    if (user) delay_some(user, answer);
}

static void expect_limit(const client *c, const char *message) {
    if (!strstr(c->error.msg, message)) fail_msg("%s", c->error.msg);
}

/* The answer that reaches the limit fails; tokens before it do not depend on timing. */
static void failed_mask_ends_only_its_own_request(void **state) {
    static client_answer first[4];
    const ag_logit_bias no_end = {DEMO_EOS, -1000};
    unsigned seed = 2;
    (void)state;
    ag_request_params q = plain(100);
    send_request(&clients[1], &q);
    for (int run = 0; run < 2; run++) {
        ag_request_params p =
            constrained(demo_constraint(AG_CONSTRAINT_GRAMMAR, ambiguous, 1 << 22), 4, 30);
        p.sampling.logit_bias = &no_end;
        p.sampling.n_logit_bias = 1;
        n_jobs = 0;
        serving->masks.before_job = count_job;
        serving->masks.before_job_user = run ? &seed : NULL;
        client_destroy(&clients[0]);
        client_init(&clients[0]);
        send_request(&clients[0], &p);
        finish(&clients[0], AG_LIMIT);
        expect_limit(&clients[0], "one token needs more than 4194304 steps");
        if (!run) memcpy(first, clients[0].answers, sizeof first);
        const size_t n = clients[0].answers[0].n;
        assert_int_equal(n_jobs, 4 * n + 1);
        for (size_t i = 0; i < 4; i++) {
            assert_int_equal(clients[0].answers[i].n, first[i].n);
            assert_memory_equal(clients[0].answers[i].ids, first[i].ids, first[i].n * 4);
        }
    }
    finish(&clients[1], AG_OK);
}

static void answers_of_a_request_share_a_budget(void **state) {
    (void)state;
    const char grammar[] = "root ::= [a-z ]{3000}"; /* one state per character */
    ag_request_params p =
        constrained(demo_constraint(AG_CONSTRAINT_GRAMMAR, grammar, 1 << 15), 4, 1000);
    send_request(&clients[0], &p);
    finish(&clients[0], AG_LIMIT);
    expect_limit(&clients[0], "all tokens together need more than 262144 steps");
    for (size_t i = 0; i < 4; i++) assert_true(clients[0].answers[i].n > 10);
    ag_request_params alone =
        constrained(demo_constraint(AG_CONSTRAINT_GRAMMAR, grammar, 1 << 15), 1, 20);
    run_request(&clients[1], &alone);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(matches_a_session, start, stop),
        cmocka_unit_test_setup_teardown(tokens_do_not_depend_on_timing, start, stop),
        cmocka_unit_test_setup_teardown(free_text_needs_no_job, start, stop),
        cmocka_unit_test_setup_teardown(triggered_answers_match_a_session, start, stop),
        cmocka_unit_test_setup_teardown(triggered_tokens_do_not_depend_on_timing, start, stop),
        cmocka_unit_test_setup_teardown(cancels_a_request_that_holds_a_token, start, stop),
        cmocka_unit_test_setup_teardown(late_mask_does_not_delay_other_requests, start, stop),
        cmocka_unit_test_setup_teardown(engine_sleeps_while_all_masks_are_late, start, stop),
        cmocka_unit_test_setup_teardown(cancels_a_request_while_its_mask_is_made, start, stop),
        cmocka_unit_test_setup_teardown(deadline_ends_a_late_request, start, stop),
        cmocka_unit_test_setup_teardown(cancels_a_waiting_request_while_masks_are_late, start,
                                        stop),
        cmocka_unit_test_setup_teardown(engine_is_destroyed_while_a_mask_is_made, start, stop),
        cmocka_unit_test_setup_teardown(failed_mask_ends_only_its_own_request, start, stop),
        cmocka_unit_test_setup_teardown(answers_of_a_request_share_a_budget, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
