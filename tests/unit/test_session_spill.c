/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions that spill evicted blocks and reload them. */
#include <antigravity/antigravity.h>
#include <antigravity/kv_cache.h>

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MODEL AG_GOLDEN_MODELS "/gqa-llama3rope-sharded"
enum { BUDGET = 64, SLACK = 16, PROMPT = 200 };

static char dir[] = "/tmp/ag-spill-XXXXXX";
static char path[64], saved[64];
static ag_backend *backend;
static ag_model *model;

static ag_session_params params_of(const char *policy, uint32_t budget,
                                   const ag_spill_params *spill) {
    ag_session_params p = ag_session_defaults();
    p.max_seq_len = 500;
    p.prefill_chunk = 128;
    p.k_type = p.v_type = AG_F32;
    p.eviction.policy = ag_eviction_policy_find(policy);
    p.eviction.budget_tokens = budget;
    p.eviction.recent = 8;
    p.eviction.slack = SLACK;
    p.eviction.snapkv_window = 8;
    p.eviction.prefill = AG_KV_PREFILL_BOUNDED;
    p.eviction.spill = spill;
    return p;
}

static ag_session *make(const char *policy, const ag_spill_params *spill) {
    const ag_session_params p = params_of(policy, BUDGET, spill);
    ag_session *s;
    ag_error err;
    if (ag_session_create(model, &p, &s, &err) != AG_OK) fail_msg("%s", err.msg);
    return s;
}

/* Feeds n tokens that depend on the position, as one prompt or one by one. */
static void feed(ag_session *s, size_t n, bool decode) {
    int32_t ids[512];
    ag_error err;
    for (size_t i = 0; i < n; i++) {
        const size_t at = ag_session_position(s) + i;
        ids[i] = (int32_t)((at * 7 + at * at % 61) % 300) + 3;
    }
    for (size_t i = 0; i < n; i += decode ? 1 : n)
        if (ag_session_prefill(s, ids + i, decode ? 1 : n, NULL, NULL, &err) != AG_OK)
            fail_msg("%s", err.msg);
}

static void same_logits(const ag_session *a, const ag_session *b) {
    const size_t n = ag_session_model_info(a)->n_vocab;
    assert_non_null(ag_session_logits(a));
    assert_memory_equal(ag_session_logits(a), ag_session_logits(b), n * sizeof(float));
}

static ag_spill_stats stats_of(const ag_session *s) {
    ag_spill_stats stats;
    ag_session_spilled(s, &stats);
    return stats;
}

static uint32_t slots_of(ag_session *s) { return ag_kv_cache_length(ag_session_kv_cache(s)); }

static int load(void **state) {
    (void)state;
    ag_backend_params bp = {.n_threads = 2};
    if (!mkdtemp(dir)) return 1;
    snprintf(path, sizeof path, "%s/spill", dir);
    snprintf(saved, sizeof saved, "%s/saved", dir);
    if (ag_backend_create(&bp, &backend, NULL) != AG_OK) return 1;
    return ag_model_load(backend, MODEL, NULL, &model, NULL) != AG_OK;
}

static int unload(void **state) {
    (void)state;
    ag_model_destroy(model);
    ag_backend_destroy(backend);
    return rmdir(dir); /* fails if a session left a file */
}

/* A fork with space for everything reloads all blocks: its logits equal those of a session without
 * evictions. */
static void reloaded_blocks_are_bit_identical(void **state) {
    (void)state;
    const ag_spill_params spill = {.path = dir, .exact = true, .block = 32};
    const char *policies[] = {"streaming", "keydiff", "h2o", "snapkv", "tova", "compactor"};
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        ag_session *s = make(policies[i], &spill), *all, *whole;
        ag_session_params roomy = params_of(policies[i], 400, &spill);
        ag_error err;
        if (ag_session_create(model, &roomy, &whole, &err) != AG_OK) fail_msg("%s", err.msg);
        /* One pass, so that both sessions have computed the same; then most of it is evicted. */
        feed(s, 120, false);
        feed(whole, 120, false);
        assert_int_equal(slots_of(s), BUDGET);
        assert_true(stats_of(s).n_spilled > 0);
        assert_int_equal(stats_of(s).n_reloaded, 0);
        roomy.eviction.recent = 1;
        if (ag_session_fork_with(s, &roomy.eviction, &all, &err) != AG_OK) fail_msg("%s", err.msg);
        feed(all, 1, true);
        feed(whole, 1, true);
        assert_int_equal(slots_of(all), 121);
        assert_int_equal(stats_of(all).n_reloaded, stats_of(s).n_spilled);
        same_logits(all, whole);
        feed(s, 1, true); /* its slots are complete */
        assert_int_equal(slots_of(s), BUDGET + 1);
        ag_session_destroy(s);
        feed(all, 10, true);
        feed(whole, 10, true);
        same_logits(all, whole);
        assert_int_equal(stats_of(all).n_failed, 0);
        assert_null(stats_of(all).trouble);
        ag_session_destroy(all);
        ag_session_destroy(whole);
    }
}

