/* SPDX-License-Identifier: Apache-2.0 */
/* Prefix cache: reuse of cached sessions, isolation by scope, and eviction. */
#include "serving/serving_impl.h"
#include "support/serving_demo.h"

#include <sys/stat.h>
#include <unistd.h>

#define GOLDEN AG_GOLDEN_MODELS "/"
/* The models have no windows; windows of 24 tokens in most layers; a state in most layers. */
static const char *const paths[] = {AG_SOURCE_DIR "/models/demo", GOLDEN "gemma3", GOLDEN "lfm2",
                                    GOLDEN "qwen3.5"};
enum { N_MODELS = 4 };

static ag_served_model *models[N_MODELS], *model; /* model: of the current test */
static char system_root[32];

static void start_models(const ag_serving_params *p) {
    start_engine(p);
    for (size_t i = 0; i < N_MODELS; i++) {
        char name[16];
        snprintf(name, sizeof name, "model-%zu", i);
        models[i] = add_model(name, paths[i]);
    }
    model = models[0];
}

static int start_all(void **state) {
    (void)state;
    start_models(NULL);
    return 0;
}

static ag_request_params ask(const talk *t, const char *scope, int64_t max_tokens) {
    ag_request_params p = ag_request_defaults(model);
    p.prompt = t->ids;
    p.n_prompt = t->n;
    p.scope = scope;
    p.max_tokens = max_tokens;
    p.ignore_eos = p.logprobs = true;
    p.sampling.temperature = 0;
    p.sampling.repetition_penalty = 1;
    return p;
}

static void same_ids(const client_answer *a, const client_answer *b) {
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, a->n * sizeof *a->ids);
}

/* A reused prefix may round differently; the tokens must still be those of the same conversation.
 */
static void close_logprobs(const client_answer *a, const client_answer *b, float most) {
    assert_true(a->n && b->n);
    for (size_t i = 0; i < a->n && a->ids[i] == b->ids[i]; i++) {
        const float d = a->logprobs[i] - b->logprobs[i];
        if (!(d < most && d > -most))
            fail_msg("logprob %zu is %g, read anew %g", i, (double)a->logprobs[i],
                     (double)b->logprobs[i]);
    }
}

/* ---- conversations ---- */

static void turn_reads_only_its_new_tokens(void **state) {
    (void)state;
    for (size_t m = 0; m < N_MODELS; m++) {
        talk t = {.seed = 1};
        size_t before = 0;
        model = models[m];
        for (size_t turn = 0; turn < 5; turn++) {
            say(&t, turn ? 9 : 300);
            ag_request_params p = ask(&t, "anna", 7);
            run_request(&clients[0], &p);
            /* All but the last token of the answer, which was not fed. */
            assert_int_equal(clients[0].n_cached, turn ? before - 1 : 0);
            p.no_prefix = true;
            run_request(&clients[1], &p);
            assert_int_equal(clients[1].n_cached, 0);
            close_logprobs(&clients[0].answers[0], &clients[1].answers[0], 0.3f);
            hear(&t, &clients[0].answers[0]);
            before = t.n;
        }
    }
}

/* The answer returns with other tokens, for example without its reasoning. */
static void changed_answer_costs_only_its_own_tokens(void **state) {
    (void)state;
    for (size_t m = 0; m < N_MODELS; m++) {
        talk t = {.seed = 2};
        model = models[m];
        say(&t, 280);
        ag_request_params p = ask(&t, "anna", 400); /* farther than a state can be truncated */
        run_request(&clients[0], &p);
        const size_t end = t.n;
        say(&t, 12);
        p = ask(&t, "anna", 5);
        run_request(&clients[0], &p);
        /* The first new tokens may equal those of the answer by chance. */
        if (clients[0].n_cached < end || clients[0].n_cached > end + 2)
            fail_msg("model %zu: %zu of %zu tokens were there", m, clients[0].n_cached, end);
        p.no_prefix = true;
        run_request(&clients[1], &p);
        close_logprobs(&clients[0].answers[0], &clients[1].answers[0], 0.3f);
    }
}

