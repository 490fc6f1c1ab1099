/* SPDX-License-Identifier: Apache-2.0 */
/* Served sessions that spill: answers equal those of a plain session, cached sessions can be
 * continued, and no file remains. */
#include "support/serving_demo.h"

#include <dirent.h>
#include <unistd.h>

enum { PROMPT = 60, FIRST = 160, MORE = 20, SECOND = 60, BUDGET = 48, SLACK = 16 };

static char dir[] = "/tmp/ag_serving_spill_XXXXXX";
static ag_spill_params spill = {.path = dir, .exact = true};

static ag_session_params settings(bool spills) {
    ag_session_params p = ag_session_defaults();
    p.max_seq_len = 512;
    p.k_type = p.v_type = AG_F32;
    p.eviction.policy = ag_eviction_policy_find("streaming");
    p.eviction.budget_tokens = BUDGET;
    p.eviction.slack = SLACK;
    p.eviction.recent = 8;
    p.eviction.prefill = AG_KV_PREFILL_WHOLE;
    if (spills) p.eviction.spill = &spill;
    return p;
}

static int begin(void **state) {
    ag_serving_params p = ag_serving_defaults();
    (void)state;
    p.backend.n_threads = 2;
    start_with(&p);
    return 0;
}

static int32_t best_of(ag_session *s, size_t n_vocab) {
    const float *logits = ag_session_logits(s);
    size_t best = 0;
    for (size_t i = 1; i < n_vocab; i++) best = logits[i] > logits[best] ? i : best;
    return (int32_t)best;
}

/* Runs the two turns in a plain session. Returns the number of reloaded slots. */
static uint64_t said_alone(const int32_t *prompt, const int32_t *more, bool spills, int32_t *first,
                           int32_t *second) {
    const ag_session_params p = settings(spills);
    const ag_backend_params bp = {.n_threads = 2};
    ag_backend *be;
    ag_model *model;
    ag_session *s;
    ag_spill_stats stats;
    ag_error err;
    must(ag_backend_create(&bp, &be, &err), &err);
    must(ag_model_load(be, DEMO, NULL, &model, &err), &err);
    must(ag_session_create(model, &p, &s, &err), &err);
    const size_t n_vocab = ag_session_model_info(s)->n_vocab;
    must(ag_session_prefill(s, prompt, PROMPT, NULL, NULL, &err), &err);
    for (size_t i = 0; i < FIRST; i++) {
        first[i] = best_of(s, n_vocab);
        if (i + 1 < FIRST) must(ag_session_decode(s, first[i], &err), &err);
    }
    int32_t next[1 + MORE]; /* the last token of an answer is not fed yet */
    next[0] = first[FIRST - 1];
    memcpy(next + 1, more, MORE * sizeof *more);
    must(ag_session_prefill(s, next, 1 + MORE, NULL, NULL, &err), &err);
    for (size_t i = 0; i < SECOND; i++) {
        second[i] = best_of(s, n_vocab);
        must(ag_session_decode(s, second[i], &err), &err);
    }
    ag_session_spilled(s, &stats);
    ag_session_destroy(s);
    ag_model_destroy(model);
    ag_backend_destroy(be);
    return stats.n_reloaded;
}

static void expect_ids(const client_answer *a, const int32_t *want, size_t n) {
    assert_int_equal(a->n, n);
    for (size_t i = 0; i < n; i++)
        if (a->ids[i] != want[i]) fail_msg("token %zu of %zu", i, n);
}

static ag_request_params spilling(const int32_t *ids, size_t n, int64_t max_tokens) {
    ag_request_params p = request(ids, n, max_tokens);
    p.session = settings(true);
    p.sampling.temperature = 0;
    p.sampling.repetition_penalty = 1;
    return p;
}

static size_t files_in_dir(void) {
    DIR *d = opendir(dir);
    size_t n = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void turns_match_a_spilling_session(void **state) {
    static int32_t ids[PROMPT + FIRST + MORE], more[MORE];
    static int32_t first[FIRST], second[SECOND], lost_first[FIRST], lost[SECOND];
    (void)state;
    fill_ids(ids, PROMPT, 3);
    fill_ids(more, MORE, 5);
    assert_true(said_alone(ids, more, true, first, second) > 0);
    assert_int_equal(said_alone(ids, more, false, lost_first, lost), 0);
    assert_memory_not_equal(second, lost, sizeof lost); /* otherwise reloading would not matter */
    ag_request_params p = spilling(ids, PROMPT, FIRST);
    run_request(&clients[0], &p);
    expect_ids(&clients[0].answers[0], first, FIRST);
    memcpy(ids + PROMPT, first, sizeof first);
    memcpy(ids + PROMPT + FIRST, more, sizeof more);
    ag_request_params q = spilling(ids, PROMPT + FIRST + MORE, SECOND);
    q.n_answers = 2; /* forks share the blocks in the file */
    run_request(&clients[0], &q);
    assert_true(clients[0].n_cached >= PROMPT + FIRST - 1);
    for (size_t i = 0; i < 2; i++) expect_ids(&clients[0].answers[i], second, SECOND);
    assert_int_equal(files_in_dir(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(turns_match_a_spilling_session, begin, stop),
    };
    if (!mkdtemp(dir)) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(dir);
    return failed;
}
