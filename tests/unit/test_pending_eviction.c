/* SPDX-License-Identifier: Apache-2.0 */
/* An eviction that fails after a pass: the step succeeds and the eviction is pending. The next
 * call runs it first, or fails without a change. With memory, slots and logits equal those of a
 * session without failures. */
#include "cache/cache_manager_impl.h"
#include "core/backend_compose.h"
#include "core/backend_ops.h"
#include "core/fail.h"
#include "session/session_impl.h"
#include "support/stride.h"

#include <antigravity/expert.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <unistd.h>

#define MODELS AG_GOLDEN_MODELS "/"
enum { BUDGET = 150, SLACK = 8, PROMPT = 200, STEPS = 12, MAX_SEQ = 480 };

/* All layers see everything; most layers see 24 tokens. */
static const char *const model_dirs[] = {MODELS "gqa-llama3rope-sharded", MODELS "gemma3"};
enum { N_MODELS = 2 };

static ag_backend *backend;
static const ag_backend_ops *good_ops;
static ag_model *models[N_MODELS];

/* ---- memory that runs out ---- */

static size_t n_copies, first_failing, n_failing, n_failed;

/* A block shared with a fork cannot be copied. */
static ag_status copy_bytes(ag_backend *b, ag_buffer *dst, size_t dst_offset, ag_buffer *src,
                            size_t src_offset, size_t n) {
    const size_t i = n_copies++;
    n_failed += i >= first_failing && i - first_failing < n_failing;
    if (i < first_failing || i - first_failing >= n_failing)
        return (good_ops->copy_bytes ? good_ops->copy_bytes : ag_compose_copy_bytes)(
            b, dst, dst_offset, src, src_offset, n);
    return AG_FAIL(&b->err, NOMEM, "copying %zu bytes", n);
}

static ag_backend_ops failing_ops;

static void fail_from(size_t first, size_t n) {
    n_copies = n_failed = 0;
    first_failing = first;
    n_failing = n;
}

/* ---- sessions ---- */

static ag_session *make(ag_model *m, const ag_eviction_policy *policy, ag_head_budget heads) {
    static float shares[64];
    ag_session_params p = ag_session_defaults();
    ag_session *s;
    ag_error err;
    p.max_seq_len = MAX_SEQ;
    p.prefill_chunk = 16;
    p.eviction.policy = policy;
    p.eviction.budget_tokens = BUDGET;
    p.eviction.recent = 8;
    p.eviction.slack = SLACK;
    p.eviction.snapkv_window = 8;
    p.eviction.head_budget = heads;
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) shares[i] = 1 + (float)(i % 3);
    if (heads == AG_HEAD_BUDGET_SHARES) {
        const ag_model_info *info = ag_model_get_info(m);
        p.eviction.head_shares = shares;
        p.eviction.n_head_shares = (size_t)info->n_layers * info->n_kv_heads;
    }
    if (ag_session_create(m, &p, &s, &err) != AG_OK) fail_msg("%s", err.msg);
    return s;
}

static int32_t id_at(size_t i) { return (int32_t)((i * 7 + i * i % 61) % 300) + 3; }

static ag_status feed_one(ag_session *s, ag_error *err) {
    return ag_session_decode(s, id_at(ag_session_position(s)), err);
}

static void feed(ag_session *s, size_t n) {
    int32_t ids[PROMPT];
    ag_error err;
    for (size_t i = 0; i < n; i++) ids[i] = id_at(ag_session_position(s) + i);
    if (ag_session_prefill(s, ids, n, NULL, NULL, &err) != AG_OK) fail_msg("%s", err.msg);
}

static ag_session *fork_of(ag_session *s) {
    ag_session *fork;
    ag_error err;
    if (ag_session_fork(s, &fork, &err) != AG_OK) fail_msg("%s", err.msg);
    return fork;
}

/* Makes a session whose next steps evict and, with windows, expire slots. */
static ag_session *make_full(ag_model *m, const ag_eviction_policy *policy, ag_head_budget heads) {
    ag_session *s = make(m, policy, heads);
    ag_error err;
    feed(s, PROMPT);
    const bool windows = ag_kv_cache_rows_before_expiry(s->cache) < UINT32_MAX;
    while (windows ? ag_kv_cache_rows_before_expiry(s->cache) > STEPS / 2
                   : ag_kv_cache_length(s->cache) < BUDGET + SLACK - 2) {
        if (feed_one(s, &err) != AG_OK) fail_msg("%s", err.msg);
    }
    return s;
}

