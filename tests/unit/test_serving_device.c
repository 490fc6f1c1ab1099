/* SPDX-License-Identifier: Apache-2.0 */
/* Usage: test_serving_device BACKEND
 *
 * Serving on a device: batched answers get the tokens that each gets alone. */
#include "core/backend_ops.h"
#include "core/block_pool.h"
#include "serving/serving_impl.h"
#include "session/session_impl.h"
#include "support/named_backend.h"
#include "support/serving_demo.h"

#include <time.h>

enum { N = 4, TOKENS = 24 };

static ag_serving_params params;

static int start_device(void **state) {
    (void)state;
    start_with(&params);
    return 0;
}

/* Prompts have one token: chunks of several prompts share a pass. */
static void batched_requests_match_single_ones(void **state) {
    (void)state;
    static client alone[N];
    static const int32_t prompts[N] = {20, 300, 411, 1000};
    ag_request_params p[N];
    for (size_t i = 0; i < N; i++) {
        p[i] = request(&prompts[i], 1, TOKENS);
        p[i].no_prefix = true;
        client_init(&alone[i]);
        run_request(&alone[i], &p[i]);
    }
    ag_serving_stats before, after;
    ag_serving_get_stats(serving, &before);
    for (size_t i = 0; i < N; i++) send_request(&clients[i], &p[i]);
    for (size_t i = 0; i < N; i++) {
        finish(&clients[i], AG_OK);
        same_answer(&clients[i].answers[0], &alone[i].answers[0], i);
        client_destroy(&alone[i]);
    }
    ag_serving_get_stats(serving, &after);
    assert_int_equal(after.n_rows - before.n_rows, after.n_steps - before.n_steps);
}

static uint64_t count_launches(const char *kernel) {
    ag_launch_info kinds[128];
    uint64_t sum = 0;
    size_t n;
    assert_int_equal(ag_backend_launches(serving->backend, kinds, 128, &n), AG_OK);
    for (size_t i = 0; i < n && i < 128; i++) {
        if (!strncmp(kinds[i].name, kernel, strlen(kernel))) sum += kinds[i].n;
    }
    return sum;
}

static int start_wide(void **state) {
    params.wide_steps = true;
    return start_device(state);
}

static int stop_wide(void **state) {
    params.wide_steps = false;
    return stop(state);
}

static atomic_bool is_held, may_continue;

static ag_status wait_for_requests(ag_serving *s, ag_serving_job *job, ag_error *err) {
    const struct timespec pause = {.tv_nsec = 1000000};
    (void)s, (void)job, (void)err;
    atomic_store(&is_held, true);
    while (!atomic_load(&may_continue)) nanosleep(&pause, NULL);
    return AG_OK;
}

static void *hold_engine(void *user) {
    ag_serving_job job = {.run = wait_for_requests};
    (void)user;
    ag_serving_run_job(serving, &job, NULL);
    return NULL;
}

/* Sends all requests before the engine begins any. */
static void send_together(ag_request_params *p) {
    const struct timespec pause = {.tv_nsec = 1000000};
    pthread_t thread;
    atomic_store(&is_held, false);
    atomic_store(&may_continue, false);
    assert_int_equal(pthread_create(&thread, NULL, hold_engine, NULL), 0);
    while (!atomic_load(&is_held)) nanosleep(&pause, NULL);
    for (size_t i = 0; i < N; i++) send_request(&clients[i], &p[i]);
    atomic_store(&may_continue, true);
    pthread_join(thread, NULL);
}

/* Sampled and greedy answers, and one with logprobs, whose tokens are chosen on the host. */
static void wide_steps_choose_tokens_on_the_device(void **state) {
    (void)state;
    static client alone[N];
    static const int32_t prompts[N] = {20, 300, 411, 1000};
    ag_request_params p[N];
    ag_serving_stats before, after;
    for (size_t i = 0; i < N; i++) {
        p[i] = request(&prompts[i], 1, TOKENS);
        p[i].no_prefix = true;
        p[i].sampling.temperature = i == 1 ? 0 : 1;
        p[i].sampling.top_k = 30;
        p[i].sampling.seed = i;
        p[i].logprobs = i == 3;
        client_init(&alone[i]);
        run_request(&alone[i], &p[i]);
    }
    assert_true(count_launches("take_best") >= 3 * (TOKENS - 2));
    ag_serving_get_stats(serving, &before);
    send_together(p);
    for (size_t i = 0; i < N; i++) {
        finish(&clients[i], AG_OK);
        same_answer(&clients[i].answers[0], &alone[i].answers[0], i);
        client_destroy(&alone[i]);
    }
    ag_serving_get_stats(serving, &after);
    assert_true(after.n_steps - before.n_steps < (after.n_rows - before.n_rows) / 2);
    assert_in_range(count_launches("take_best"), TOKENS - 2, 2 * TOKENS);
}

