/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed sessions: they continue as any other session, and a failed compression changes
 * nothing. */
#include "support/failing_allocator.h"
#include "unit/compressed_session.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#define STATES AG_GOLDEN_MODELS "/lfm2"

/* ---- continuation ---- */

static void same_slots(ag_session *a, ag_session *b) {
    for (uint32_t head = 0; head < HEADS; head++) {
        assert_int_equal(n_slots(a, head), n_slots(b, head));
        for (uint32_t i = 0; i < n_slots(a, head); i++)
            assert_int_equal(position(a, head, i), position(b, head, i));
    }
}

/* Continues both sessions and compares them. */
static void same_sessions(ag_session *a, ag_session *b) {
    const size_t bytes = model->info.n_vocab * sizeof(float);
    for (size_t i = 0; i < 12; i++) {
        same_slots(a, b);
        feed(a, 1);
        feed(b, 1);
        assert_memory_equal(ag_session_logits(a), ag_session_logits(b), bytes);
    }
}

static void head_maxima_are_the_largest_scores(void **state) {
    (void)state;
    ag_session *s = reader_of(model, "keydiff"), *other = reader_of(model, "keydiff");
    const ag_compress_params p = params(0.25f, 1);
    ag_slot_scores scores;
    size_t n_replayed;
    float maxima[HEADS];
    ag_error err;
    assert_int_equal(ag_slot_scores_create(s, &scores, NULL), AG_OK);
    assert_int_equal(ag_session_replay(s, text, &p, &scores, &n_replayed, NULL), AG_OK);
    assert_int_equal(ag_session_head_maxima(s, text, N, &p, maxima, HEADS, NULL), AG_OK);
    for (uint32_t head = 0; head < HEADS; head++) {
        float most = 0;
        for (uint32_t i = SINKS; i < N; i++) most = fmaxf(most, scores.of[scores.first[head] + i]);
        assert_true(most > 0 && maxima[head] == most);
    }
    assert_int_equal(ag_session_head_maxima(s, text, N, &p, maxima, HEADS - 1, &err), AG_INVALID);
    assert_non_null(strstr(err.msg, "n is 5: it must be 6"));
    assert_int_equal(ag_session_head_maxima(s, text, N - 1, &p, maxima, HEADS, &err), AG_INVALID);
    ag_session_cancel(s);
    assert_int_equal(ag_session_head_maxima(s, text, N, &p, maxima, HEADS, &err), AG_CANCELLED);
    same_sessions(s, other);
    ag_slot_scores_release(&scores);
    ag_session_destroy(s);
    ag_session_destroy(other);
}

static void changes_nothing_when_the_target_is_met(void **state) {
    (void)state;
    ag_session *s = reader_of(model, "none"), *other = reader_of(model, "none");
    const ag_compress_report report = compress(s, 1, 1);
    assert_int_equal(report.n_kept, N * HEADS);
    assert_int_equal(report.n_replayed, 0);
    same_sessions(s, other);
    ag_session_destroy(s);
    ag_session_destroy(other);
}

static void keeps_the_logits_of_the_last_token(void **state) {
    (void)state;
    ag_session *s = reader_of(model, "none"), *other = reader_of(model, "none");
    compress(s, 0.25f, 1);
    assert_memory_equal(ag_session_logits(s), ag_session_logits(other),
                        model->info.n_vocab * sizeof(float));
    ag_session_destroy(s);
    ag_session_destroy(other);
}

static void fork_and_file_keep_the_compression(void **state) {
    (void)state;
    const char *policies[] = {"none", "keydiff", "h2o", "tova", "streaming"};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        char path[] = "/tmp/ag_compress_XXXXXX";
        ag_session *s = reader_of(model, policies[i]), *fork, *other;
        const ag_session_params p = session_params(policies[i]);
        ag_error err;
        compress(s, 0.98f, 1); /* a policy must evict soon */
        const int fd = mkstemp(path);
        assert_true(fd >= 0);
        close(fd);
        assert_int_equal(ag_session_fork(s, &fork, NULL), AG_OK);
        assert_int_equal(ag_session_create(model, &p, &other, NULL), AG_OK);
        if (ag_session_save(s, path, NULL, text, N, &err) != AG_OK) fail_msg("%s", err.msg);
        if (ag_session_restore(other, path, NULL, NULL, &err) != AG_OK) fail_msg("%s", err.msg);
        remove(path);
        ag_session *last;
        assert_int_equal(ag_session_fork(s, &last, NULL), AG_OK);
        same_sessions(s, fork);
        same_sessions(last, other);
        ag_session_destroy(s);
        ag_session_destroy(fork);
        ag_session_destroy(last);
        ag_session_destroy(other);
    }
}

