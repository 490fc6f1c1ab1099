/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the order of work items: large ones never take the last worker. */
#include "serve/threads/worker.h"

#include <event2/event.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_LARGE = 4, N_SMALL = 20 };

typedef struct test_job {
    work_item job;
    sem_t *gate; /* the item waits here; NULL: it does not wait */
    atomic_int *order;
    int ended_as;
} test_job;

static void work(work_item *job) {
    test_job *t = (test_job *)job;
    if (t->gate) sem_wait(t->gate);
    t->ended_as = atomic_fetch_add(t->order, 1);
}

typedef struct bench {
    struct event_base *base;
    loop_queue *queue;
    workers *workers;
    size_t n_done, n_expected;
} bench;

static bench now;

static void done(work_item *job) {
    (void)job;
    if (++now.n_done == now.n_expected) event_base_loopbreak(now.base);
}

static void add(test_job *t, bool is_large, sem_t *gate, atomic_int *order) {
    *t = (test_job){.job = {.work = work, .done = done, .is_large = is_large},
                    .gate = gate,
                    .order = order,
                    .ended_as = -1};
    assert_true(workers_add(now.workers, &t->job));
}

static void wait_for(size_t n) {
    now.n_expected = n;
    if (now.n_done < n) event_base_loop(now.base, EVLOOP_NO_EXIT_ON_EMPTY);
}

static void open_bench(size_t n_threads, size_t max_jobs) {
    now = (bench){.base = event_base_new()};
    now.queue = loop_queue_create(now.base);
    now.workers = workers_create(now.queue, n_threads, max_jobs);
    assert_non_null(now.workers);
}

static void close_bench(void) {
    workers_destroy(now.workers);
    loop_queue_destroy(now.queue);
    event_base_free(now.base);
}

/* Four large items cannot end before all small ones have. */
static void small_items_overtake_large_ones(void **state) {
    (void)state;
    sem_t gate;
    atomic_int order = 0;
    test_job large[N_LARGE], small[N_SMALL];
    sem_init(&gate, 0, 0);
    open_bench(2, 256);
    for (size_t i = 0; i < N_LARGE; i++) add(&large[i], true, &gate, &order);
    for (size_t i = 0; i < N_SMALL; i++) add(&small[i], false, NULL, &order);
    wait_for(N_SMALL);
    for (size_t i = 0; i < N_SMALL; i++) assert_int_equal(small[i].ended_as, i);
    for (size_t i = 0; i < N_LARGE; i++) sem_post(&gate);
    wait_for(N_SMALL + N_LARGE);
    for (size_t i = 0; i < N_LARGE; i++) assert_int_equal(large[i].ended_as, N_SMALL + i);
    close_bench();
    sem_destroy(&gate);
}

/* An older large item runs before a younger small one if both may run. */
static void runs_items_in_order_with_one_worker(void **state) {
    (void)state;
    sem_t gate;
    atomic_int order = 0;
    test_job jobs[6];
    sem_init(&gate, 0, 0);
    open_bench(1, 256);
    for (size_t i = 0; i < 6; i++) add(&jobs[i], i % 2, &gate, &order);
    for (size_t i = 0; i < 6; i++) sem_post(&gate);
    wait_for(6);
    for (size_t i = 0; i < 6; i++) assert_int_equal(jobs[i].ended_as, i);
    close_bench();
    sem_destroy(&gate);
}

static void finishes_waiting_items_on_destroy(void **state) {
    (void)state;
    sem_t gate;
    atomic_int order = 0;
    test_job jobs[5];
    sem_init(&gate, 0, 0);
    open_bench(3, 256);
    for (size_t i = 0; i < 5; i++) add(&jobs[i], true, &gate, &order);
    for (size_t i = 0; i < 5; i++) sem_post(&gate);
    workers_destroy(now.workers);
    assert_int_equal(order, 5);
    now.workers = NULL;
    close_bench();
    assert_int_equal(now.n_done, 5);
    sem_destroy(&gate);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_items_overtake_large_ones),
        cmocka_unit_test(runs_items_in_order_with_one_worker),
        cmocka_unit_test(finishes_waiting_items_on_destroy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
