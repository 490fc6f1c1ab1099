/* SPDX-License-Identifier: Apache-2.0 */
/* Serving engine: requests that are cancelled, reach a deadline, find no place or fail. */
#include "serving/serving_impl.h"
#include "support/serving_demo.h"

/* ---- cancellation ---- */

static void cancel_at_five(client *c) {
    if (c->answers[0].n == 5) ag_serving_cancel(c->serving, c->id);
}

static void cancelled_request_ends_after_the_step(void **state) {
    int32_t ids[20];
    (void)state;
    fill_ids(ids, 20, 3);
    ag_request_params p = request(ids, 20, 900);
    clients[0].on_token = cancel_at_five;
    send_request(&clients[0], &p);
    finish(&clients[0], AG_CANCELLED);
    assert_int_equal(clients[0].answers[0].n, 5);
    assert_true(clients[0].answers[0].ended);
    assert_int_equal(clients[0].answers[0].finish, AG_FINISH_CANCELLED);
    ag_serving_cancel(serving, clients[0].id); /* the second call has no effect */
    ag_serving_cancel(serving, 12345);
}

static void deadline_ends_a_request(void **state) {
    int32_t ids[20];
    (void)state;
    fill_ids(ids, 20, 3);
    ag_request_params p = request(ids, 20, -1);
    p.deadline_s = 0.05;
    send_request(&clients[0], &p);
    finish(&clients[0], AG_CANCELLED);
    assert_non_null(strstr(clients[0].error.msg, "0.05"));
}

static void destroy_ends_running_and_waiting_requests(void **state) {
    int32_t ids[20];
    (void)state;
    fill_ids(ids, 20, 3);
    ag_request_params p = request(ids, 20, -1);
    p.n_answers = 4;
    for (size_t i = 0; i < 18; i++) send_request(&clients[i], &p);
    client_wait_tokens(&clients[0], 2);
    ag_serving_destroy(serving);
    serving = NULL;
    for (size_t i = 0; i < 18; i++) {
        assert_true(clients[i].ended);
        assert_int_equal(clients[i].status, AG_CANCELLED);
        assert_int_equal(clients[i].behind_end, 0);
    }
}

static void full_queue_rejects_requests(void **state) {
    ag_serving_params sp = ag_serving_defaults();
    int32_t ids[20];
    ag_error err;
    (void)state;
    sp.max_running = 1;
    sp.max_waiting = 2;
    start_with(&sp);
    fill_ids(ids, 20, 3);
    ag_request_params p = request(ids, 20, -1);
    send_request(&clients[0], &p);
    client_wait_tokens(&clients[0], 1);
    send_request(&clients[1], &p);
    send_request(&clients[2], &p);
    assert_int_equal(client_send(&clients[3], serving, &p, &err), AG_BUSY);
    assert_non_null(strstr(err.msg, "2"));
    ag_serving_stats stats;
    ag_serving_get_stats(serving, &stats);
    assert_int_equal(stats.n_waiting, 2);
    assert_int_equal(stats.n_refused, 1);
    assert_int_equal(stats.n_requests, 3);
    ag_serving_cancel(serving, clients[1].id); /* a waiting request */
    finish(&clients[1], AG_CANCELLED);
    assert_false(clients[1].started);
    ag_serving_cancel(serving, clients[0].id);
    finish(&clients[0], AG_CANCELLED);
    client_wait_tokens(&clients[2], 1);
    ag_serving_cancel(serving, clients[2].id);
    finish(&clients[2], AG_CANCELLED);
}

static atomic_bool cancels_at_start;
int __real_pthread_mutex_unlock(pthread_mutex_t *m);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *m);

/* Cancels the first client's request when the engine thread first releases the mutex after it has
 * started. */
int __wrap_pthread_mutex_unlock(pthread_mutex_t *m) {
    const int st = __real_pthread_mutex_unlock(m);
    if (atomic_load(&cancels_at_start) && m == &serving->lock.os &&
        pthread_equal(pthread_self(), serving->thread.os) && clients[0].started) {
        atomic_store(&cancels_at_start, false);
        ag_serving_cancel(serving, clients[0].id);
    }
    return st;
}

static void cancels_a_request_while_it_starts(void **state) {
    int32_t ids[20];
    (void)state;
    fill_ids(ids, 20, 3);
    ag_request_params p = request(ids, 20, 900);
    atomic_store(&cancels_at_start, true);
    send_request(&clients[0], &p);
    finish(&clients[0], AG_CANCELLED);
    assert_false(atomic_load(&cancels_at_start));
    assert_true(clients[0].answers[0].n <= 1); /* chosen by the step that was running */
}

