/* SPDX-License-Identifier: Apache-2.0 */
/* Who begins when: places for many answers, and prompts that begin with the same tokens. */
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

/* Which one each client was to have its first token; on the engine's thread. */
static size_t n_begun, place_of[MOST];

static void note_place(client *c) {
    if (c->answers[0].n == 1 && !place_of[c - clients]) place_of[c - clients] = ++n_begun;
}

static ag_request_params after_first[1 + SMALL];

/* On the engine's thread, so that all of them are there when it goes on. */
static void send_rest(client *c) {
    note_place(c);
    if (c->answers[0].n != 3) return;
    for (size_t i = 0; i <= SMALL && 1 + i < MOST; i++)
        send_request(&clients[1 + i], &after_first[i]);
}

/* All places are wanted by one, of which one is taken for long. */
static void small_requests_pass_a_large_one_for_a_while(void **state) {
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(small_requests_pass_a_large_one_for_a_while,
                                        start_with_few_places, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
