/* SPDX-License-Identifier: Apache-2.0 */
/* Tests forks: each gives the results of a separate session. Their common prefix is stored once. */
#include "cache/cache_manager_impl.h"
#include "cache/kv_cache.h"
#include "core/backend_ops.h"
#include "core/fail.h"
#include "session/session_impl.h"

#include <antigravity/antigravity.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MODEL AG_GOLDEN_MODELS "/gqa-llama3rope-sharded"
#define DEMO AG_SOURCE_DIR "/models/demo"
enum { N = 8, BLOCK = 128 };

static ag_backend *backend;
static ag_model *model;

static size_t in_use(void) { return ag_memory_bytes_in_use(ag_backend_memory(backend)); }
static size_t kv_bytes(ag_session *s) {
    return ag_kv_cache_memory_usage_bytes(ag_session_kv_cache(s));
}
static size_t shared_bytes(ag_session *s) {
    return ag_kv_cache_shared_bytes(ag_session_kv_cache(s));
}

static ag_session *make_of(ag_model *m, const char *policy, uint32_t max_seq_len) {
    ag_session_params p = ag_session_defaults();
    p.max_seq_len = max_seq_len;
    p.prefill_chunk = 256;
    p.k_type = AG_Q8_0;
    p.eviction.policy = ag_eviction_policy_find(policy);
    p.eviction.budget_tokens = 300;
    p.eviction.recent = 8;
    p.eviction.slack = 16;
    p.eviction.snapkv_window = 8;
    ag_session *s;
    ag_error err;
    if (ag_session_create(m, &p, &s, &err) != AG_OK) fail_msg("%s", err.msg);
    return s;
}

static ag_session *make(const char *policy) { return make_of(model, policy, 500); }

static int load(void **state) {
    (void)state;
    ag_backend_params bp = {.n_threads = 1};
    if (ag_backend_create(&bp, &backend, NULL) != AG_OK) return 1;
    if (ag_model_load(backend, MODEL, NULL, &model, NULL) != AG_OK) return 1;
    ag_session_destroy(make("none")); /* the model has reserved what passes of its sessions need */
    return 0;
}

static int unload(void **state) {
    (void)state;
    ag_model_destroy(model);
    ag_backend_destroy(backend);
    return 0;
}

static ag_session *fork_of(ag_session *s) {
    ag_session *fork;
    ag_error err;
    if (ag_session_fork(s, &fork, &err) != AG_OK) fail_msg("%s", err.msg);
    return fork;
}

/* Feeds n tokens that depend on the position and on `way`. */
static void feed(ag_session *s, size_t n, size_t way) {
    int32_t *ids = malloc(n * sizeof *ids);
    ag_error err;
    for (size_t i = 0; i < n; i++) {
        size_t at = ag_session_position(s) + i;
        ids[i] = (int32_t)((at * 7 + at * at % 61 + way * 13) % 300) + 3;
    }
    if (ag_session_prefill(s, ids, n, NULL, NULL, &err) != AG_OK) fail_msg("%s", err.msg);
    free(ids);
}

static void decode(ag_session *s, size_t n, size_t way) {
    for (size_t i = 0; i < n; i++) feed(s, 1, way);
}

static void same_logits(const ag_session *a, const ag_session *b) {
    size_t n = ag_session_model_info(a)->n_vocab;
    assert_non_null(ag_session_logits(a));
    assert_memory_equal(ag_session_logits(a), ag_session_logits(b), n * sizeof(float));
}

static void eight_forks_of_a_prefix_match_sessions(void **state) {
    (void)state;
    size_t before = in_use();
    ag_session *root = make("none"), *forks[N], *alone[N];
    feed(root, 400, 0);
    for (size_t i = 0; i < N; i++) forks[i] = fork_of(root);
    for (size_t i = 0; i < N; i++) {
        same_logits(forks[i], root);
        alone[i] = make("none");
        feed(alone[i], 400, 0);
    }
    /* The forks alternate, so each writes to blocks that others share. */
    for (size_t step = 0; step < 20; step++) {
        for (size_t i = 0; i < N; i++) {
            decode(forks[i], 1, i);
            decode(alone[i], 1, i);
            same_logits(forks[i], alone[i]);
        }
    }
    decode(root, 20, 0); /* the root continues too */
    same_logits(root, alone[0]);
    for (size_t i = 0; i < N; i++) {
        for (size_t k = 0; k < i; k++) {
            size_t n = ag_model_get_info(model)->n_vocab * sizeof(float);
            assert_memory_not_equal(ag_session_logits(forks[i]), ag_session_logits(forks[k]), n);
        }
    }
    for (size_t i = 0; i < N; i++) {
        ag_session_destroy(forks[(i * 3 + 5) % N]);
        ag_session_destroy(alone[i]);
    }
    feed(root, 30, 1);
    ag_session_destroy(root);
    assert_int_equal(in_use(), before);
}

