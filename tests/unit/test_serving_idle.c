/* SPDX-License-Identifier: Apache-2.0 */
/* Idle work: cached sessions are compressed while no request runs, and can still be continued. */
#include "serving/serving_impl.h"
#include "support/serving_demo.h"

#include <dirent.h>
#include <time.h>
#include <unistd.h>

/* Replays start at once and repeat the entire text. */
static ag_serving_params replaying(void) {
    ag_serving_params p = ag_serving_defaults();
    p.replay_share = 1;
    p.replay_keep_ratio = 0.25f;
    p.replay_after_s = 0;
    return p;
}

static int start_replaying(void **state) {
    (void)state;
    const ag_serving_params p = replaying();
    start_with(&p);
    return 0;
}

static ag_request_params ask(const talk *t, int64_t max_tokens) {
    ag_request_params p = request(t->ids, t->n, max_tokens);
    p.sampling.temperature = 0;
    return p;
}

static ag_serving_stats stats_now(void) {
    ag_serving_stats st;
    ag_serving_get_stats(serving, &st);
    return st;
}

/* Returns false after a minute. */
static bool wait_replays(uint64_t n) {
    for (int i = 0; i < 6000 && stats_now().n_replays < n; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    return stats_now().n_replays >= n;
}

/* Finds the only cached session, or the one with n_tokens tokens. */
typedef struct look {
    size_t n_tokens;
    ag_resident_session found;
} look;

static bool take_figures(void *user, const ag_resident_session *h) {
    look *l = user;
    if (!l->n_tokens || h->n_tokens == l->n_tokens) l->found = *h;
    return true;
}

static ag_resident_session held_of(size_t n_tokens) {
    look l = {.n_tokens = n_tokens};
    ag_serving_each_session(serving, take_figures, &l);
    return l.found;
}

static void remove_files(const char *dir) {
    char path[512];
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (e->d_name[0] != '.') assert_int_equal(unlink(path), 0);
    }
    if (d) closedir(d);
    assert_int_equal(rmdir(dir), 0);
}

/* ---- tests ---- */

static void idle_session_is_compressed_and_continues(void **state) {
    talk t = {.seed = 1};
    (void)state;
    say(&t, 700);
    ag_request_params p = ask(&t, 5);
    run_request(&clients[0], &p);
    assert_true(wait_replays(1));
    const ag_resident_session small = held_of(0);
    /* A quarter of 2,048 slots as a mean over heads: heads retain different numbers of blocks. */
    const uint64_t full = small.kv_bytes + stats_now().replay_bytes;
    assert_true(small.kv_bytes < full / 2);
    hear(&t, &clients[0].answers[0]);
    const size_t before = t.n;
    say(&t, 9);
    p = ask(&t, 5);
    run_request(&clients[1], &p);
    assert_int_equal(clients[1].n_cached, before - 1);
    assert_int_equal(clients[1].answers[0].n, 5);
    /* The session has its target size: no replay follows the next turn. */
    ag_error err;
    must(ag_serving_load_model(serving, demo, &err), &err);
    assert_int_equal(stats_now().n_replays, 1);
    assert_true(held_of(0).kv_bytes < full / 2);
}

/* Compression evicted parts of the prefix, so other requests do not use it. */
static void request_with_the_same_prefix_reads_it_again(void **state) {
    talk t = {.seed = 2}, other;
    (void)state;
    say(&t, 700);
    ag_request_params p = ask(&t, 3);
    run_request(&clients[0], &p);
    assert_true(wait_replays(1));
    other = t;
    other.n = 600;
    other.seed = 77;
    say(&other, 30);
    p = ask(&other, 8);
    run_request(&clients[1], &p);
    assert_int_equal(clients[1].n_cached, 0);
    p.no_prefix = true;
    run_request(&clients[2], &p);
    same_answer(&clients[1].answers[0], &clients[2].answers[0], 1);
}