static void repeated_prompt_reads_one_token(void **state) {
    talk t = {.seed = 3};
    (void)state;
    say(&t, 100);
    ag_request_params p = ask(&t, NULL, 4);
    run_request(&clients[0], &p);
    run_request(&clients[1], &p);
    assert_int_equal(clients[1].n_cached, 99);
    same_ids(&clients[0].answers[0], &clients[1].answers[0]);
}

static void two_continuations_of_a_prefix_stay_separate(void **state) {
    talk a = {.seed = 4}, b;
    (void)state;
    say(&a, 300);
    ag_request_params p = ask(&a, "anna", 1);
    run_request(&clients[0], &p);
    b = a;
    b.seed = 99;
    say(&a, 50);
    say(&b, 50);
    ag_request_params pa = ask(&a, "anna", 20), pb = ask(&b, "anna", 20);
    ag_error err;
    must(client_send(&clients[1], serving, &pa, &err), &err);
    must(client_send(&clients[2], serving, &pb, &err), &err);
    assert_true(client_wait(&clients[1]) && client_wait(&clients[2]));
    assert_int_equal(clients[1].n_cached, 300);
    assert_int_equal(clients[2].n_cached, 300);
    pa.no_prefix = pb.no_prefix = true;
    run_request(&clients[3], &pa);
    run_request(&clients[4], &pb);
    close_logprobs(&clients[1].answers[0], &clients[3].answers[0], 0.3f);
    close_logprobs(&clients[2].answers[0], &clients[4].answers[0], 0.3f);
}

/* ---- scopes ---- */

static void scopes_do_not_share_sessions(void **state) {
    talk t = {.seed = 5};
    (void)state;
    say(&t, 200);
    ag_request_params p = ask(&t, "anna", 4);
    run_request(&clients[0], &p);
    p.scope = "bert";
    run_request(&clients[1], &p);
    assert_int_equal(clients[1].n_cached, 0);
    p.scope = NULL;
    run_request(&clients[2], &p);
    assert_int_equal(clients[2].n_cached, 0);
    p.scope = "anna";
    run_request(&clients[3], &p);
    assert_int_equal(clients[3].n_cached, 199);
    same_ids(&clients[0].answers[0], &clients[1].answers[0]);
}

/* The session of the other scope is running. */
static void running_sessions_are_used_only_by_their_scope(void **state) {
    talk t = {.seed = 6};
    ag_error err;
    (void)state;
    say(&t, 200);
    ag_request_params p = ask(&t, "anna", 800);
    must(client_send(&clients[0], serving, &p, &err), &err);
    client_wait_tokens(&clients[0], 1);
    p.max_tokens = 2;
    run_request(&clients[1], &p);
    assert_int_equal(clients[1].n_cached, 199);
    p.scope = "bert";
    run_request(&clients[2], &p);
    assert_int_equal(clients[2].n_cached, 0);
    assert_false(clients[0].ended);
    ag_serving_cancel(serving, clients[0].id);
    assert_true(client_wait(&clients[0]));
}

static void other_parameters_do_not_share_sessions(void **state) {
    talk t = {.seed = 7};
    (void)state;
    say(&t, 200);
    ag_request_params p = ask(&t, NULL, 4);
    run_request(&clients[0], &p);
    ag_request_params q = p;
    q.session.k_type = AG_Q8_0;
    run_request(&clients[1], &q);
    assert_int_equal(clients[1].n_cached, 0);
    q = p;
    q.session.eviction.policy = ag_eviction_policy_find("sliding");
    q.session.eviction.budget_tokens = 100;
    run_request(&clients[1], &q);
    assert_int_equal(clients[1].n_cached, 0);
    q = p;
    q.session.eviction.policy = ag_eviction_policy_find("keydiff");
    q.session.eviction.budget_tokens = 1000;
    run_request(&clients[1], &q);
    q.session.eviction.head_budget = AG_HEAD_BUDGET_ADAPTIVE;
    run_request(&clients[1], &q);
    assert_int_equal(clients[1].n_cached, 0);
    q = p;
    q.session.max_seq_len = 1024;
    run_request(&clients[1], &q);
    assert_int_equal(clients[1].n_cached, 0);
    run_request(&clients[1], &p);
    assert_int_equal(clients[1].n_cached, 199);
}

