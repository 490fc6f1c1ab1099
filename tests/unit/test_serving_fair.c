/* SPDX-License-Identifier: Apache-2.0 */
/* Serving engine: several clients share the queue, running answers and prompt rows. */
#include "serving/serving_impl.h"
#include "support/serving_demo.h"

#include <sched.h>

enum { WAITING = 8, HALF = WAITING / 2, PLACES = 4 };

static int32_t prompt[64];
static ag_status sent[MOST];
static char reasons[MOST][sizeof(((ag_error *)0)->msg)];

/* Submits the request of clients[i]. The prompts of two requests differ. */
static void submit(size_t i, const char *name, int64_t max_tokens) {
    ag_error err = {.msg = ""};
    ag_request_params p = request(prompt + i, 8, max_tokens);
    p.no_prefix = true;
    p.client = name;
    sent[i] = client_send(&clients[i], serving, &p, &err);
    memcpy(reasons[i], err.msg, sizeof reasons[i]);
}

static void assert_busy(size_t i, const char *reason) {
    assert_int_equal(sent[i], AG_BUSY);
    if (!strstr(reasons[i], reason)) fail_msg("request %zu: %s", i, reasons[i]);
}

static int start_small(void **state) {
    ag_serving_params p = ag_serving_defaults();
    (void)state;
    p.max_running = PLACES;
    p.max_waiting = WAITING;
    p.step_rows = 64;
    start_with(&p);
    fill_ids(prompt, 64, 1);
    return 0;
}

/* ---- queue ---- */

/* Runs on the engine thread: no request leaves the queue meanwhile. */
static void fill_queue(client *c) {
    if (c->answers[0].n != 1) return;
    for (size_t i = 1; i <= WAITING + 1; i++) submit(i, "a", 2);
    for (size_t i = WAITING + 2; i <= WAITING + 2 + HALF; i++) submit(i, "b", 2);
    submit(WAITING + HALF + 3, "a", 2);
}

static void client_leaves_half_of_the_queue_to_others(void **state) {
    const size_t first_b = WAITING + 2, last = WAITING + HALF + 3;
    ag_serving_stats stats;
    (void)state;
    clients[0].on_token = fill_queue;
    submit(0, "a", 30);
    finish(&clients[0], AG_OK);
    /* A single client has the entire queue. */
    for (size_t i = 1; i <= WAITING; i++) assert_int_equal(sent[i], AG_OK);
    assert_busy(WAITING + 1, "the queue is full: 8 of 8 requests are waiting");
    /* Another client gets half of the queue: the newest requests of the first one end for it. */
    for (size_t i = first_b; i < first_b + HALF; i++) assert_int_equal(sent[i], AG_OK);
    assert_busy(first_b + HALF, "this client has 4 waiting requests");
    assert_busy(first_b + HALF, "one client may use half of the queue's 8 places");
    assert_busy(last, "this client has 4 waiting requests");
    for (size_t i = 1; i <= HALF; i++) finish(&clients[i], AG_OK);
    for (size_t i = HALF + 1; i <= WAITING; i++) {
        finish(&clients[i], AG_BUSY);
        assert_non_null(strstr(clients[i].error.msg, "this request lost its place"));
    }
    for (size_t i = first_b; i < first_b + HALF; i++) finish(&clients[i], AG_OK);
    ag_serving_get_stats(serving, &stats);
    assert_int_equal(stats.n_waiting, 0);
    assert_int_equal(stats.n_refused, 3 + HALF);
    assert_int_equal(stats.n_failed, 0);
}

/* The bytes of requests are limited too: 2 MiB with a small memory limit. */
static ag_status take_bytes(ag_request_queue *q, ag_served_request *r, const char *name,
                            uint64_t kib) {
    r->client = ag_client_acquire(q, name);
    r->bytes = kib << 10;
    assert_non_null(r->client);
    const ag_status st = ag_client_reserve_place(q, r->client, r->bytes, NULL);
    if (st != AG_OK) {
        ag_client_release(q, r->client);
        return st;
    }
    ag_served_request **end = &q->waiting;
    while (*end) end = &(*end)->next;
    *end = r;
    return st;
}