static void same_slots(ag_session *a, ag_session *b) {
    static uint32_t positions[2][MAX_SEQ];
    const ag_kv_layer *layer;
    for (uint32_t l = 0; (layer = ag_kv_cache_layer(a->cache, l)); l++) {
        for (uint32_t h = 0; h < layer->n_kv_heads; h++) {
            const uint32_t n = ag_kv_cache_n_slots(a->cache, l, h);
            assert_int_equal(ag_kv_cache_n_slots(b->cache, l, h), n);
            ag_kv_cache_read_positions(a->cache, l, h, positions[0], NULL);
            ag_kv_cache_read_positions(b->cache, l, h, positions[1], NULL);
            assert_memory_equal(positions[0], positions[1], n * sizeof **positions);
            const ag_score_sums *sums[] = {ag_cache_manager_sums(a->manager),
                                           ag_cache_manager_sums(b->manager)};
            if (!sums[0]) continue;
            assert_memory_equal(ag_score_sums_of(sums[0], l, h), ag_score_sums_of(sums[1], l, h),
                                n * sizeof(float));
        }
    }
}

static void same(ag_session *a, ag_session *b) {
    assert_int_equal(ag_session_settle(a, NULL), AG_OK);
    const size_t bytes = ag_model_get_info(a->model)->n_vocab * sizeof(float);
    assert_int_equal(ag_session_position(a), ag_session_position(b));
    same_slots(a, b);
    assert_memory_equal(ag_session_logits(a), ag_session_logits(b), bytes);
}

static bool is_pending(const ag_session *s) {
    return s->manager->evictor.pending.is_pending || s->manager->scores.is_pending;
}

/* ---- what follows does it first ---- */

/* Every policy, or one in three where a case represents its neighbours. */
static size_t policy_step(void) { return test_stride() > 1 ? 3 : 1; }

/* Shares all blocks before each step, so that the step copies what it writes. Copies first ..
 * first + n - 1 fail. Returns the number of copies. */
static size_t decode_with_failures(ag_session *root, ag_session *want, size_t first, size_t n,
                                   size_t *n_pending) {
    ag_session *s = fork_of(root), *other = NULL;
    const bool adds = s->params.eviction.policy->importance == AG_IMPORTANCE_TOTAL;
    ag_error err;
    bool has_added = false; /* a failed pass keeps what it added to the sums */
    fail_from(first, n);
    for (int i = 0; i < STEPS; i++) {
        const uint32_t position = ag_session_position(s);
        if (!is_pending(s)) {
            ag_session_destroy(other);
            other = fork_of(s);
        }
        bool was_pending = is_pending(s);
        for (ag_status st; (st = feed_one(s, &err)) != AG_OK; was_pending = is_pending(s)) {
            has_added = has_added || (adds && !was_pending);
            assert_int_equal(st, AG_NOMEM);
            assert_int_equal(ag_session_position(s), position);
            assert_true(n_copies <= first + n);
        }
        assert_int_equal(ag_session_position(s), position + 1);
        *n_pending += is_pending(s);
    }
    n = n_copies;
    fail_from(0, 0);
    if (!has_added) same(s, want);
    ag_session_destroy(other);
    ag_session_destroy(s);
    return n;
}

/* Fails one copy, or two in a row, at every index. */
static size_t fail_everywhere(ag_model *m, const ag_eviction_policy *policy, ag_head_budget heads,
                              size_t first) {
    ag_session *root = make_full(m, policy, heads), *want = fork_of(root);
    ag_error err;
    size_t n_pending = 0;
    for (int i = 0; i < STEPS; i++) {
        if (feed_one(want, &err) != AG_OK) fail_msg("%s", err.msg);
    }
    const size_t n = decode_with_failures(root, want, SIZE_MAX, 0, &n_pending);
    assert_int_equal(n_pending, 0);
    for (size_t i = first; i < n; i += 3 * test_stride())
        decode_with_failures(root, want, i, 1 + i % 2, &n_pending);
    ag_session_destroy(want);
    ag_session_destroy(root);
    return n_pending;
}