/* The budget of a policy is the mean over heads: the next eviction keeps the heads ragged. */
static void policy_keeps_heads_ragged(void **state) {
    (void)state;
    const char *policies[] = {"keydiff", "h2o", "tova", "streaming", "snapkv", "sliding"};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        ag_session_params sp = session_params(policies[i]);
        sp.eviction.budget_tokens = 100;
        sp.eviction.prefill = AG_KV_PREFILL_WHOLE;
        ag_session *s;
        ag_error err;
        int32_t more[70];
        uint32_t before[HEADS];
        bool uneven = false;
        if (ag_session_create(model, &sp, &s, &err) != AG_OK) fail_msg("%s", err.msg);
        assert_int_equal(ag_session_prefill(s, text, N, NULL, NULL, NULL), AG_OK);
        compress(s, 0.5f, 1);
        for (uint32_t h = 0; h < HEADS; h++) {
            before[h] = n_slots(s, h);
            uneven |= before[h] != before[0];
        }
        assert_true(uneven);
        feed(s, 45); /* below the budget */
        for (uint32_t h = 0; h < HEADS; h++) assert_int_equal(n_slots(s, h), before[h] + 45);
        for (size_t step = 0; step < 60; step++) {
            feed(s, 1);
            assert_true(all_slots(s) <= (100 + 4) * HEADS);
        }
        for (uint32_t h = 0; h < HEADS; h++) {
            assert_int_equal((int)n_slots(s, h) - (int)n_slots(s, 0),
                             (int)before[h] - (int)before[0]);
        }
        for (size_t k = 0; k < 70; k++) more[k] = text[k];
        if (ag_session_prefill(s, more, 70, NULL, NULL, &err) != AG_OK)
            fail_msg("%s: %s", policies[i], err.msg);
        assert_true(all_slots(s) <= 100 * HEADS);
        ag_session_destroy(s);
    }
}

/* One head is nearly full, though the mean is far below the budget. */
static void no_head_exceeds_the_cache(void **state) {
    (void)state;
    ag_session_params sp = session_params("keydiff");
    sp.max_seq_len = 160;
    sp.eviction.budget_tokens = 155;
    ag_session *s;
    ag_error err;
    assert_int_equal(ag_session_create(model, &sp, &s, &err), AG_OK);
    assert_int_equal(ag_session_prefill(s, text, N, NULL, NULL, NULL), AG_OK);
    for (uint32_t h = 1; h < HEADS; h++) {
        const uint32_t keep[] = {0, 1, 2, 3, N - 1};
        assert_int_equal(ag_kv_cache_compact(s->cache, h / KV_HEADS, h % KV_HEADS, keep, 5, NULL),
                         AG_OK);
    }
    s->is_ragged = true;
    ag_cache_manager_set_ragged(s->manager, true);
    for (size_t step = 0; step < 40; step++) {
        feed(s, 1);
        assert_true(n_slots(s, 0) < 160);
        assert_int_equal(n_slots(s, 1), n_slots(s, 5));
    }
    if (ag_session_prefill(s, text, 70, NULL, NULL, &err) != AG_OK) fail_msg("%s", err.msg);
    assert_true(n_slots(s, 0) > n_slots(s, 1));
    ag_session_destroy(s);
}

static void attention_sums_move_with_their_slots(void **state) {
    (void)state;
    ag_session *s = reader_of(model, "h2o"), *before = reader_of(model, "h2o");
    compress(s, 0.5f, 1);
    const ag_score_sums *sums = ag_cache_manager_sums(s->manager);
    const ag_score_sums *old = ag_cache_manager_sums(before->manager);
    for (uint32_t h = 0; h < HEADS; h++) {
        const float *now = ag_score_sums_of(sums, h / KV_HEADS, h % KV_HEADS);
        const float *then = ag_score_sums_of(old, h / KV_HEADS, h % KV_HEADS);
        for (uint32_t i = 0; i < n_slots(s, h); i++)
            assert_memory_equal(&now[i], &then[position(s, h, i)], sizeof *now);
    }
    ag_session_destroy(s);
    ag_session_destroy(before);
}