/* ---- policies ---- */

static void evicted_conversation_continues(void **state) {
    talk t = {.seed = 8};
    (void)state;
    say(&t, 400);
    ag_request_params p = ask(&t, "anna", 30);
    p.session.eviction.policy = ag_eviction_policy_find("sliding");
    p.session.eviction.window = 100;
    p.session.eviction.budget_tokens = 128;
    p.n_system = 20;
    run_request(&clients[0], &p);
    const size_t end = t.n + clients[0].answers[0].n;
    talk other = t;
    hear(&t, &clients[0].answers[0]);
    say(&t, 10);
    p.prompt = t.ids;
    p.n_prompt = t.n;
    run_request(&clients[1], &p);
    assert_int_equal(clients[1].n_cached, end - 1);
    /* A session with evictions cannot be shared. */
    other.seed = 1234;
    say(&other, 20);
    p.prompt = other.ids;
    p.n_prompt = other.n;
    run_request(&clients[2], &p);
    assert_int_equal(clients[2].n_cached, 0);
}

/* ---- eviction ---- */

static size_t n_prefix_entries(ag_serving_stats *stats) {
    ag_serving_get_stats(serving, stats);
    return stats->n_prefix_entries;
}

static void evicts_idle_and_short_sessions_first(void **state) {
    ag_serving_params sp = ag_serving_defaults();
    talk talks[6];
    ag_serving_stats stats;
    (void)state;
    sp.prefix_bytes = 6 << 20;
    start_models(&sp);
    for (size_t i = 0; i < 6; i++) {
        talks[i] = (talk){.seed = (unsigned)i + 20};
        say(&talks[i], 250);
        ag_request_params p = ask(&talks[i], NULL, 1);
        run_request(&clients[0], &p);
    }
    const size_t n = n_prefix_entries(&stats);
    assert_true(n >= 1 && n < 6);
    assert_true(stats.prefix_bytes > 0 && stats.prefix_bytes <= sp.prefix_bytes);
    ag_request_params p = ask(&talks[5], NULL, 1);
    run_request(&clients[0], &p);
    assert_int_equal(clients[0].n_cached, 249);
    p = ask(&talks[0], NULL, 1);
    run_request(&clients[0], &p);
    assert_int_equal(clients[0].n_cached, 0);
}

/* Simulates a system with this much available memory. */
static ag_sys_monitor *system_with(unsigned mib) {
    char root[] = "/tmp/ag-serving-prefix-XXXXXX", proc[64], path[80];
    ag_sys_monitor *m;
    ag_error err;
    assert_non_null(mkdtemp(root));
    snprintf(proc, sizeof proc, "%s/proc", root);
    snprintf(path, sizeof path, "%s/meminfo", proc);
    assert_int_equal(mkdir(proc, 0700), 0);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "MemAvailable:   %u kB\n", mib * 1024);
    fclose(f);
    must(ag_sys_monitor_create(root, &m, &err), &err);
    strcpy(system_root, root);
    return m;
}

static int stop_system(void **state) {
    char path[80];
    stop(state);
    snprintf(path, sizeof path, "%s/proc/meminfo", system_root);
    unlink(path);
    snprintf(path, sizeof path, "%s/proc", system_root);
    rmdir(path);
    return rmdir(system_root);
}