static void client_leaves_half_of_the_queue_bytes_to_others(void **state) {
    const ag_serving_params params = {.max_waiting = 100, .memory_limit = 1 << 20};
    ag_request_queue q = {.params = &params};
    ag_served_request all[8] = {{.id = 0}};
    (void)state;
    for (size_t i = 0; i < 3; i++) assert_int_equal(take_bytes(&q, &all[i], "a", 600), AG_OK);
    assert_int_equal(take_bytes(&q, &all[3], "a", 600), AG_BUSY);
    assert_int_equal(take_bytes(&q, &all[3], "b", 600), AG_OK);
    assert_true(all[2].is_displaced);
    assert_false(all[1].is_displaced);
    assert_int_equal(q.waiting_bytes, 1800 << 10);
    assert_int_equal(take_bytes(&q, &all[4], "a", 1), AG_BUSY);
    assert_int_equal(take_bytes(&q, &all[4], "b", 600), AG_BUSY);
    assert_int_equal(take_bytes(&q, &all[4], "b", 200), AG_OK);
    for (size_t i = 0; i < 5; i++) {
        ag_client_release_place(&q, &all[i]);
        ag_client_release(&q, all[i].client);
    }
    assert_int_equal(q.n_waiting, 0);
    assert_int_equal(q.waiting_bytes, 0);
    assert_null(q.clients);
}

/* ---- many threads ---- */

enum { THREADS = 4, ROUNDS = 40 };

static atomic_size_t n_accepted, n_ended, n_failed;

static void count_end(void *user, const ag_request_event *e) {
    (void)user;
    if (e->kind != AG_REQUEST_ENDED) return;
    if (e->status != AG_OK && e->status != AG_BUSY) atomic_fetch_add(&n_failed, 1);
    atomic_fetch_add(&n_ended, 1);
}

/* Submits as fast as the queue takes requests. */
static void *submit_many(void *user) {
    const size_t which = (size_t)((int32_t *)user - prompt);
    char name[2] = {(char)('a' + which), '\0'};
    for (size_t i = 0; i < ROUNDS;) {
        ag_request_params p = request(prompt + which, 8, 1);
        p.client = name;
        p.event = count_end;
        if (ag_serving_submit(serving, &p, NULL, NULL) != AG_OK) {
            sched_yield();
            continue;
        }
        atomic_fetch_add(&n_accepted, 1);
        i++;
    }
    return NULL;
}

static void concurrent_clients_keep_counts_consistent(void **state) {
    pthread_t threads[THREADS];
    ag_serving_stats stats;
    (void)state;
    n_accepted = n_ended = n_failed = 0;
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, submit_many, prompt + i), 0);
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    ag_request_params last = request(prompt, 8, 1);
    while (client_send(&clients[0], serving, &last, NULL) == AG_BUSY) sched_yield();
    finish(&clients[0], AG_OK);
    while (n_ended < n_accepted) sched_yield();
    assert_int_equal(n_failed, 0);
    ag_serving_get_stats(serving, &stats);
    assert_int_equal(stats.n_waiting, 0);
    assert_int_equal(serving->queue.waiting_bytes, 0);
}

/* ---- running answers ---- */

static size_t n_begun, begun_as[MOST], n_running, max_running;

static void note_running(client *c) {
    const size_t n = c->answers[0].n;
    if (n == 1) {
        begun_as[c - clients] = ++n_begun;
        if (++n_running > max_running) max_running = n_running;
    }
    if (n == 3) n_running--;
}

static void send_many(client *c, size_t n_others) {
    if (c->answers[0].n != 1) return;
    for (size_t i = 1; i <= WAITING; i++) {
        clients[i].on_token = note_running;
        submit(i, i <= WAITING - n_others ? "a" : "b", 3);
    }
}