static void blocks_are_spilled_and_reloaded_within_the_budget(void **state) {
    (void)state;
    const ag_spill_params spill = {.path = dir, .block = 8};
    ag_session *s = make("streaming", &spill), *again = make("streaming", &spill);
    feed(s, PROMPT, false);
    for (int i = 0; i < 60; i++) {
        feed(s, 1, true);
        assert_true(slots_of(s) <= BUDGET + SLACK);
    }
    const ag_spill_stats stats = stats_of(s);
    assert_true(stats.n_reloaded > 0);
    assert_true(stats.n_spilled > stats.n_reloaded);
    assert_int_equal(stats.n_failed, 0);
    assert_true(stats.file_bytes > 0);
    feed(again, PROMPT, false);
    feed(again, 60, true);
    same_logits(s, again);
    ag_session_reset(s);
    assert_int_equal(stats_of(s).n_spilled, 0);
    assert_int_equal(stats_of(s).file_bytes, 0);
    feed(s, PROMPT, false);
    feed(s, 60, true);
    same_logits(s, again);
    ag_session_destroy(s);
    ag_session_destroy(again);
}

static void size_limit_drops_the_oldest_blocks(void **state) {
    (void)state;
    const ag_spill_params spill = {.path = dir, .block = 8, .max_bytes = 32 << 10};
    ag_session *s = make("streaming", &spill);
    feed(s, 400, false);
    feed(s, 20, true);
    const ag_spill_stats stats = stats_of(s);
    assert_true(stats.file_bytes <= spill.max_bytes);
    assert_true(stats.n_dropped > 0);
    assert_int_equal(stats.n_failed, 0);
    assert_null(stats.trouble);
    ag_session_destroy(s);
}

/* After a truncation other tokens take the positions of spilled ones. */
static void truncation_drops_spilled_blocks(void **state) {
    (void)state;
    const ag_spill_params spill = {.path = dir, .exact = true, .block = 8};
    ag_session *s = make("streaming", &spill), *new = make("streaming", &spill);
    feed(s, PROMPT, false);
    feed(s, 30, true);
    assert_int_equal(ag_session_truncate(s, 0, NULL), AG_OK);
    assert_int_equal(stats_of(s).file_bytes, 0);
    feed(s, PROMPT, false);
    feed(new, PROMPT, false);
    same_logits(s, new);
    assert_int_equal(ag_session_truncate(s, 100, NULL), AG_OK);
    feed(s, 150, true);
    const ag_kv_cache *c = ag_session_kv_cache(s);
    for (uint32_t slot = 1; slot < ag_kv_cache_n_slots(c, 0, 0); slot++) /* positions are unique */
        assert_true(ag_kv_cache_position(c, 0, 0, slot) > ag_kv_cache_position(c, 0, 0, slot - 1));
    ag_session_destroy(s);
    ag_session_destroy(new);
}

static void forks_share_spilled_blocks(void **state) {
    (void)state;
    const ag_spill_params spill = {.path = path, .block = 8};
    ag_session *s = make("keydiff", &spill), *a, *b;
    feed(s, PROMPT, false);
    const uint64_t bytes = stats_of(s).file_bytes;
    assert_int_equal(ag_session_fork(s, &a, NULL), AG_OK);
    assert_int_equal(ag_session_fork(a, &b, NULL), AG_OK);
    assert_int_equal(stats_of(b).file_bytes, bytes); /* nothing was copied */
    assert_null(stats_of(b).trouble);
    feed(a, 30, true);
    feed(s, 30, true);
    same_logits(a, s);
    ag_session_destroy(s);
    feed(b, 30, true);
    same_logits(a, b);
    ag_session_reset(a);
    feed(b, 5, true);
    ag_session_destroy(a);
    assert_true(stats_of(b).n_reloaded > 0);
    assert_int_equal(stats_of(b).n_failed, 0);
    ag_session_destroy(b);
}

