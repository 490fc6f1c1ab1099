/* SPDX-License-Identifier: Apache-2.0 */
/* Memory budget: requests that do not fit are rejected with numbers, and running ones stay below
 * the limit. */
#include "serving/serving_impl.h"
#include "support/sanitized.h"
#include "support/serving_demo.h"

#include <antigravity/process.h>
#include <dirent.h>
#include <malloc.h>
#include <unistd.h>

enum { CROWD = 24, LONGEST = 1200 };

static uint64_t occupied(void) {
    ag_memory_usage usage;
    assert_int_equal(ag_process_memory(&usage), AG_OK);
    return usage.anonymous;
}

#define WHOLE_DEMO AG_SOURCE_DIR "/models/demo"

/* The shallow model is five times as fast. The full one has sessions larger than the budget's
 * margins. */
static const char *served_path = WHOLE_DEMO;
static const char *prefix_dir; /* NULL: none */
static float replay_share;
static double swap_period_s = 30;

static ag_status start_within(uint64_t limit, ag_error *err) {
    ag_serving_params p = ag_serving_defaults();
    ag_served_model_params m = {.name = "demo",
                                .path = served_path,
                                .model = ag_model_defaults(),
                                .session = ag_session_defaults()};
    p.memory_limit = limit;
    p.prefix_dir = prefix_dir;
    p.replay_share = replay_share;
    p.swap_period_s = swap_period_s;
    p.replay_after_s = 0;
    p.step_rows = 128;
    p.backend.n_threads = 2;
    for (size_t i = 0; i < MOST; i++) client_init(&clients[i]);
    ag_status st = ag_serving_create(&p, &serving, err);
    return st == AG_OK ? ag_serving_add_model(serving, &m, &demo, err) : st;
}

static int stop_and_trim(void **state) {
    stop(state);
    malloc_trim(0);
    return 0;
}

static int reset(void **state) {
    served_path = WHOLE_DEMO;
    prefix_dir = NULL;
    swap_period_s = 30;
    return stop_and_trim(state);
}

/* Returns the limit that the message says suffices, in bytes. */
static uint64_t named_limit(const ag_error *err) {
    static const char before[] = "; a limit of ";
    const char *at = strstr(err->msg, before);
    if (!at) fail_msg("no number in: %s", err->msg);
    return (uint64_t)((strtod(at + strlen(before), NULL) + 0.1) * (1 << 20));
}

/* ---- memory watch ---- */

static pthread_t watcher;
static atomic_bool watching;
static uint64_t highest;

static void *watch(void *user) {
    (void)user;
    while (watching) {
        const uint64_t now = occupied();
        if (now > highest) highest = now;
        usleep(1000);
    }
    return NULL;
}

static void begin_watching(void) {
    highest = 0;
    watching = true;
    assert_int_equal(pthread_create(&watcher, NULL, watch, NULL), 0);
}

static void end_watching(uint64_t limit) {
    watching = false;
    pthread_join(watcher, NULL);
    if (highest > limit)
        fail_msg("%.2f MiB were occupied, the limit is %.2f", (double)highest / (1 << 20),
                 (double)limit / (1 << 20));
}

/* ---- */

static void names_the_smallest_limit_for_a_model(void **state) {
    ag_error err;
    (void)state;
    assert_int_equal(start_within(1 << 20, &err), AG_NOMEM);
    must(start_within(occupied() + (6 << 20), &err), &err);
    assert_int_equal(ag_serving_load_model(serving, demo, &err), AG_NOMEM);
    const uint64_t enough = named_limit(&err);
    stop_and_trim(state);
    must(start_within(enough, &err), &err);
    begin_watching();
    must(ag_serving_load_model(serving, demo, &err), &err);
    int32_t ids[60];
    fill_ids(ids, 60, 1);
    ag_request_params p = request(ids, 60, 40);
    must(client_send(&clients[0], serving, &p, &err), &err);
    assert_true(client_wait(&clients[0]));
    if (clients[0].status != AG_OK) fail_msg("%s", clients[0].error.msg);
    end_watching(enough);
}

static uint64_t loaded_with(uint64_t more) {
    ag_error err;
    must(start_within(occupied() + (6 << 20), &err), &err);
    assert_int_equal(ag_serving_load_model(serving, demo, &err), AG_NOMEM);
    const uint64_t limit = named_limit(&err) + more;
    stop_and_trim(NULL);
    must(start_within(limit, &err), &err);
    return limit;
}