static void compressed_session_stays_marked_after_a_restart(void **state) {
    static char dir[] = "/tmp/ag-idle-XXXXXX";
    ag_serving_params p = replaying();
    talk t = {.seed = 9}, other;
    p.prefix_dir = mkdtemp(dir);
    start_with(&p);
    say(&t, 700);
    ag_request_params r = ask(&t, 3);
    run_request(&clients[0], &r);
    assert_true(wait_replays(1));
    other = t;
    hear(&t, &clients[0].answers[0]);
    const size_t before = t.n;
    say(&t, 9);
    stop(state);
    start_with(&p);
    other.n = 600;
    other.seed = 77;
    say(&other, 30);
    r = ask(&other, 3);
    run_request(&clients[0], &r);
    assert_int_equal(clients[0].n_cached, 0);
    r = ask(&t, 3);
    run_request(&clients[1], &r);
    assert_int_equal(clients[1].n_cached, before - 1);
    stop(state);
    remove_files(dir);
}

static void keeps_short_and_managed_sessions_unchanged(void **state) {
    talk few = {.seed = 3}, managed = {.seed = 4}, t = {.seed = 5};
    (void)state;
    say(&few, 300);
    say(&managed, 600);
    say(&t, 800);
    ag_request_params p = ask(&few, 2);
    run_request(&clients[0], &p);
    p = ask(&managed, 2);
    p.session.eviction.policy = ag_eviction_policy_find("keydiff");
    p.session.eviction.budget_tokens = 590;
    run_request(&clients[1], &p);
    const ag_resident_session a = held_of(few.n + 1), b = held_of(managed.n + 1);
    assert_true(a.kv_bytes > 0 && b.kv_bytes > 0);
    p = ask(&t, 2);
    run_request(&clients[2], &p);
    assert_true(wait_replays(1)); /* the others were cached before this one */
    assert_int_equal(held_of(few.n + 1).kv_bytes, a.kv_bytes);
    assert_int_equal(held_of(managed.n + 1).kv_bytes, b.kv_bytes);
    assert_int_equal(stats_now().n_replays, 1);
}

/* Requests arrive during replays and interrupt them. Answers do not change, and in the end every
 * session is compressed. */
static void request_interrupts_a_replay(void **state) {
    enum { N = 6 };
    static talk talks[N];
    static client_answer alone[N];
    (void)state;
    for (size_t i = 0; i < N; i++) {
        talks[i] = (talk){.seed = 50 + (unsigned)i};
        say(&talks[i], 520);
        ag_request_params p = ask(&talks[i], 6);
        p.no_prefix = p.logprobs = true;
        run_request(&clients[0], &p);
        alone[i] = clients[0].answers[0];
    }
    for (size_t i = 0; i < N; i++) {
        ag_request_params p = ask(&talks[i], 6);
        p.logprobs = true;
        run_request(&clients[i], &p);
        same_answer(&clients[i].answers[0], &alone[i], i);
    }
    assert_true(wait_replays(N));
    assert_int_equal(stats_now().n_replays_failed, 0);
}

static void rejects_invalid_replay_shares(void **state) {
    ag_serving_params p = replaying();
    ag_serving *s;
    ag_error err;
    (void)state;
    p.replay_share = 1.5f;
    assert_int_equal(ag_serving_create(&p, &s, &err), AG_INVALID);
    p = replaying();
    p.replay_keep_ratio = 0;
    assert_int_equal(ag_serving_create(&p, &s, &err), AG_INVALID);
    assert_non_null(strstr(err.msg, "keep"));
    p.replay_keep_tokens = 100;
    must(ag_serving_create(&p, &s, &err), &err);
    ag_serving_destroy(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(idle_session_is_compressed_and_continues, start_replaying,
                                        stop),
        cmocka_unit_test_setup_teardown(request_with_the_same_prefix_reads_it_again,
                                        start_replaying, stop),
        cmocka_unit_test(compressed_session_stays_marked_after_a_restart),
        cmocka_unit_test_setup_teardown(keeps_short_and_managed_sessions_unchanged, start_replaying,
                                        stop),
        cmocka_unit_test_setup_teardown(request_interrupts_a_replay, start_replaying, stop),
        cmocka_unit_test(rejects_invalid_replay_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