static void send_many_and_another(client *c) { send_many(c, 1); }
static void send_many_alone(client *c) { send_many(c, 0); }

static void run_many(void (*send)(client *c)) {
    n_begun = n_running = max_running = 0;
    clients[0].on_token = send;
    submit(0, "a", 100);
    for (size_t i = 0; i <= WAITING; i++) finish(&clients[i], AG_OK);
}

static void client_leaves_running_places_to_others(void **state) {
    (void)state;
    run_many(send_many_and_another);
    assert_in_range(begun_as[WAITING], 1, PLACES / 2);
}

static void single_client_uses_all_running_places(void **state) {
    (void)state;
    run_many(send_many_alone);
    assert_int_equal(max_running, PLACES - 1); /* besides the first request */
}

/* ---- prompt rows ---- */

enum { READERS = 4, LENGTH = 320, CHUNKS = LENGTH / 32 };

static int start_many_places(void **state) {
    ag_serving_params p = ag_serving_defaults();
    (void)state;
    p.step_rows = 64;
    start_with(&p);
    return 0;
}

static int32_t prompts[READERS + 1][LENGTH];
static size_t reads_of_others;

static void count_reads(client *c) {
    (void)c;
    for (size_t i = 1; i <= READERS; i++) reads_of_others += clients[i].n_reads;
}

/* The last request names a scope, which identifies its client. */
static void send_prompts(client *c) {
    if (c->answers[0].n != 1) return;
    for (size_t i = 0; i <= READERS; i++) {
        fill_ids(prompts[i], LENGTH, 10 + (unsigned)i);
        ag_request_params p = request(prompts[i], LENGTH, 1);
        p.no_prefix = true;
        p.scope = i < READERS ? "a" : "b";
        send_request(&clients[1 + i], &p);
    }
    clients[1 + READERS].on_token = count_reads;
}

static void clients_take_turns_with_prompt_chunks(void **state) {
    int32_t id = 30;
    (void)state;
    reads_of_others = 0;
    ag_request_params first = request(&id, 1, 1);
    clients[0].on_token = send_prompts;
    send_request(&clients[0], &first);
    for (size_t i = 0; i <= READERS + 1; i++) finish(&clients[i], AG_OK);
    assert_in_range(reads_of_others, CHUNKS - 4, CHUNKS + 4);
}

static void client_uses_half_of_a_step_while_others_read(void **state) {
    ag_serving_client a = {.n_reading = 3}, b = {.n_reading = 1};
    ag_served_request of_a = {.client = &a}, of_b = {.client = &b};
    const ag_serving_params params = {.step_rows = 64};
    ag_request_queue q = {.params = &params, .running = &of_a};
    (void)state;
    of_a.next = &of_b;
    assert_true(ag_client_reserve_rows(&q, &of_a, 4, 24));
    assert_false(ag_client_reserve_rows(&q, &of_a, 4, 9));
    assert_true(ag_client_reserve_rows(&q, &of_a, 4, 8));
    assert_true(ag_client_reserve_rows(&q, &of_b, 4, 32));
    assert_true(b.served > a.served);
    /* The prompts of the other client have been read. */
    assert_true(ag_client_reserve_rows(&q, &of_a, 3, 32));
    ag_client_begin_step(&q);
    assert_true(ag_client_reserve_rows(&q, &of_a, 4, 32));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(client_leaves_half_of_the_queue_to_others, start_small,
                                        stop),
        cmocka_unit_test(client_leaves_half_of_the_queue_bytes_to_others),
        cmocka_unit_test_setup_teardown(concurrent_clients_keep_counts_consistent, start_small,
                                        stop),
        cmocka_unit_test_setup_teardown(client_leaves_running_places_to_others, start_small, stop),
        cmocka_unit_test_setup_teardown(single_client_uses_all_running_places, start_small, stop),
        cmocka_unit_test_setup_teardown(clients_take_turns_with_prompt_chunks, start_many_places,
                                        stop),
        cmocka_unit_test(client_uses_half_of_a_step_while_others_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