static void crowd_twice(uint64_t limit, ag_serving_stats *stats) {
    static int32_t ids[CROWD][LONGEST];
    ag_error err;
    begin_watching();
    for (size_t round = 0; round < 2; round++) {
        for (size_t i = 0; i < CROWD; i++) {
            fill_ids(ids[i], LONGEST, (unsigned)(round * CROWD + i));
            ag_request_params p = request(ids[i], LONGEST - i * 20, 20);
            p.session.k_type = p.session.v_type = AG_F32;
            p.logprobs = p.prompt_logprobs = i % 3 == 0;
            client_destroy(&clients[i]);
            client_init(&clients[i]);
            must(client_send(&clients[i], serving, &p, &err), &err);
        }
        for (size_t i = 0; i < CROWD; i++) {
            assert_true(client_wait(&clients[i]));
            if (clients[i].status != AG_OK) fail_msg("request %zu: %s", i, clients[i].error.msg);
            assert_int_equal(clients[i].answers[0].n_generated, 20);
            assert_int_equal(clients[i].n_scored > 0, i % 3 == 0);
        }
    }
    end_watching(limit);
    ag_serving_get_stats(serving, stats);
    assert_int_equal(stats->memory_limit, limit);
    assert_true(stats->memory_peak <= limit && stats->memory_peak > stats->weight_bytes);
    assert_int_equal(stats->n_refused, 0);
}

static void many_long_prompts_stay_below_the_limit(void **state) {
    ag_serving_stats stats;
    (void)state;
    served_path = DEMO;
    const uint64_t limit = loaded_with(5 << 20); /* for 24 caches of 2.4 MB */
    crowd_twice(limit, &stats);
    assert_true(stats.n_prefix_entries > 0 && stats.n_prefix_entries < 2 * CROWD);
}

static void remove_files(const char *dir) {
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) unlinkat(dirfd(d), e->d_name, 0);
    if (d) closedir(d);
    assert_int_equal(rmdir(dir), 0);
}

/* Sessions that do not fit are written, and requests wait for their memory. */
static void writing_to_files_stays_below_the_limit(void **state) {
    char dir[] = "/tmp/ag-serving-memory-XXXXXX";
    ag_serving_stats stats;
    assert_non_null(mkdtemp(dir));
    prefix_dir = dir;
    served_path = DEMO;
    const uint64_t limit = loaded_with(6 << 20);
    crowd_twice(limit, &stats);
    assert_true(stats.n_prefix_written > CROWD);
    assert_int_equal(stats.n_prefix_failed, 0);
    prefix_dir = NULL;
    stop_and_trim(state);
    remove_files(dir);
}

static void ask(client *c, ag_request_params p) {
    ag_error err;
    client_destroy(c);
    client_init(c);
    must(client_send(c, serving, &p, &err), &err);
    assert_true(client_wait(c));
}

/* A file has a longer prefix than memory, which is full: the reload must not evict the prefix in
 * memory. */
static void keeps_a_prefix_while_a_longer_one_is_reloaded(void **state) {
    enum { SAVED = 1900, FOUND = 100, ASKED = 200, ROOM = 4 << 20, LITTLE = 25 << 20 };
    static int32_t ids[SAVED];
    char dir[] = "/tmp/ag-serving-memory-XXXXXX";
    ag_error err;
    assert_non_null(mkdtemp(dir));
    prefix_dir = dir;
    fill_ids(ids, SAVED, 7);
    loaded_with(40 << 20);
    ask(&clients[0], request(ids, SAVED, 2));
    stop_and_trim(state); /* writes the session of 10 MB to its file */
    loaded_with(40 << 20);
    must(ag_serving_load_model(serving, demo, &err), &err);
    serving->params.memory_limit = ag_memory_budget_used(&serving->budget);
    ask(&clients[0], request(ids, FOUND, 2));
    assert_int_equal(clients[0].status, AG_NOMEM);
    serving->params.memory_limit = named_limit(&clients[0].error) + ROOM;
    ask(&clients[0], request(ids, FOUND, 2));
    serving->params.memory_limit = ag_memory_budget_used(&serving->budget) + LITTLE;
    ask(&clients[1], request(ids, ASKED, 2));
    assert_int_equal(clients[0].status, AG_OK);
    assert_int_equal(clients[0].n_cached, 0);
    assert_int_equal(clients[1].status, AG_OK);
    assert_int_equal(clients[1].n_cached, FOUND);
    prefix_dir = NULL;
    stop_and_trim(state);
    remove_files(dir);
}