static void forks_share_a_thousand_tokens(void **state) {
    (void)state;
    ag_model *demo;
    ag_error err;
    const ag_model_params bf16 = {.weights = AG_BF16};
    if (ag_model_load(backend, DEMO, &bf16, &demo, &err) != AG_OK) fail_msg("%s", err.msg);
    ag_session *root = make_of(demo, "none", 1200), *control = make_of(demo, "none", 1200);
    ag_session *forks[N];
    feed(root, 1000, 0);
    feed(control, 1000, 0);
    size_t one = kv_bytes(root), before = in_use();
    for (size_t i = 0; i < N; i++) forks[i] = fork_of(root);
    assert_int_equal(shared_bytes(root), one);
    size_t logits = ag_session_model_info(root)->n_vocab * sizeof(float);
    assert_int_equal(in_use() - before, N * logits); /* no bytes of the cache */
    ag_session_destroy(root);
    for (size_t i = 0; i < N; i++) decode(forks[i], 5, i);
    /* All blocks but the last one of each layer. */
    size_t block = one / ((1000 + BLOCK - 1) / BLOCK);
    assert_int_equal(shared_bytes(forks[0]), one - block);
    size_t eight = in_use() - (before - one - logits) - N * logits;
    print_message("one session %zu bytes, eight forks of it %zu\n", one, eight);
    assert_int_equal(eight, one + (N - 1) * block);
    assert_true(eight < 2 * one);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(ag_session_truncate(control, 1000, &err), AG_OK);
        decode(control, 5, i);
        same_logits(forks[i], control);
        ag_session_destroy(forks[i]);
    }
    ag_session_destroy(control);
    ag_model_destroy(demo);
}

static void eviction_does_not_change_other_forks(void **state) {
    (void)state;
    for (size_t i = 1; ag_eviction_policy_at(i); i++) {
        const char *policy = ag_eviction_policy_at(i)->name;
        size_t before = in_use();
        ag_session *root = make(policy), *control = make(policy);
        feed(root, 290, 0);
        feed(control, 290, 0);
        ag_session *busy = fork_of(root), *idle = fork_of(root);
        feed(busy, 200, 2);
        decode(busy, 60, 2);
        assert_true(ag_session_evictions(busy)->n_evictions > 0);
        assert_int_equal(ag_session_evictions(idle)->n_evictions, 0);
        ag_session_destroy(busy);
        decode(idle, 40, 3); /* evicts by the sums that it inherited */
        decode(control, 40, 3);
        same_logits(idle, control);
        assert_int_equal(kv_bytes(idle), kv_bytes(control));
        ag_session_destroy(idle);
        assert_int_equal(ag_kv_cache_length(ag_session_kv_cache(root)), 290);
        assert_int_equal(shared_bytes(root), 0);
        ag_session_destroy(control);
        ag_session_destroy(root);
        assert_int_equal(in_use(), before);
    }
}

static void eviction_returns_only_unshared_bytes(void **state) {
    (void)state;
    ag_session *root = make("streaming");
    feed(root, 290, 0);
    ag_session *fork = fork_of(root);
    size_t before = in_use();
    feed(fork, 200, 0); /* copies its first blocks; the root keeps its own */
    assert_true(in_use() > before);
    assert_true(ag_session_evictions(fork)->n_evictions > 0);
    size_t with_copies = in_use();
    ag_session_reset(fork);
    assert_int_equal(with_copies - in_use(), kv_bytes(root)); /* 290 slots in equally many blocks */
    ag_session_destroy(root);
    ag_session_destroy(fork);
}

