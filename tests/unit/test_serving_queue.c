/* SPDX-License-Identifier: Apache-2.0 */
/* Admission: places for many answers, and prompts with a common prefix. */
#include "support/serving_demo.h"

enum { PLACES = 4, SMALL = 20, MOST_BEFORE = 2 * PLACES };

/* ---- places ---- */

static int start_with_few_places(void **state) {
    ag_serving_params p = ag_serving_defaults();
    (void)state;
    p.max_running = PLACES;
    start_with(&p);
    return 0;
}

/* Order in which clients got their first token; set on the engine thread. */
static size_t n_begun, place_of[MOST];

static void note_place(client *c) {
    if (c->answers[0].n == 1 && !place_of[c - clients]) place_of[c - clients] = ++n_begun;
}

static ag_request_params after_first[1 + SMALL];

/* Runs on the engine thread, so the engine finds all requests in its next step. */
static void send_rest(client *c) {
    note_place(c);
    if (c->answers[0].n != 3) return;
    for (size_t i = 0; i <= SMALL && 1 + i < MOST; i++)
        send_request(&clients[1 + i], &after_first[i]);
}

/* One request needs all places; another one occupies a place for long. */
static void small_requests_overtake_a_large_one_for_a_while(void **state) {
    int32_t ids[30];
    size_t n = SMALL < MOST - 2 ? SMALL : MOST - 2, n_before = 0;
    (void)state;
    fill_ids(ids, 30, 1);
    memset(place_of, 0, sizeof place_of);
    n_begun = 0;
    for (size_t i = 0; i <= n; i++) {
        after_first[i] = request(ids + i, 8, 3);
        after_first[i].no_prefix = true;
        clients[1 + i].on_token = note_place;
    }
    after_first[0].n_answers = PLACES;
    ag_request_params first = request(ids, 8, 300);
    clients[0].on_token = send_rest;
    send_request(&clients[0], &first);
    for (size_t i = 0; i <= n + 1; i++) finish(&clients[i], AG_OK);
    for (size_t i = 2; i <= n + 1; i++) n_before += place_of[i] < place_of[1];
    assert_int_equal(n_before, MOST_BEFORE);
}

/* ---- common prefixes ---- */

enum { TOGETHER = 8, COMMON = 700, OWN = 30, CHUNK = 256 };

static int32_t alike[TOGETHER][COMMON + OWN];
static ag_request_params same_beginning[TOGETHER];

static void send_together(client *c) {
    if (c->answers[0].n > 1) return;
    for (size_t i = 0; i < TOGETHER; i++) send_request(&clients[i], &same_beginning[i]);
}

/* Sends all requests from the engine thread, so they begin in one step. */
static void begin_together(void) {
    int32_t id = 30;
    for (size_t i = 0; i < TOGETHER; i++) {
        fill_ids(alike[i], COMMON, 3);
        fill_ids(alike[i] + COMMON, OWN, 50 + (unsigned)i);
        same_beginning[i] = request(alike[i], COMMON + OWN, 12);
        same_beginning[i].logprobs = true;
        same_beginning[i].sampling.seed = i;
        same_beginning[i].scope = "anna";
    }
    ag_request_params first = request(&id, 1, 1);
    clients[TOGETHER].on_token = send_together;
    send_request(&clients[TOGETHER], &first);
    finish(&clients[TOGETHER], AG_OK);
}

static void common_prefix_is_read_once(void **state) {
    static client_answer together[TOGETHER];
    ag_serving_stats stats;
    (void)state;
    begin_together();
    for (size_t i = 0; i < TOGETHER; i++) {
        finish(&clients[i], AG_OK);
        together[i] = clients[i].answers[0];
        assert_int_equal(clients[i].n_cached, i ? COMMON / CHUNK * CHUNK : 0);
    }
    ag_serving_get_stats(serving, &stats);
    assert_int_equal(stats.n_cached_tokens, (TOGETHER - 1) * (COMMON / CHUNK * CHUNK));
    /* The answers have the same bits as single requests. */
    for (size_t i = 0; i < TOGETHER; i++) {
        same_beginning[i].no_prefix = true;
        run_request(&clients[i], &same_beginning[i]);
        same_answer(&together[i], &clients[i].answers[0], i);
    }
}

/* The remaining requests do not wait for a cancelled reader. */
static void waits_again_when_the_reader_is_cancelled(void **state) {
    (void)state;
    begin_together();
    ag_serving_cancel(serving, clients[0].id);
    assert_true(client_wait(&clients[0]));
    for (size_t i = 1; i < TOGETHER; i++) {
        finish(&clients[i], AG_OK);
        assert_int_equal(clients[i].answers[0].n, 12);
    }
}

static void scopes_do_not_wait_for_each_other(void **state) {
    static char names[TOGETHER][8];
    (void)state;
    int32_t id = 30;
    begin_together();
    for (size_t i = 0; i < TOGETHER; i++) finish(&clients[i], AG_OK);
    for (size_t i = 0; i < TOGETHER; i++) {
        snprintf(names[i], sizeof names[i], "key %zu", i);
        same_beginning[i].scope = names[i];
        client_destroy(&clients[i]);
        client_init(&clients[i]);
    }
    ag_request_params first = request(&id, 1, 1);
    client_destroy(&clients[TOGETHER]);
    client_init(&clients[TOGETHER]);
    clients[TOGETHER].on_token = send_together;
    send_request(&clients[TOGETHER], &first);
    finish(&clients[TOGETHER], AG_OK);
    for (size_t i = 0; i < TOGETHER; i++) {
        finish(&clients[i], AG_OK);
        assert_int_equal(clients[i].n_cached, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(small_requests_overtake_a_large_one_for_a_while,
                                        start_with_few_places, stop),
        cmocka_unit_test_setup_teardown(common_prefix_is_read_once, start, stop),
        cmocka_unit_test_setup_teardown(waits_again_when_the_reader_is_cancelled, start, stop),
        cmocka_unit_test_setup_teardown(scopes_do_not_wait_for_each_other, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