/* The request shares one block of a long session. The rest needs memory of its own, and the store
 * is full. */
static void short_common_prefix_reserves_its_own_memory(void **state) {
    enum { N_IDS = LONGEST / 2 };
    static int32_t ids[N_IDS];
    ag_serving_stats full, stats;
    ag_error err;
    (void)state;
    const uint64_t limit = loaded_with(8 << 20);
    begin_watching();
    for (unsigned i = 0; i < 12; i++) {
        if (i == 11) ag_serving_get_stats(serving, &full);
        fill_ids(ids, N_IDS, i < 11 ? 40 + i : 50);
        if (i == 11) fill_ids(ids + 130, N_IDS - 130, 60);
        ag_request_params p = request(ids, N_IDS, 20);
        p.session.k_type = p.session.v_type = AG_F32;
        must(client_send(&clients[i], serving, &p, &err), &err);
        assert_true(client_wait(&clients[i]));
        if (clients[i].status != AG_OK) fail_msg("request %u: %s", i, clients[i].error.msg);
    }
    end_watching(limit);
    ag_serving_get_stats(serving, &stats);
    assert_int_equal(clients[11].n_cached, 130);
    assert_true(full.n_prefix_entries > 1 && full.n_prefix_entries < 11);
    assert_true(stats.n_prefix_entries <= full.n_prefix_entries);
}

static void rejects_a_request_that_never_fits(void **state) {
    static int32_t ids[LONGEST];
    ag_error err;
    (void)state;
    loaded_with(2 << 20);
    fill_ids(ids, LONGEST, 5);
    ag_request_params p = request(ids, LONGEST, 500);
    p.session.k_type = p.session.v_type = AG_F32;
    must(client_send(&clients[0], serving, &p, &err), &err);
    assert_true(client_wait(&clients[0]));
    assert_int_equal(clients[0].status, AG_NOMEM);
    assert_non_null(strstr(clients[0].error.msg, "memory limit"));
    assert_false(clients[0].started);
    /* With an eviction budget it fits. */
    p.session.k_type = p.session.v_type = AG_F16;
    p.session.eviction.policy = ag_eviction_policy_find("sliding");
    p.session.eviction.window = 100;
    p.session.eviction.budget_tokens = 128;
    p.session.eviction.prefill = AG_KV_PREFILL_BOUNDED;
    must(client_send(&clients[1], serving, &p, &err), &err);
    assert_true(client_wait(&clients[1]));
    if (clients[1].status != AG_OK) fail_msg("%s", clients[1].error.msg);
    ag_serving_stats stats;
    ag_serving_get_stats(serving, &stats);
    assert_int_equal(stats.n_refused, 1);
}

static void unlimited_answer_ends_when_memory_is_full(void **state) {
    int32_t ids[60];
    ag_error err;
    (void)state;
    const uint64_t limit = loaded_with(0);
    begin_watching();
    fill_ids(ids, 60, 6);
    ag_request_params p = request(ids, 60, -1);
    p.session.k_type = p.session.v_type = AG_F32;
    must(client_send(&clients[0], serving, &p, &err), &err);
    assert_true(client_wait(&clients[0]));
    if (clients[0].status == AG_OK) {
        assert_int_equal(clients[0].answers[0].finish, AG_FINISH_CONTEXT);
        assert_true(clients[0].answers[0].n_generated < 2048 - 60);
    } else {
        assert_int_equal(clients[0].status, AG_NOMEM);
    }
    end_watching(limit);
}

static void unloads_an_idle_model_for_another(void **state) {
    ag_served_model_params m = {.name = "other",
                                .path = served_path,
                                .model = ag_model_defaults(),
                                .session = ag_session_defaults()};
    int32_t ids[60];
    ag_served_model *other;
    ag_serving_stats stats;
    ag_error err;
    (void)state;
    m.model.weights = AG_F32; /* larger weights */
    swap_period_s = 0;
    const uint64_t first = loaded_with(0);
    stop_and_trim(state);
    must(start_within(first + (45 << 20), &err), &err);
    must(ag_serving_add_model(serving, &m, &other, &err), &err);
    begin_watching();
    fill_ids(ids, 60, 6);
    uint64_t weights[4];
    for (size_t i = 0; i < 4; i++) {
        ag_request_params p = request(ids, 60, 3);
        p.model = i % 2 ? other : demo;
        must(client_send(&clients[i], serving, &p, &err), &err);
        assert_true(client_wait(&clients[i]));
        if (clients[i].status != AG_OK) fail_msg("request %zu: %s", i, clients[i].error.msg);
        ag_serving_get_stats(serving, &stats);
        weights[i] = stats.weight_bytes;
    }
    end_watching(first + (45 << 20));
    assert_int_equal(weights[0], weights[2]);
    assert_int_equal(weights[1], weights[3]);
    assert_true(weights[1] > weights[0]);
}