static void spilled_blocks_survive_save_and_restore(void **state) {
    (void)state;
    const ag_spill_params spill = {.path = dir, .block = 8}, other = {.path = path, .block = 8};
    const char *policies[] = {"streaming", "h2o", "compactor"};
    for (size_t i = 0; i < 3; i++) {
        ag_session *s = make(policies[i], &spill), *there = make(policies[i], &other);
        ag_session *plain = make(policies[i], NULL);
        ag_error err;
        feed(s, PROMPT, false);
        feed(s, 10, true);
        if (ag_session_save(s, saved, NULL, NULL, 0, &err) != AG_OK) fail_msg("%s", err.msg);
        feed(there, 150, false); /* is overwritten */
        if (ag_session_restore(there, saved, NULL, NULL, &err) != AG_OK) fail_msg("%s", err.msg);
        assert_int_equal(stats_of(there).file_bytes, stats_of(s).file_bytes);
        feed(s, 40, true);
        feed(there, 40, true);
        same_logits(s, there);
        assert_true(stats_of(there).n_reloaded > 0);
        /* A session without spilling restores the other parts of the file. */
        if (ag_session_restore(plain, saved, NULL, NULL, &err) != AG_OK) fail_msg("%s", err.msg);
        feed(plain, 5, true);
        ag_session_destroy(plain);
        ag_session_destroy(there);
        ag_session_destroy(s);
    }
    assert_int_equal(unlink(saved), 0);
}

/* The restoring session has a full spill file of its own, which the restored blocks replace. */
static void full_session_restores_spilled_blocks(void **state) {
    (void)state;
    ag_spill_params spill = {.path = dir, .block = 8};
    ag_session *s = make("streaming", &spill);
    ag_error err;
    feed(s, PROMPT, false);
    if (ag_session_save(s, saved, NULL, NULL, 0, &err) != AG_OK) fail_msg("%s", err.msg);
    spill.max_bytes = stats_of(s).file_bytes;
    ag_session *there = make("streaming", &spill);
    feed(there, PROMPT, false);
    feed(there, 100, true);
    if (ag_session_restore(there, saved, NULL, NULL, &err) != AG_OK) fail_msg("%s", err.msg);
    assert_int_equal(stats_of(there).file_bytes, stats_of(s).file_bytes);
    assert_int_equal(stats_of(there).n_failed, 0);
    ag_session_destroy(there);
    ag_session_destroy(s);
    assert_int_equal(unlink(saved), 0);
}

/* Blocks cannot be read: the session equals one that evicts, to the bit. */
static void truncated_file_acts_as_an_eviction(void **state) {
    (void)state;
    const ag_spill_params spill = {.path = path, .block = 8};
    ag_session *s = make("streaming", &spill), *plain = make("streaming", NULL);
    feed(s, 128, false);
    feed(plain, 128, false);
    assert_true(stats_of(s).n_spilled > 0);
    assert_int_equal(truncate(path, 0), 0);
    for (int i = 0; i < 10; i++) {
        feed(s, 1, true);
        feed(plain, 1, true);
        same_logits(s, plain);
    }
    assert_true(stats_of(s).n_failed > 0);
    assert_int_equal(stats_of(s).n_reloaded, 0);
    assert_non_null(strstr(stats_of(s).trouble, "truncated"));
    ag_session_destroy(s);
    ag_session_destroy(plain);
}

static void missing_file_acts_as_an_eviction(void **state) {
    (void)state;
    const ag_spill_params spill = {.path = "/nonexistent/spill"};
    ag_session *s = make("keydiff", &spill), *plain = make("keydiff", NULL);
    feed(s, PROMPT, false);
    feed(plain, PROMPT, false);
    feed(s, 30, true);
    feed(plain, 30, true);
    same_logits(s, plain);
    assert_non_null(stats_of(s).trouble);
    assert_true(stats_of(s).n_failed > 0);
    ag_session_destroy(s);
    ag_session_destroy(plain);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reloaded_blocks_are_bit_identical),
        cmocka_unit_test(blocks_are_spilled_and_reloaded_within_the_budget),
        cmocka_unit_test(size_limit_drops_the_oldest_blocks),
        cmocka_unit_test(truncation_drops_spilled_blocks),
        cmocka_unit_test(forks_share_spilled_blocks),
        cmocka_unit_test(spilled_blocks_survive_save_and_restore),
        cmocka_unit_test(full_session_restores_spilled_blocks),
        cmocka_unit_test(truncated_file_acts_as_an_eviction),
        cmocka_unit_test(missing_file_acts_as_an_eviction),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