/* ---- failures ---- */

static bool stop_at_once(void *user, uint64_t done, uint64_t total) {
    uint64_t *left = user;
    assert_true(done <= total);
    return (*left)-- > 1;
}

static void cancelled_compression_changes_nothing(void **state) {
    (void)state;
    for (uint64_t steps = 1; steps < 6; steps++) {
        ag_session *s = reader_of(model, "h2o"), *other = reader_of(model, "h2o");
        ag_compress_params p = params(0.5f, 1);
        uint64_t left = steps;
        p.progress = stop_at_once;
        p.progress_user = &left;
        assert_int_equal(ag_session_compress(s, text, N, &p, NULL, NULL), AG_CANCELLED);
        ag_session_cancel(s);
        p.progress = NULL;
        assert_int_equal(ag_session_compress(s, text, N, &p, NULL, NULL), AG_CANCELLED);
        same_sessions(s, other);
        ag_session_destroy(s);
        ag_session_destroy(other);
    }
}

static void changes_nothing_when_out_of_memory(void **state) {
    (void)state;
    const ag_compress_params p = params(0.5f, 0.5f);
    ag_status st = AG_NOMEM;
    for (size_t nth = 0; st != AG_OK; nth += nth < 40 ? 1 : 7) {
        ag_session *s = reader_of(model, "h2o"), *other = reader_of(model, "h2o");
        failing_allocator f;
        failing_install(&f, nth);
        st = ag_session_compress(s, text, N, &p, NULL, NULL);
        ag_set_allocator(NULL);
        if (st != AG_OK) {
            assert_int_equal(st, AG_NOMEM);
            same_sessions(s, other);
        } else {
            assert_false(atomic_load(&f.failed));
        }
        ag_session_destroy(s);
        ag_session_destroy(other);
    }
}

static void expect(ag_session *s, size_t n_ids, const ag_compress_params *p, ag_status want,
                   const char *named) {
    ag_error err;
    assert_int_equal(ag_session_compress(s, text, n_ids, p, NULL, &err), want);
    if (!strstr(err.msg, named)) fail_msg("'%s' does not name '%s'", err.msg, named);
}

static void rejects_invalid_parameters_with_a_reason(void **state) {
    (void)state;
    ag_session *s = reader_of(model, "none");
    const int32_t outside[] = {320};
    ag_compress_params p = params(0.5f, 1);
    expect(s, N - 1, &p, AG_INVALID, "n_ids is 149");
    p = params(0, 1);
    expect(s, N, &p, AG_INVALID, "keep_ratio is 0");
    p = params(0.5f, 0);
    expect(s, N, &p, AG_INVALID, "replay is 0");
    p = params(0.5f, 1);
    p.suffix = outside;
    p.n_suffix = 1;
    expect(s, N, &p, AG_INVALID, "token id 320");
    p = params(0.5f, 1);
    p.chunk = 15;
    expect(s, N, &p, AG_INVALID, "chunk is 15");
    p = params(0.5f, 1);
    assert_int_equal(ag_session_begin_prompt(s, 9, NULL), AG_OK);
    expect(s, N, &p, AG_INVALID, "9 tokens have not been fed");
    ag_session_destroy(s);
    ag_model *hybrid = load(backend, STATES);
    s = reader_of(hybrid, "none");
    expect(s, N, &p, AG_UNSUPPORTED, "layers with a state");
    ag_session_destroy(s);
    ag_model_destroy(hybrid);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(head_maxima_are_the_largest_scores),
        cmocka_unit_test(changes_nothing_when_the_target_is_met),
        cmocka_unit_test(keeps_the_logits_of_the_last_token),
        cmocka_unit_test(fork_and_file_keep_the_compression),
        cmocka_unit_test(policy_keeps_heads_ragged),
        cmocka_unit_test(no_head_exceeds_the_cache),
        cmocka_unit_test(attention_sums_move_with_their_slots),
        cmocka_unit_test(cancelled_compression_changes_nothing),
        cmocka_unit_test(changes_nothing_when_out_of_memory),
        cmocka_unit_test(rejects_invalid_parameters_with_a_reason),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