static void forks_of_forks_end_in_any_order(void **state) {
    (void)state;
    enum { DEEP = 5 };
    size_t before = in_use();
    for (size_t order = 0; order < DEEP; order++) {
        ag_session *s[DEEP] = {make("none")}, *control = make("none");
        feed(s[0], 100, 0);
        for (size_t i = 1; i < DEEP; i++) {
            s[i] = fork_of(s[i - 1]);
            feed(s[i], 60, 0);
        }
        feed(control, 100 + 60 * (DEEP - 1), 0);
        same_logits(s[DEEP - 1], control);
        for (size_t i = 0; i < DEEP - 1; i++) { /* the other forks catch up at the same positions */
            feed(s[i], 60 * (DEEP - 1 - i), 0);
            same_logits(s[i], control);
        }
        for (size_t i = 0; i < DEEP; i++) {
            size_t gone = (i * 2 + order) % DEEP;
            ag_session_destroy(s[gone]);
            s[gone] = NULL;
            for (size_t k = 0; k < DEEP; k++) {
                if (s[k]) decode(s[k], 1, k + i);
            }
        }
        ag_session_destroy(control);
        assert_int_equal(in_use(), before);
    }
}

static void each_fork_has_its_own_moved_prefix(void **state) {
    (void)state;
    ag_session *root = make("streaming"), *control = make("streaming");
    feed(root, 600, 0); /* the model was trained for 512 positions */
    feed(control, 600, 0);
    decode(root, 1, 0);
    decode(control, 1, 0);
    ag_session *fork = fork_of(root);
    decode(fork, 3, 1); /* moves its prefix by three positions */
    /* The root's prefix is at this position already, so it is not rotated again. */
    assert_int_equal(ag_session_truncate(root, 600, NULL), AG_OK);
    assert_int_equal(ag_session_truncate(control, 600, NULL), AG_OK);
    decode(root, 1, 2);
    decode(control, 1, 2);
    same_logits(root, control);
    ag_session_destroy(fork);
    ag_session_destroy(root);
    ag_session_destroy(control);
}

static void fork_truncates_and_decodes_with_others(void **state) {
    (void)state;
    ag_session *root = make("none"), *control = make("none");
    ag_error err;
    feed(root, 200, 0);
    ag_session *pair[] = {fork_of(root), fork_of(root)};
    assert_int_equal(ag_session_truncate(pair[0], 50, &err), AG_OK);
    feed(pair[0], 150, 0);
    const int32_t ids[] = {7, 8};
    assert_int_equal(ag_session_decode_batch(pair, ids, 2, &err), AG_OK);
    feed(control, 200, 0);
    assert_int_equal(ag_session_decode(control, 7, &err), AG_OK);
    same_logits(pair[0], control);
    assert_int_equal(ag_session_truncate(control, 200, &err), AG_OK);
    assert_int_equal(ag_session_decode(control, 8, &err), AG_OK);
    same_logits(pair[1], control);
    assert_int_equal(ag_session_decode(root, 8, &err), AG_OK);
    same_logits(root, control);
    ag_session_destroy(pair[0]);
    ag_session_destroy(root);
    ag_session_destroy(pair[1]);
    ag_session_destroy(control);
}

/* ---- forks with other policies ---- */

static ag_eviction_params rules(const char *policy, uint32_t budget) {
    ag_eviction_params p = ag_eviction_defaults();
    p.policy = ag_eviction_policy_find(policy);
    p.budget_tokens = budget;
    p.prefill = AG_KV_PREFILL_WHOLE;
    p.recent = p.snapkv_window = 8;
    return p;
}

static ag_session *make_with(ag_eviction_params eviction) {
    ag_session_params p = ag_session_defaults();
    p.max_seq_len = 500;
    p.prefill_chunk = 128;
    p.eviction = eviction;
    ag_session *s;
    ag_error err;
    if (ag_session_create(model, &p, &s, &err) != AG_OK) fail_msg("%s", err.msg);
    return s;
}

static ag_session *fork_with(ag_session *s, ag_eviction_params eviction) {
    ag_session *fork;
    ag_error err;
    if (ag_session_fork_with(s, &eviction, &fork, &err) != AG_OK) fail_msg("%s", err.msg);
    return fork;
}