/* ---- failed steps ---- */

/* Retains one slot twice, so the eviction after the pass fails. */
static void select_wrongly(void *user, const ag_eviction_params *p, const ag_eviction_view *v,
                           uint32_t n_keep, uint32_t *keep) {
    (void)user, (void)p, (void)v;
    for (uint32_t i = 0; i < n_keep; i++) keep[i] = 0;
}

static const ag_eviction_policy wrong = {.name = "wrong", .select = select_wrongly};
static ag_request_params wrong_request;

static void send_wrong(client *c) {
    if (c->answers[0].n == 2) send_request(&clients[2], &wrong_request);
}

static void fails_beside(const ag_request_params *right) {
    ag_request_params p = *right;
    run_request(&clients[0], &p);
    client_destroy(&clients[1]);
    client_init(&clients[1]);
    client_destroy(&clients[2]);
    client_init(&clients[2]);
    clients[1].on_token = send_wrong;
    send_request(&clients[1], &p);
    finish(&clients[1], AG_OK);
    finish(&clients[2], AG_INVALID);
    assert_non_null(strstr(clients[2].error.msg, "keep"));
    same_answer(&clients[1].answers[0], &clients[0].answers[0], 1);
}

/* Requests of the same pass are not fed a token twice. */
static void failed_eviction_ends_only_its_own_request(void **state) {
    static int32_t ids[50], other[700];
    ag_serving_stats stats;
    (void)state;
    fill_ids(ids, 50, 3);
    fill_ids(other, 700, 4);
    ag_request_params p = request(ids, 50, 120);
    p.logprobs = p.no_prefix = true;
    p.sampling.temperature = 0;
    /* The eviction fails while it generates ... */
    wrong_request = request(other, 40, 100);
    wrong_request.session.eviction.policy = &wrong;
    wrong_request.session.eviction.budget_tokens = 60;
    wrong_request.session.eviction.slack = 0;
    wrong_request.n_answers = 3;
    fails_beside(&p);
    assert_true(clients[2].answers[0].n > 10);
    /* ... and while its prompt is read. */
    wrong_request.n_prompt = 700;
    wrong_request.session.eviction.prefill = AG_KV_PREFILL_BOUNDED;
    fails_beside(&p);
    assert_int_equal(clients[2].answers[0].n, 0);
    ag_serving_get_stats(serving, &stats);
    assert_int_equal(stats.n_prefix_entries, 0);
}

/* Copies of prompts count: with a policy a prompt may have any length. */
static void bounds_the_bytes_of_waiting_requests(void **state) {
    enum { LONG = 5 << 20, TOO_LONG = 17 << 20 }; /* tokens: 20 and 68 MiB */
    ag_serving_params sp = ag_serving_defaults();
    int32_t *ids = calloc(TOO_LONG, sizeof *ids);
    ag_error err;
    (void)state;
    assert_non_null(ids);
    sp.max_running = 1;
    start_with(&sp);
    ag_request_params first = request(ids, 20, -1), p = request(ids, TOO_LONG, 1);
    send_request(&clients[0], &first);
    client_wait_tokens(&clients[0], 1);
    p.session.eviction.policy = ag_eviction_policy_find("sliding");
    assert_int_equal(client_send(&clients[1], serving, &p, &err), AG_LIMIT);
    p.n_prompt = LONG;
    for (size_t i = 1; i <= 3; i++) send_request(&clients[i], &p);
    assert_int_equal(client_send(&clients[4], serving, &p, &err), AG_BUSY);
    assert_non_null(strstr(err.msg, "bytes"));
    /* Cancelled requests free their place. */
    ag_serving_cancel(serving, clients[2].id);
    finish(&clients[2], AG_CANCELLED);
    send_request(&clients[4], &p);
    for (size_t i = 0; i <= 4; i++) ag_serving_cancel(serving, clients[i].id);
    for (size_t i = 0; i <= 4; i++) assert_true(client_wait(&clients[i]));
    free(ids);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, start, stop)
    const struct CMUnitTest tests[] = {
        CASE(cancelled_request_ends_after_the_step),
        CASE(deadline_ends_a_request),
        CASE(cancels_a_request_while_it_starts),
        CASE(failed_eviction_ends_only_its_own_request),
        CASE(destroy_ends_running_and_waiting_requests),
        cmocka_unit_test_teardown(full_queue_rejects_requests, stop),
        cmocka_unit_test_teardown(bounds_the_bytes_of_waiting_requests, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
