/* SPDX-License-Identifier: Apache-2.0 */
/* Truncation: a session continues as if the removed tokens had never been consumed, with any
 * policy. */
#include "support/one_model.h"
#include "support/without_matrix_units.h"

#include <antigravity/expert.h>

enum { LAYERS = 3, HEADS = 2, BUDGET = 100, SLACK = 16 };

static int load(void **state) {
    without_matrix_units();
    return load_one_model(state);
}

static ag_session *make(const char *policy) {
    ag_session_params p = ag_session_defaults();
    p.prefill_chunk = 48;
    p.eviction.policy = ag_eviction_policy_find(policy);
    p.eviction.budget_tokens = BUDGET;
    p.eviction.recent = 8;
    p.eviction.slack = SLACK;
    p.eviction.snapkv_window = 8;
    return session_of(&p);
}

static int32_t id_at(size_t i) { return (int32_t)((i * 7 + i * i % 61) % 300) + 3; }

static void prefill(ag_session *s, size_t first, size_t n) {
    int32_t *ids = malloc(n * sizeof *ids);
    ag_error err;
    for (size_t i = 0; i < n; i++) ids[i] = id_at(first + i);
    if (ag_session_prefill(s, ids, n, NULL, NULL, &err) != AG_OK) fail_msg("%s", err.msg);
    free(ids);
}

static void same_logits(const ag_session *a, const ag_session *b) {
    assert_non_null(ag_session_logits(a));
    assert_memory_equal(ag_session_logits(a), ag_session_logits(b), n_vocab * sizeof(float));
}

static void same_slots(ag_session *a, ag_session *b) {
    ag_kv_cache *x = ag_session_kv_cache(a), *y = ag_session_kv_cache(b);
    for (uint32_t l = 0; l < LAYERS; l++) {
        for (uint32_t h = 0; h < HEADS; h++) {
            uint32_t n = ag_kv_cache_n_slots(x, l, h);
            assert_int_equal(n, ag_kv_cache_n_slots(y, l, h));
            for (uint32_t s = 0; s < n; s++) {
                assert_int_equal(ag_kv_cache_position(x, l, h, s),
                                 ag_kv_cache_position(y, l, h, s));
            }
        }
    }
}

/* Decodes `steps` tokens in both and compares them. */
static void continue_alike(ag_session *a, ag_session *b, size_t steps) {
    for (size_t i = 0; i < steps; i++) {
        prefill(a, ag_session_position(a), 1);
        prefill(b, ag_session_position(b), 1);
        same_logits(a, b);
    }
    same_slots(a, b);
}

static void truncated_session_matches_a_shorter_one(void **state) {
    (void)state;
    for (size_t i = 0; ag_eviction_policy_at(i); i++) {
        const ag_eviction_policy *policy = ag_eviction_policy_at(i);
        bool sums_remember = policy->importance == AG_IMPORTANCE_TOTAL;
        ag_session *went = make(policy->name), *stayed = make(policy->name);
        ag_error err;
        prefill(went, 0, 150);
        prefill(stayed, 0, 150);
        for (size_t k = 0; k < 4; k++) prefill(went, 500 + k, 1); /* tokens that are rejected */
        assert_int_equal(ag_session_truncate(went, 150, &err), AG_OK);
        assert_null(ag_session_logits(went));
        assert_int_equal(ag_session_position(went), 150);
        same_slots(went, stayed);
        /* Sums keep what the draft contributed: the next eviction may select other slots. */
        continue_alike(went, stayed, sums_remember ? 10 : 60);
        if (policy->select) {
            bool evicted = ag_session_evictions(went)->n_evictions > 1;
            assert_true(evicted || sums_remember);
        }
        ag_session_destroy(went);
        ag_session_destroy(stayed);
    }
}

static void truncates_into_the_first_block(void **state) {
    (void)state;
    ag_session *went = make("none"), *stayed = make("none");
    ag_error err;
    prefill(went, 0, 300);
    prefill(stayed, 0, 5);
    assert_int_equal(ag_session_truncate(went, 5, &err), AG_OK);
    assert_int_equal(ag_kv_cache_memory_usage_bytes(ag_session_kv_cache(went)),
                     ag_kv_cache_memory_usage_bytes(ag_session_kv_cache(stayed)));
    continue_alike(went, stayed, 5);
    assert_int_equal(ag_session_truncate(went, 0, &err), AG_OK);
    assert_int_equal(ag_kv_cache_length(ag_session_kv_cache(went)), 0);
    ag_session_reset(stayed);
    continue_alike(went, stayed, 3);
    ag_session_destroy(went);
    ag_session_destroy(stayed);
}

