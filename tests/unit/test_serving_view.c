/* SPDX-License-Identifier: Apache-2.0 */
/* Cache view: positions that a resident session retains. */
#include "support/serving_client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DEMO AG_SERVED_DEMO
enum { N_PROMPT = 300, BUDGET = 64 };

static ag_serving *serving;
static ag_served_model *demo;
static client asker;
static int32_t prompt[N_PROMPT];

static void must(ag_status st, const ag_error *err) {
    if (st != AG_OK) fail_msg("%s: %s", ag_status_name(st), err->msg);
}

static int start(void **state) {
    ag_served_model_params m = {.name = "demo",
                                .path = DEMO,
                                .model = ag_model_defaults(),
                                .session = ag_session_defaults()};
    ag_error err;
    (void)state;
    must(ag_serving_create(NULL, &serving, &err), &err);
    must(ag_serving_add_model(serving, &m, &demo, &err), &err);
    client_init(&asker);
    for (size_t i = 0; i < N_PROMPT; i++) prompt[i] = (int32_t)(10 + (i * 7919) % 3000);
    return 0;
}

static int stop(void **state) {
    (void)state;
    ag_serving_destroy(serving);
    client_destroy(&asker);
    return 0;
}

static ag_request_params request(const char *policy, const char *scope, int64_t max_tokens) {
    ag_request_params p = ag_request_defaults(demo);
    p.prompt = prompt;
    p.n_prompt = N_PROMPT;
    p.max_tokens = max_tokens;
    p.ignore_eos = true;
    p.scope = scope;
    p.session.eviction.policy = ag_eviction_policy_find(policy);
    p.session.eviction.budget_tokens = BUDGET;
    return p;
}

static void run_request(ag_request_params *p) {
    ag_error err;
    must(client_send(&asker, serving, p, &err), &err);
    assert_true(client_wait(&asker));
    must(asker.status, &asker.error);
}

static ag_cache_view *view_of(uint64_t id, const char *scope) {
    ag_cache_view *v;
    ag_error err;
    must(ag_serving_view_session(serving, id, scope, &v, &err), &err);
    assert_int_equal(v->id, id);
    assert_ptr_equal(v->model, demo);
    return v;
}

/* Returns the slots of a head. Its runs must ascend, not overlap, and be within the consumed
 * tokens. */
static uint32_t count_slots(const ag_cache_view *v, const ag_cache_head_view *h) {
    uint32_t n = 0, end = 0;
    assert_true(h->first_run + h->n_runs <= v->n_runs);
    for (size_t i = 0; i < h->n_runs; i++) {
        const ag_cache_run *r = &v->runs[h->first_run + i];
        assert_true(r->n > 0 && r->position >= end + (i > 0));
        end = r->position + r->n;
        n += r->n;
    }
    assert_true(end <= v->n_tokens);
    return n;
}

static void check_shape(const ag_cache_view *v) {
    const ag_model_info *info = ag_served_model_info(demo);
    uint32_t n_heads = 0;
    assert_int_equal(v->n_layers, info->n_layers);
    for (uint32_t l = 0; l < v->n_layers; l++) {
        assert_int_equal(v->layers[l].first_head, n_heads);
        n_heads += v->layers[l].n_heads;
    }
    assert_int_equal(v->n_heads, n_heads);
    assert_int_equal(v->n_ids, v->n_tokens);
    assert_memory_equal(v->ids, prompt, (v->n_tokens < N_PROMPT ? v->n_tokens : N_PROMPT) * 4);
}

static void shows_all_positions_without_a_policy(void **state) {
    ag_request_params p = request("none", NULL, 20);
    (void)state;
    p.session.eviction.budget_tokens = 0;
    run_request(&p);
    ag_cache_view *v = view_of(asker.id, NULL);
    check_shape(v);
    assert_false(v->is_running);
    assert_string_equal(v->policy, "none");
    assert_int_equal(v->budget, 0);
    assert_int_equal(v->n_evicted, 0);
    assert_int_equal(v->n_tokens, N_PROMPT + 19);
    assert_int_equal(v->ids[N_PROMPT], asker.answers[0].ids[0]);
    for (uint32_t h = 0; h < v->n_heads; h++) {
        assert_int_equal(v->heads[h].n_runs, 1);
        assert_int_equal(v->runs[v->heads[h].first_run].position, 0);
        assert_int_equal(count_slots(v, &v->heads[h]), v->n_tokens);
    }
    assert_int_equal(v->n_runs, 1); /* shared by all heads */
    assert_true(v->kv_bytes > 0);
    ag_cache_view_destroy(v);
}