/* No limit is set: part of the available memory is used. */
static void uses_a_share_of_free_memory_without_limits(void **state) {
    ag_serving_stats stats;
    (void)state;
    start_models(NULL);
    ag_sys_monitor_destroy(serving->prefixes.monitor);
    serving->prefixes.monitor = system_with(12);
    for (unsigned i = 0; i < 8; i++) {
        talk t = {.seed = i + 40};
        say(&t, 250);
        ag_request_params p = ask(&t, NULL, 1);
        run_request(&clients[0], &p);
    }
    const size_t n = n_prefix_entries(&stats);
    assert_true(n >= 1 && n < 8);
    assert_true(stats.prefix_bytes <= 5 << 20); /* x <= (12 MiB + x) / 4, rounded up */
}

static void keeps_no_session_without_space(void **state) {
    ag_serving_params sp = ag_serving_defaults();
    talk t = {.seed = 30};
    ag_serving_stats stats;
    (void)state;
    sp.prefix_bytes = 0;
    start_models(&sp);
    say(&t, 100);
    ag_request_params p = ask(&t, NULL, 1);
    run_request(&clients[0], &p);
    run_request(&clients[0], &p);
    assert_int_equal(clients[0].n_cached, 0);
    assert_int_equal(n_prefix_entries(&stats), 0);
}

/* A conversation is one entry, after any number of turns. */
static bool count_sessions(void *user, const ag_resident_session *h) {
    size_t *n = user;
    assert_string_equal(h->scope, "anna");
    assert_string_equal(h->model, "model-0");
    assert_false(h->is_running);
    assert_true(h->n_tokens > 100 && h->kv_bytes > 0 && h->n_slots == h->n_tokens);
    assert_string_equal(h->policy, "none");
    (*n)++;
    return true;
}

static void conversation_is_cached_once(void **state) {
    talk t = {.seed = 31};
    ag_serving_stats stats;
    size_t n = 0;
    (void)state;
    for (size_t turn = 0; turn < 4; turn++) {
        say(&t, turn ? 9 : 100);
        ag_request_params p = ask(&t, "anna", 7);
        run_request(&clients[0], &p);
        hear(&t, &clients[0].answers[0]);
    }
    assert_int_equal(n_prefix_entries(&stats), 1);
    ag_serving_each_session(serving, count_sessions, &n);
    assert_int_equal(n, 1);
    assert_int_equal(stats.n_prompt_tokens - stats.n_cached_tokens, 100 + 3 * 10);
}

static bool find_first(void *user, const ag_resident_session *h) {
    uint32_t *n_tokens = user;
    if (h->id == clients[0].id && !*n_tokens) *n_tokens = h->n_tokens;
    else assert_true(h->id != clients[0].id); /* one id per session */
    return true;
}

/* The conversation has the request's id, not the copy at the end of its prompt. */
static void conversation_has_the_id_of_its_request(void **state) {
    (void)state;
    for (size_t m = 0; m < N_MODELS; m++) {
        talk t = {.seed = 32};
        uint32_t n_tokens = 0;
        model = models[m];
        say(&t, 100);
        ag_request_params p = ask(&t, "anna", 60);
        run_request(&clients[0], &p);
        ag_serving_each_session(serving, find_first, &n_tokens);
        assert_int_equal(n_tokens, 100 + 60 - 1);
    }
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, start_all, stop)
    const struct CMUnitTest tests[] = {
        CASE(turn_reads_only_its_new_tokens),
        CASE(changed_answer_costs_only_its_own_tokens),
        CASE(repeated_prompt_reads_one_token),
        CASE(two_continuations_of_a_prefix_stay_separate),
        CASE(scopes_do_not_share_sessions),
        CASE(running_sessions_are_used_only_by_their_scope),
        CASE(other_parameters_do_not_share_sessions),
        CASE(evicted_conversation_continues),
        cmocka_unit_test_teardown(evicts_idle_and_short_sessions_first, stop),
        cmocka_unit_test_teardown(uses_a_share_of_free_memory_without_limits, stop_system),
        cmocka_unit_test_teardown(keeps_no_session_without_space, stop),
        CASE(conversation_is_cached_once),
        CASE(conversation_has_the_id_of_its_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