static void every_policy_continues_after_failures(void **state) {
    (void)state;
    static const ag_head_budget budgets[] = {AG_HEAD_BUDGET_EVEN, AG_HEAD_BUDGET_ADAPTIVE,
                                             AG_HEAD_BUDGET_SHARES};
    const ag_eviction_policy *policy;
    for (size_t i = 1; (policy = ag_eviction_policy_at(i)); i += policy_step()) {
        size_t n_pending = 0;
        for (size_t k = 0; k < N_MODELS; k++) {
            for (size_t b = 0; b < sizeof budgets / sizeof *budgets; b++) {
                if (budgets[b] == AG_HEAD_BUDGET_ADAPTIVE &&
                    policy->importance == AG_IMPORTANCE_NONE)
                    continue;
                n_pending += fail_everywhere(models[k], policy, budgets[b], (i + k + b) % 3);
            }
        }
        if (test_stride() == 1) assert_true(n_pending > 0);
        print_message("%s: %zu pending\n", policy->name, n_pending);
    }
}

/* Makes a session with a pending eviction while no block can be copied. */
static ag_session *make_pending(ag_session *root, ag_session **other) {
    for (size_t first = 0;; first++) {
        ag_session *s = fork_of(root);
        ag_error err;
        *other = fork_of(s);
        fail_from(first, SIZE_MAX - first);
        for (int i = 0; i < STEPS && !is_pending(s); i++)
            if (feed_one(s, &err) != AG_OK) break;
        if (is_pending(s)) return s;
        ag_session_destroy(s);
        ag_session_destroy(*other);
        assert_true(first < 10000);
    }
}

static void other_calls_run_a_pending_eviction_first(void **state) {
    (void)state;
    static const int32_t prompt[3] = {5, 6, 7};
    const ag_eviction_policy *h2o = ag_eviction_policy_find("h2o");
    const ag_compress_params half = {.keep_ratio = 0.5F, .replay = 1};
    char path[] = "/tmp/antigravity-pending-XXXXXX";
    const int fd = mkstemp(path);
    ag_session *root = make_full(models[0], h2o, AG_HEAD_BUDGET_EVEN), *other, *fork;
    ag_session *s = make_pending(root, &other), *alone = make(models[0], NULL, AG_HEAD_BUDGET_EVEN);
    ag_error err;
    assert_true(fd >= 0);
    close(fd);
    int32_t ids[MAX_SEQ];
    const uint32_t position = ag_session_position(s);
    for (uint32_t i = 0; i < position; i++) ids[i] = id_at(i);
    assert_int_equal(ag_session_fork(s, &fork, &err), AG_NOMEM);
    assert_int_equal(ag_session_save(s, path, NULL, NULL, 0, &err), AG_NOMEM);
    assert_int_equal(ag_session_compress(s, ids, position, &half, NULL, &err), AG_NOMEM);
    assert_int_equal(ag_session_truncate(s, position - 1, &err), AG_NOMEM);
    assert_int_equal(ag_session_begin_prompt(s, 3, &err), AG_NOMEM);
    ag_session *const both[] = {alone, s};
    assert_int_equal(ag_session_decode_batch(both, prompt, 2, &err), AG_NOMEM);
    assert_int_equal(ag_session_position(alone), 0);
    if (ag_session_decode_batch(both, prompt, 1, &err) != AG_OK) fail_msg("%s", err.msg);
    ag_session_cancel(s);
    assert_int_equal(feed_one(s, &err), AG_CANCELLED);
    assert_true(is_pending(s));
    assert_int_equal(ag_session_position(s), position);
    fail_from(0, 0);
    /* Now a file and a fork equal a session without failures. */
    ag_session *want = fork_of(root), *restored = make(models[0], h2o, AG_HEAD_BUDGET_EVEN);
    while (ag_session_position(want) < position) assert_int_equal(feed_one(want, &err), AG_OK);
    assert_int_equal(ag_session_save(s, path, NULL, NULL, 0, &err), AG_OK);
    assert_false(is_pending(s));
    assert_int_equal(ag_session_restore(restored, path, NULL, NULL, &err), AG_OK);
    fork = fork_of(s);
    ag_session *const all[] = {want, s, fork, restored};
    for (int i = 0; i < STEPS; i++) {
        for (size_t k = 0; k < 4; k++) assert_int_equal(feed_one(all[k], &err), AG_OK);
    }
    for (size_t k = 1; k < 4; k++) same(all[k], want);
    for (size_t k = 0; k < 4; k++) ag_session_destroy(all[k]);
    ag_session_destroy(alone);
    ag_session_destroy(other);
    ag_session_destroy(root);
    unlink(path);
}