/* StreamingLLM retains the sinks and the newest tokens. */
static void shows_sinks_and_newest_positions_of_streaming(void **state) {
    ag_request_params p = request("streaming", NULL, 150);
    (void)state;
    run_request(&p);
    ag_cache_view *v = view_of(asker.id, NULL);
    check_shape(v);
    assert_string_equal(v->policy, "streaming");
    assert_int_equal(v->budget, BUDGET);
    assert_int_equal(v->n_protected, 4);
    assert_true(v->n_evictions > 0 && v->n_evicted > 0);
    for (uint32_t h = 0; h < v->n_heads; h++) {
        const ag_cache_run *r = &v->runs[v->heads[h].first_run];
        assert_int_equal(v->heads[h].n_runs, 2);
        assert_int_equal(r[0].position, 0);
        assert_int_equal(r[0].n, 4);
        assert_int_equal(r[1].position + r[1].n, v->n_tokens);
        assert_int_equal(count_slots(v, &v->heads[h]) + v->n_evicted, v->n_tokens);
    }
    ag_cache_view_destroy(v);
}

/* Each head selects its own positions; their number is the budget. */
static void shows_the_positions_of_each_head(void **state) {
    ag_request_params p = request("keydiff", NULL, 10);
    bool differ = false;
    (void)state;
    run_request(&p);
    ag_cache_view *v = view_of(asker.id, NULL);
    check_shape(v);
    for (uint32_t h = 0; h < v->n_heads; h++) {
        const uint32_t n = count_slots(v, &v->heads[h]);
        assert_true(n >= BUDGET && n <= BUDGET + p.session.eviction.slack);
        differ = differ || v->heads[h].first_run != v->heads[0].first_run;
    }
    assert_true(differ);
    ag_cache_view_destroy(v);
}

static void shows_a_running_session_between_steps(void **state) {
    ag_request_params p = request("streaming", NULL, 900);
    ag_error err;
    (void)state;
    must(client_send(&asker, serving, &p, &err), &err);
    client_wait_tokens(&asker, 5);
    ag_cache_view *first = view_of(asker.id, NULL);
    assert_true(first->is_running);
    check_shape(first);
    client_wait_tokens(&asker, 200);
    ag_cache_view *second = view_of(asker.id, NULL);
    check_shape(second);
    assert_true(second->n_tokens > first->n_tokens);
    assert_true(second->n_evictions > first->n_evictions);
    ag_serving_cancel(serving, asker.id);
    assert_true(client_wait(&asker));
    ag_cache_view_destroy(first);
    ag_cache_view_destroy(second);
}

static void hides_sessions_of_other_scopes(void **state) {
    ag_request_params p = request("none", "alice", 4);
    ag_cache_view *v;
    ag_error err, unknown;
    (void)state;
    run_request(&p);
    v = view_of(asker.id, "alice");
    ag_cache_view_destroy(v);
    assert_int_equal(ag_serving_view_session(serving, asker.id, "bob", &v, &err), AG_NOT_FOUND);
    assert_null(v);
    assert_int_equal(ag_serving_view_session(serving, asker.id, NULL, &v, NULL), AG_NOT_FOUND);
    /* An unknown id gets the same message. */
    assert_int_equal(ag_serving_view_session(serving, 999999, "bob", &v, &unknown), AG_NOT_FOUND);
    assert_non_null(strstr(unknown.msg, "session 999999 not found"));
    assert_non_null(strstr(err.msg, "session 1 not found"));
}

/* Answers of a request share its prefix; each session has its own id. */
static bool add_id(void *user, const ag_resident_session *h) {
    uint64_t *ids = user;
    size_t i = 1;
    for (; i <= ids[0]; i++) assert_int_not_equal(ids[i], h->id);
    assert_true(i < 8);
    ids[0] = i;
    ids[i] = h->id;
    return true;
}

static void cached_sessions_have_unique_ids(void **state) {
    ag_request_params p = request("none", NULL, 6);
    uint64_t ids[8] = {0};
    (void)state;
    p.n_answers = 3;
    p.sampling.temperature = 2; /* three different answers */
    p.sampling.min_p = 0;
    run_request(&p);
    /* A view waits for the engine, which has published by then. */
    ag_cache_view_destroy(view_of(asker.id, NULL));
    ag_cache_view_destroy(view_of(asker.id, NULL));
    ag_serving_each_session(serving, add_id, ids);
    assert_int_equal(ids[0], 3);
    for (size_t i = 1; i <= 3; i++) ag_cache_view_destroy(view_of(ids[i], NULL));
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, start, stop)
    const struct CMUnitTest tests[] = {
        CASE(shows_all_positions_without_a_policy),
        CASE(shows_sinks_and_newest_positions_of_streaming),
        CASE(shows_the_positions_of_each_head),
        CASE(shows_a_running_session_between_steps),
        CASE(hides_sessions_of_other_scopes),
        CASE(cached_sessions_have_unique_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