static void rejects_the_third_swap(void **state) {
    ag_served_model_params m = {.name = "other",
                                .path = served_path,
                                .model = ag_model_defaults(),
                                .session = ag_session_defaults()};
    int32_t ids[60];
    ag_served_model *other;
    ag_error err;
    (void)state;
    m.model.weights = AG_F32;
    const uint64_t first = loaded_with(0);
    stop_and_trim(state);
    must(start_within(first + (45 << 20), &err), &err);
    must(ag_serving_add_model(serving, &m, &other, &err), &err);
    fill_ids(ids, 60, 6);
    for (size_t i = 0; i < 4; i++) { /* the models of the third and of the fourth request differ */
        ag_request_params p = request(ids, 60, 3);
        p.model = i % 2 ? other : demo;
        must(client_send(&clients[i], serving, &p, &err), &err);
        finish(&clients[i], i == 2 ? AG_BUSY : AG_OK);
    }
    assert_true(clients[2].swap_wait_s > 0 && clients[2].swap_wait_s <= 30);
    assert_non_null(strstr(clients[2].error.msg, "2 models were loaded in the last 30 s"));
    assert_int_equal(ag_serving_load_model(serving, demo, &err), AG_BUSY);
    assert_true(ag_serving_swap_wait(serving) > 0);
    assert_true(ag_served_model_is_loaded(other));
}

/* ---- constraints ---- */

static ag_constraint *constraint_of(const char *regex) {
    ag_constraint_params p = ag_constraint_defaults(AG_CONSTRAINT_REGEX);
    const ag_constraint_vocab *vocab;
    ag_constraint *c;
    ag_error err;
    p.text = regex;
    p.len = strlen(regex);
    must(ag_served_model_vocab(demo, &vocab, &err), &err);
    must(ag_constraint_create(vocab, &p, &c, &err), &err);
    return c;
}

/* Returns the limit that suffices for a request that is too large, with and without a constraint.
 */
static uint64_t needed_for(const int32_t *ids, const char *regex) {
    ag_request_params p = request(ids, 4, 900);
    ag_error err;
    p.n_answers = 4;
    if (regex) p.constraint = constraint_of(regex);
    client_destroy(&clients[0]);
    client_init(&clients[0]);
    must(client_send(&clients[0], serving, &p, &err), &err);
    assert_true(client_wait(&clients[0]));
    assert_int_equal(clients[0].status, AG_NOMEM);
    return named_limit(&clients[0].error);
}

static void reserves_memory_before_constraints_grow(void **state) {
    int32_t ids[4];
    ag_error err;
    (void)state;
    fill_ids(ids, 4, 5);
    loaded_with(1 << 20);
    must(ag_serving_load_model(serving, demo, &err), &err);
    ag_constraint_destroy(constraint_of("a")); /* makes what all constraints share */
    const uint64_t without = needed_for(ids, NULL), with = needed_for(ids, "[a-z]{9}");
    if (with < without + (2 << 20) || with > without + (3 << 20))
        fail_msg("%.2f MiB, with a constraint %.2f", (double)without / (1 << 20),
                 (double)with / (1 << 20));
}

enum { TOKENS_BEFORE_LIMIT = 12, SPARE = 4 << 20 };
static uint64_t lowered_limit;

/* Runs on the engine thread. Leaves less than the constraint needs to be extended. */
static void lower_limit(client *c) {
    if (c->answers[0].n != TOKENS_BEFORE_LIMIT) return;
    lowered_limit = serving->params.memory_limit = ag_memory_budget_used(&serving->budget) + SPARE;
    begin_watching();
}