static void same_slots(ag_session *a, ag_session *b) {
    ag_kv_cache *x = ag_session_kv_cache(a), *y = ag_session_kv_cache(b);
    const ag_kv_layer *is;
    for (uint32_t l = 0; (is = ag_kv_cache_layer(x, l)); l++) {
        for (uint32_t h = 0; h < is->n_kv_heads; h++) {
            const uint32_t n = ag_kv_cache_n_slots(x, l, h);
            assert_int_equal(ag_kv_cache_n_slots(y, l, h), n);
            for (uint32_t i = 0; i < n; i++)
                assert_int_equal(ag_kv_cache_position(x, l, h, i),
                                 ag_kv_cache_position(y, l, h, i));
        }
    }
}

/* One prefill serves all policies: each retains what it retains of a prefill of its own. */
static void forks_evict_by_their_own_policy(void **state) {
    (void)state;
    static const uint32_t budgets[] = {200, 60};
    ag_session *root = make_with(rules("streaming", 499));
    feed(root, 384, 0); /* full chunks, so that rows round alike */
    for (size_t i = 1; ag_eviction_policy_at(i); i++) {
        const ag_eviction_policy *policy = ag_eviction_policy_at(i);
        /* Totals include all queries. */
        if (policy->importance == AG_IMPORTANCE_TOTAL) continue;
        if (policy->importance == AG_IMPORTANCE_CHUNK) continue;
        for (size_t b = 0; b < 2; b++) {
            ag_session *fork = fork_with(root, rules(policy->name, budgets[b]));
            ag_session *alone = make_with(rules(policy->name, budgets[b]));
            feed(fork, 20, 0);
            feed(alone, 404, 0);
            assert_int_equal(ag_kv_cache_length(ag_session_kv_cache(fork)), budgets[b]);
            same_slots(fork, alone);
            /* Continues without a budget. */
            ag_session *rest = fork_with(fork, rules("streaming", 499));
            feed(rest, 50, 0);
            assert_int_equal(ag_kv_cache_length(ag_session_kv_cache(rest)), budgets[b] + 50);
            ag_session_destroy(fork);
            ag_session_destroy(rest);
            ag_session_destroy(alone);
        }
    }
    assert_int_equal(ag_kv_cache_length(ag_session_kv_cache(root)), 384);
    ag_session_destroy(root);
}

/* The sums of a policy are not computed again. */
static void fork_copies_the_sums_of_its_policy(void **state) {
    (void)state;
    ag_session *root = make_with(rules("h2o", 499)), *stranger = make_with(rules("streaming", 499));
    feed(root, 384, 0);
    feed(stranger, 384, 0);
    ag_session *fork = fork_with(root, rules("h2o", 60)), *alone = make_with(rules("h2o", 60));
    ag_session *late = fork_with(stranger, rules("h2o", 60));
    feed(fork, 20, 0);
    feed(alone, 404, 0);
    feed(late, 20, 0);
    same_slots(fork, alone);
    assert_int_equal(ag_kv_cache_length(ag_session_kv_cache(late)), 60);
    ag_session *all[] = {root, stranger, fork, alone, late};
    for (size_t i = 0; i < 5; i++) ag_session_destroy(all[i]);
}

static void rejects_parameters_that_cannot_share_a_cache(void **state) {
    (void)state;
    ag_session *root = make_with(rules("streaming", 499)), *fork = root;
    ag_error err;
    feed(root, 20, 0);
    ag_eviction_params other = rules("keydiff", 60);
    other.protected_prefix = 7;
    assert_int_equal(ag_session_fork_with(root, &other, &fork, &err), AG_INVALID);
    assert_null(fork);
    assert_non_null(strstr(err.msg, "protected_prefix is 7, the session's is 4"));
    assert_int_equal(ag_session_fork_with(root, NULL, &fork, &err), AG_INVALID);
    other = rules("keydiff", 600);
    assert_int_equal(ag_session_fork_with(root, &other, &fork, &err), AG_INVALID);
    assert_non_null(strstr(err.msg, "budget_tokens is 600"));
    ag_session_destroy(root);
    /* Without sinks, policies may differ. */
    root = make_with(rules("none", 0));
    feed(root, 100, 0);
    other = rules("keydiff", 60);
    other.protected_prefix = 0;
    assert_int_equal(ag_session_fork_with(root, &other, &fork, &err), AG_OK);
    feed(fork, 20, 0);
    assert_int_equal(ag_kv_cache_length(ag_session_kv_cache(fork)), 60);
    ag_session_destroy(fork);
    ag_session_destroy(root);
}