static void evicted_tokens_do_not_return(void **state) {
    (void)state;
    ag_session *s = make("streaming");
    ag_kv_cache *c = ag_session_kv_cache(s);
    ag_error err;
    prefill(s, 0, 400);
    uint32_t held = ag_kv_cache_length(c);
    assert_int_equal(ag_session_truncate(s, 390, &err), AG_OK);
    assert_int_equal(ag_kv_cache_length(c), held - 10);
    assert_int_equal(ag_session_truncate(s, 200, &err), AG_OK); /* only the prefix remains */
    assert_int_equal(ag_kv_cache_length(c), 4);
    assert_int_equal(ag_kv_cache_position(c, 0, 0, 3), 3);
    assert_int_equal(ag_session_truncate(s, 2, &err), AG_OK);
    assert_int_equal(ag_kv_cache_length(c), 2);
    prefill(s, 2, 300);
    assert_int_equal(ag_session_position(s), 302);
    ag_session_destroy(s);
}

/* Positions that were scored get new tokens: these are evicted oldest first. */
static void new_tokens_do_not_inherit_scores(void **state) {
    (void)state;
    ag_session *s = make("snapkv");
    ag_kv_cache *c = ag_session_kv_cache(s);
    ag_error err;
    prefill(s, 0, 150);
    assert_int_equal(ag_session_truncate(s, 120, &err), AG_OK);
    while (ag_session_evictions(s)->n_evictions < 2) prefill(s, ag_session_position(s), 1);
    for (uint32_t h = 0; h < HEADS; h++) {
        uint32_t n = ag_kv_cache_n_slots(c, 0, h);
        for (uint32_t i = 1; i < n; i++) {
            uint32_t before = ag_kv_cache_position(c, 0, h, i - 1);
            if (before >= 120) assert_int_equal(ag_kv_cache_position(c, 0, h, i), before + 1);
        }
    }
    ag_session_destroy(s);
}

static void restores_a_moved_protected_prefix(void **state) {
    (void)state;
    ag_session *went = make("streaming"), *stayed = make("streaming");
    ag_error err;
    uint32_t trained = ag_model_get_info(model)->max_positions;
    prefill(went, 0, trained + 40); /* the prefix moves once the session is past this position */
    assert_int_equal(ag_session_truncate(went, 3, &err), AG_OK);
    prefill(stayed, 0, 3);
    for (size_t i = 0; i < 20; i++) {
        prefill(went, ag_session_position(went), 1);
        prefill(stayed, ag_session_position(stayed), 1);
    }
    same_slots(went, stayed);
    const float *x = ag_session_logits(went), *y = ag_session_logits(stayed);
    for (size_t i = 0; i < n_vocab; i++) assert_true(x[i] - y[i] < 1e-2f && y[i] - x[i] < 1e-2f);
    ag_session_destroy(went);
    ag_session_destroy(stayed);
}

static void rejects_positions_ahead_of_the_session(void **state) {
    (void)state;
    ag_session *s = make("none");
    ag_error err;
    prefill(s, 0, 10);
    assert_int_equal(ag_session_truncate(s, 11, &err), AG_INVALID);
    assert_string_equal(err.msg, "cannot truncate to position 11: the session is at position 10");
    assert_int_equal(ag_session_position(s), 10);
    assert_int_equal(ag_session_truncate(s, 10, &err), AG_OK);
    assert_non_null(ag_session_logits(s)); /* the session is unchanged */
    ag_session_destroy(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(truncated_session_matches_a_shorter_one),
        cmocka_unit_test(truncates_into_the_first_block),
        cmocka_unit_test(evicted_tokens_do_not_return),
        cmocka_unit_test(new_tokens_do_not_inherit_scores),
        cmocka_unit_test(restores_a_moved_protected_prefix),
        cmocka_unit_test(rejects_positions_ahead_of_the_session),
    };
    return cmocka_run_group_tests(tests, load, unload_one_model);
}