static void ends_a_request_when_its_constraint_outgrows_memory(void **state) {
    int32_t ids[4];
    ag_error err;
    (void)state;
    fill_ids(ids, 4, 6);
    loaded_with(32 << 20);
    must(ag_serving_load_model(serving, demo, &err), &err);
    ag_request_params p = request(ids, 4, 1000);
    p.constraint = constraint_of("[^a]{9000}");
    clients[0].on_token = lower_limit;
    send_request(&clients[0], &p);
    finish(&clients[0], AG_NOMEM);
    end_watching(lowered_limit);
    assert_true(clients[0].started);
    assert_non_null(strstr(clients[0].error.msg, "the constraint needs"));
    assert_true(clients[0].answers[0].n >= TOKENS_BEFORE_LIMIT);
}

/* ---- freed memory ---- */

static ag_status drop_entries(ag_serving *s, ag_serving_job *job, ag_error *err) {
    (void)job, (void)err;
    ag_prefix_store_drop_all(&s->prefixes.store);
    return AG_OK;
}

/* Caches conversations of alternating lengths, which fragments the heap. */
static void cache_many(size_t n, unsigned seed) {
    enum { N_IDS = LONGEST / 2 };
    static int32_t ids[N_IDS];
    for (size_t i = 0; i < n; i++) {
        fill_ids(ids, N_IDS, seed + (unsigned)i);
        ag_request_params p = request(ids, i % 3 ? N_IDS : 70 + i, 4);
        p.session.k_type = p.session.v_type = AG_F32;
        run_request(&clients[0], &p);
    }
}

static void dropped_sessions_return_their_memory(void **state) {
    ag_serving_stats stats;
    ag_error err;
    (void)state;
    start_engine(NULL);
    demo = add_model("demo", WHOLE_DEMO);
    cache_many(3, 100); /* fills the working heap */
    ag_serving_job job = {.run = drop_entries};
    must(ag_serving_run_job(serving, &job, &err), &err);
    const uint64_t base = occupied();
    cache_many(CROWD, 200);
    ag_serving_get_stats(serving, &stats);
    assert_int_equal(stats.n_prefix_entries, CROWD);
    const uint64_t full = occupied();
    assert_true(full > base + (64 << 20));
    ag_serving_job again = {.run = drop_entries};
    must(ag_serving_run_job(serving, &again, &err), &err);
    const uint64_t after = occupied(), twentieth = base / 20, least = 16 << 20;
    if (after > base + (twentieth > least ? twentieth : least))
        fail_msg("%.2f MiB are occupied, of %.2f with sessions and %.2f before",
                 (double)after / (1 << 20), (double)full / (1 << 20), (double)base / (1 << 20));
}

/* Cached sessions fill the limit, so each replay must evict one. */
static void replays_stay_below_the_limit(void **state) {
    enum { N = 12, TOKENS = 640 };
    static int32_t ids[TOKENS];
    ag_serving_stats stats;
    (void)state;
    replay_share = 1;
    const uint64_t limit = loaded_with(14 << 20);
    begin_watching();
    for (unsigned i = 0; i < N; i++) {
        fill_ids(ids, TOKENS, 900 + i);
        ag_request_params p = request(ids, TOKENS, 2);
        run_request(&clients[0], &p);
    }
    for (int i = 0; i < 6000; i++) {
        ag_serving_get_stats(serving, &stats);
        if (stats.n_replays >= 3) break;
        usleep(10000);
    }
    assert_true(stats.n_replays >= 3);
    end_watching(limit);
    replay_share = 0;
    assert_int_equal(stats.n_refused, 0);
    assert_true(stats.n_prefix_entries >= 2 && stats.memory_peak <= limit);
}

int main(void) {
#if SANITIZED
    puts("sanitizers take memory of their own");
    return 77;
#endif
    ag_memory_usage usage;
    if (ag_process_memory(&usage) != AG_OK) return 77;
#define CASE(f) cmocka_unit_test_teardown(f, reset)
    const struct CMUnitTest tests[] = {
        CASE(names_the_smallest_limit_for_a_model),
        CASE(many_long_prompts_stay_below_the_limit),
        CASE(writing_to_files_stays_below_the_limit),
        CASE(keeps_a_prefix_while_a_longer_one_is_reloaded),
        CASE(short_common_prefix_reserves_its_own_memory),
        CASE(rejects_a_request_that_never_fits),
        CASE(unlimited_answer_ends_when_memory_is_full),
        CASE(unloads_an_idle_model_for_another),
        CASE(rejects_the_third_swap),
        CASE(dropped_sessions_return_their_memory),
        CASE(replays_stay_below_the_limit),
        CASE(reserves_memory_before_constraints_grow),
        CASE(ends_a_request_when_its_constraint_outgrows_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