static void decoding_in_forks_does_not_allocate(void **state) {
    (void)state;
    ag_session *root = make("none");
    feed(root, 200, 0);
    ag_session *fork = fork_of(root);
    int32_t id = 5;
    ag_error err;
    size_t before = ag_allocation_count();
    for (int i = 0; i < 100; i++) {
        assert_int_equal(ag_session_decode(root, id, &err), AG_OK);
        assert_int_equal(ag_session_decode(fork, id, &err), AG_OK);
    }
    assert_int_equal(ag_allocation_count(), before);
    ag_session_destroy(root);
    ag_session_destroy(fork);
}

static ag_status no_copy(ag_backend *b, ag_buffer *dst, size_t dst_offset, ag_buffer *src,
                         size_t src_offset, size_t n) {
    (void)dst, (void)dst_offset, (void)src, (void)src_offset;
    return AG_FAIL(&b->err, DEVICE, "copying %zu bytes", n);
}

/* The eviction cannot allocate a block for its copy. */
static void failed_eviction_keeps_sums_with_their_slots(void **state) {
    (void)state;
    ag_session *root = make("h2o"), *other;
    ag_error err;
    feed(root, 290, 0);
    other = fork_of(root);
    const ag_backend_ops *const ops = backend->ops;
    ag_backend_ops failing = *ops;
    failing.copy_bytes = no_copy;
    backend->ops = &failing;
    assert_int_equal(ag_cache_manager_evict(other->manager, 100, 290, AG_EVICTION_BUDGET, &err),
                     AG_DEVICE);
    backend->ops = ops;
    for (uint32_t h = 0; h < ag_kv_cache_layer(other->cache, 0)->n_kv_heads; h++) {
        assert_int_equal(ag_kv_cache_n_slots(other->cache, 0, h), 290);
        assert_memory_equal(ag_score_sums_of(other->manager->evictor.sums, 0, h),
                            ag_score_sums_of(root->manager->evictor.sums, 0, h),
                            290 * sizeof(float));
    }
    assert_int_equal(ag_cache_manager_evict(other->manager, 100, 290, AG_EVICTION_BUDGET, &err),
                     AG_OK);
    assert_int_equal(ag_kv_cache_n_slots(other->cache, 0, 0), 100);
    ag_session_destroy(root);
    ag_session_destroy(other);
}

/* Totals of all queries are not sums of the last ones. */
static void fork_with_another_policy_starts_new_sums(void **state) {
    (void)state;
    ag_session *root = make("h2o"), *same, *other;
    ag_eviction_params e = root->params.eviction;
    ag_error err;
    feed(root, 200, 0);
    same = fork_of(root);
    e.policy = ag_eviction_policy_find("snapkv");
    assert_int_equal(ag_session_fork_with(root, &e, &other, &err), AG_OK);
    for (uint32_t i = 0; i < 200; i++) {
        const float sum = ag_score_sums_of(root->manager->evictor.sums, 0, 0)[i];
        assert_true(sum > 0);
        assert_true(ag_score_sums_of(same->manager->evictor.sums, 0, 0)[i] == sum);
        assert_true(ag_score_sums_of(other->manager->evictor.sums, 0, 0)[i] == 0);
    }
    ag_session_destroy(root);
    ag_session_destroy(same);
    ag_session_destroy(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_forks_of_a_prefix_match_sessions),
        cmocka_unit_test(forks_share_a_thousand_tokens),
        cmocka_unit_test(eviction_does_not_change_other_forks),
        cmocka_unit_test(eviction_returns_only_unshared_bytes),
        cmocka_unit_test(forks_of_forks_end_in_any_order),
        cmocka_unit_test(each_fork_has_its_own_moved_prefix),
        cmocka_unit_test(fork_truncates_and_decodes_with_others),
        cmocka_unit_test(forks_evict_by_their_own_policy),
        cmocka_unit_test(fork_copies_the_sums_of_its_policy),
        cmocka_unit_test(rejects_parameters_that_cannot_share_a_cache),
        cmocka_unit_test(decoding_in_forks_does_not_allocate),
        cmocka_unit_test(failed_eviction_keeps_sums_with_their_slots),
        cmocka_unit_test(fork_with_another_policy_starts_new_sums),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