/* Nothing is pending in an empty cache. */
static void truncate_to_0_discards_a_pending_eviction(void **state) {
    (void)state;
    const ag_eviction_policy *snapkv = ag_eviction_policy_find("snapkv");
    ag_session *root = make_full(models[0], snapkv, AG_HEAD_BUDGET_ADAPTIVE), *other;
    for (int resets = 0; resets < 2; resets++) {
        ag_session *s = make_pending(root, &other);
        ag_session *want = make(models[0], snapkv, AG_HEAD_BUDGET_ADAPTIVE);
        ag_error err;
        if (resets) ag_session_reset(s);
        else assert_int_equal(ag_session_truncate(s, 0, &err), AG_OK);
        fail_from(0, 0);
        assert_false(is_pending(s));
        feed(s, PROMPT);
        feed(want, PROMPT);
        same(s, want);
        ag_session_destroy(want);
        ag_session_destroy(s);
        ag_session_destroy(other);
    }
    ag_session_destroy(root);
}

/* Chunks of a prompt are the same as without the failure. */
static void prompt_continues_after_a_failed_eviction(void **state) {
    (void)state;
    const ag_eviction_policy *policy;
    for (size_t i = 1; (policy = ag_eviction_policy_at(i)); i += policy_step()) {
        ag_session *root = make_full(models[0], policy, AG_HEAD_BUDGET_EVEN);
        ag_session *want = fork_of(root);
        feed(want, 60);
        size_t n_pending = 0;
        for (size_t first = i % 2, more = 1; more; first += 2 * test_stride()) {
            ag_session *s = fork_of(root), *other = fork_of(s);
            const uint32_t end = ag_session_position(s) + 60;
            ag_error err;
            fail_from(first, 1);
            assert_int_equal(ag_session_begin_prompt(s, 60, &err), AG_OK);
            while (ag_session_position(s) < end) {
                int32_t ids[16];
                const size_t n = ag_session_prompt_rows(s);
                for (size_t k = 0; k < n; k++) ids[k] = id_at(ag_session_position(s) + k);
                const bool last = ag_session_position(s) + n == end;
                const ag_step_item item = {.session = s,
                                           .ids = ids,
                                           .n = n,
                                           .phase = AG_PHASE_PROMPT,
                                           .logits = last ? AG_LOGITS_LAST : AG_LOGITS_NONE};
                if (ag_session_step(&item, 1, &err) != AG_OK) break;
                n_pending += is_pending(s);
            }
            more = n_failed;
            fail_from(0, 0);
            /* A failed step ends the prompt, since the rest would be another prompt. */
            if (ag_session_position(s) == end) same(s, want);
            ag_session_destroy(other);
            ag_session_destroy(s);
        }
        print_message("%s: %zu pending\n", policy->name, n_pending);
        ag_session_destroy(want);
        ag_session_destroy(root);
    }
}

static int load(void **state) {
    (void)state;
    const ag_backend_params bp = {.n_threads = 1};
    if (ag_backend_create(&bp, &backend, NULL) != AG_OK) return 1;
    for (size_t i = 0; i < N_MODELS; i++) {
        if (ag_model_load(backend, model_dirs[i], NULL, &models[i], NULL) != AG_OK) return 1;
    }
    good_ops = backend->ops;
    failing_ops = *good_ops;
    failing_ops.copy_bytes = copy_bytes;
    backend->ops = &failing_ops;
    return 0;
}

static int unload(void **state) {
    (void)state;
    backend->ops = good_ops;
    for (size_t i = 0; i < N_MODELS; i++) ag_model_destroy(models[i]);
    ag_backend_destroy(backend);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_policy_continues_after_failures),
        cmocka_unit_test(other_calls_run_a_pending_eviction_first),
        cmocka_unit_test(truncate_to_0_discards_a_pending_eviction),
        cmocka_unit_test(prompt_continues_after_a_failed_eviction),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