static atomic_size_t n_on_host, n_on_device;

/* The session still has the logits from which the token was chosen. */
static void count_location(client *c) {
    const ag_served_request *r = serving->queue.running;
    while (r && r->p.user != c) r = r->next;
    if (!r || r->session || !r->answers[0].session) return;
    const bool on_host = r->answers[0].session->logits.location == AG_LOGITS_ON_HOST;
    atomic_fetch_add(on_host ? &n_on_host : &n_on_device, 1);
}

/* With logprobs, tokens are chosen on the host. The prompt's logits are there, too. */
static void wide_steps_choose_constrained_tokens_on_the_device(void **state) {
    (void)state;
    static client alone[N];
    static const int32_t prompts[N] = {20, 300, 411, 1000};
    static const char *const texts[N] = {"[a-z ]+", "( [A-Z][a-z]+)+\\.", NULL,
                                         "([0-9]{3} [a-z]+ )+"};
    ag_request_params p[N];
    for (int on_device = 0; on_device < 2; on_device++) {
        for (size_t i = 0; i < N; i++) {
            p[i] = request(&prompts[i], 1, TOKENS);
            p[i].no_prefix = true;
            p[i].sampling.temperature = i == 1 ? 0 : 1;
            p[i].sampling.top_k = 30;
            p[i].sampling.repetition_penalty = i == 3 ? 1.2f : 1;
            p[i].sampling.seed = i;
            p[i].logprobs = !on_device;
            if (texts[i]) p[i].constraint = demo_constraint(AG_CONSTRAINT_REGEX, texts[i], 0);
            if (!on_device) {
                client_init(&alone[i]);
                run_request(&alone[i], &p[i]);
            }
            clients[i].on_token = count_location;
        }
    }
    (void)count_launches("");
    send_together(p);
    for (size_t i = 0; i < N; i++) {
        finish(&clients[i], AG_OK);
        assert_int_equal(clients[i].answers[0].n, alone[i].answers[0].n);
        for (size_t t = 0; t < alone[i].answers[0].n; t++)
            assert_int_equal(clients[i].answers[0].ids[t], alone[i].answers[0].ids[t]);
        client_destroy(&alone[i]);
    }
    assert_true(atomic_load(&n_on_host) <= N);
    assert_true(atomic_load(&n_on_device) >= N * (TOKENS / 2));
}

static void reserves_the_growth_of_the_block_pool(void **state) {
    (void)state;
    static const int32_t id = 20;
    ag_served_request r = {.p = request(&id, 1, TOKENS)};
    ag_session_params p = demo->session;
    ag_session_plan plan;
    ag_error err;
    const ag_memory *mem = ag_backend_memory(serving->backend);
    r.p.model = demo;
    r.p.n_answers = 1;
    must(ag_memory_budget_plan_request(&serving->budget, &r, &err), &err);
    p.max_seq_len = 2 * AG_KV_BLOCK; /* one block per head and one that is copied on write */
    must(ag_session_plan_memory(&demo->info, &p, &plan, &err), &err);
    const size_t most = ag_block_pool_max_bytes(mem, plan.kv_bytes);
    assert_true(most > plan.kv_bytes + plan.kv_bytes / 32);
    assert_int_equal(r.kv_reserved, most);
}

/* Adding the model fails, not its requests. */
static void rejects_models_with_spilling_sessions(void **state) {
    (void)state;
    const ag_spill_params spill = {.path = "/tmp"};
    ag_served_model_params m = {.name = "spills",
                                .path = DEMO,
                                .model = ag_model_defaults(),
                                .session = ag_session_defaults()};
    ag_served_model *out;
    ag_error err;
    m.session.eviction.policy = ag_eviction_policy_find("streaming");
    m.session.eviction.spill = &spill;
    assert_int_equal(ag_serving_add_model(serving, &m, &out, &err), AG_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "/tmp: cannot spill from a cache in device memory"));
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "opencl";
    ag_backend *there = open_backend(name, 1);
    if (!there) return EXIT_SKIPPED;
    ag_backend_destroy(there);
    params = ag_serving_defaults();
    params.backend.name = name;
    params.backend.time_launches = true;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reserves_the_growth_of_the_block_pool, start_device, stop),
        cmocka_unit_test_setup_teardown(rejects_models_with_spilling_sessions, start_device, stop),
        cmocka_unit_test_setup_teardown(batched_requests_match_single_ones, start_device, stop),
        cmocka_unit_test_setup_teardown(wide_steps_choose_tokens_on_the_device, start_wide,
                                        stop_wide),
        cmocka_unit_test_setup_teardown(wide_steps_choose_constrained_tokens_on_the_device,
                                        start_wide, stop_wide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
