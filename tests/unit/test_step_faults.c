/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that run out of memory: no session changes, and the same step works afterwards with the
 * logits of sessions in which nothing failed. */
#include "core/buffer_ops.h"
#include "core/fail.h"
#include "support/failing_allocator.h"
#include "support/stride.h"

#include <antigravity/antigravity.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MODELS AG_GOLDEN_MODELS "/"

/* Models without and with windows, with keys that layers share, with states. */
static const char *const models[] = {"gqa-llama3rope-sharded", "gemma3", "gemma4", "lfm2",
                                     "qwen3.5"};
/* The second session is a fork of the first, so both copy the block that they write. */
enum { SESSIONS = 3, STEPS = 4, BLOCK = 128, LONGEST = 40 };

static failing_allocator allocator;
static ag_backend *backend;
static ag_model *model;

static const ag_memory_ops *good_memory;

static ag_status alloc(ag_memory *m, size_t bytes, ag_usage usage, ag_buffer **out, ag_error *err) {
    if (failing_refuses(&allocator)) return AG_FAIL(err, NOMEM, "%zu bytes", bytes);
    return good_memory->alloc(m, bytes, usage, out, err);
}

static void must(ag_status st, const ag_error *err) {
    if (st != AG_OK) fail_msg("%s: %s", ag_status_name(st), err->msg);
}

static int32_t id_at(size_t i) { return (int32_t)((i * 7 + i * i % 61) % 300) + 3; }

static void feed(ag_session *s, size_t n) {
    int32_t ids[BLOCK];
    ag_error err;
    for (size_t i = 0; i < n; i++) ids[i] = id_at(ag_session_position(s) + i);
    must(ag_session_prefill(s, ids, n, NULL, NULL, &err), &err);
}

/* The first session's next slot is the last of its blocks. The other sessions' blocks are shared in
 * part, and some end within the step. */
static void make(const ag_eviction_policy *policy, ag_session *out[SESSIONS]) {
    ag_session_params p = ag_session_defaults();
    ag_error err;
    p.max_seq_len = 400;
    p.prefill_chunk = 64;
    p.eviction.policy = policy;
    p.eviction.budget_tokens = 100;
    p.eviction.recent = 8;
    p.eviction.slack = 8;
    p.eviction.snapkv_window = 8;
    must(ag_session_create(model, &p, &out[0], &err), &err);
    must(ag_session_create(model, &p, &out[2], &err), &err);
    feed(out[0], BLOCK - 1);
    feed(out[2], BLOCK - LONGEST / 2);
    must(ag_session_fork(out[0], &out[1], &err), &err);
}

static void destroy(ag_session *s[SESSIONS]) {
    for (int i = 0; i < SESSIONS; i++) ag_session_destroy(s[i]);
}

static ag_status step(ag_session *s[SESSIONS], ag_error *err) {
    static const size_t n[SESSIONS] = {1, 2, LONGEST};
    int32_t ids[SESSIONS][LONGEST];
    ag_step_item items[SESSIONS];
    for (int i = 0; i < SESSIONS; i++) {
        for (size_t t = 0; t < n[i]; t++) ids[i][t] = id_at(ag_session_position(s[i]) + t);
        items[i] = (ag_step_item){.session = s[i],
                                  .ids = ids[i],
                                  .n = n[i],
                                  .phase = n[i] > 2 ? AG_PHASE_PROMPT : AG_PHASE_DECODE,
                                  .logits = AG_LOGITS_LAST};
    }
    return ag_session_step(items, SESSIONS, err);
}

/* Tries each step with 0, 1, 2, ... allocations until it succeeds. Returns the number of failures.
 */
static size_t run(const ag_eviction_policy *policy) {
    ag_session *s[SESSIONS], *want[SESSIONS];
    size_t n_failed = 0;
    ag_error err;
    make(policy, s);
    make(policy, want);
    for (int t = 0; t < STEPS; t++) {
        must(step(want, &err), &err);
        uint32_t before[SESSIONS];
        for (int i = 0; i < SESSIONS; i++) before[i] = ag_session_position(s[i]);
        for (size_t nth = 0;; nth++) {
            allocator.nth = nth;
            atomic_store(&allocator.made, 0);
            if (step(s, &err) == AG_OK) break;
            n_failed++;
            assert_int_equal(err.status, AG_NOMEM);
            assert_true(err.msg[0]);
            for (int i = 0; i < SESSIONS; i++)
                assert_int_equal(ag_session_position(s[i]), before[i]);
        }
        allocator.nth = SIZE_MAX;
        for (int i = 0; i < SESSIONS; i++) {
            assert_int_equal(ag_session_position(s[i]), ag_session_position(want[i]));
            assert_memory_equal(ag_session_logits(s[i]), ag_session_logits(want[i]),
                                ag_model_get_info(model)->n_vocab * sizeof(float));
        }
    }
    destroy(s);
    destroy(want);
    return n_failed;
}

static void changes_no_session_when_out_of_memory(void **state) {
    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        char dir[512];
        size_t n = 0;
        ag_error err;
        ag_model_params params = ag_model_defaults();
        params.weights = AG_Q4_0;
        snprintf(dir, sizeof dir, "%s%s", MODELS, models[m]);
        must(ag_model_load(backend, dir, &params, &model, &err), &err);
        n = run(NULL);
        const ag_eviction_policy *policy;
        for (size_t i = 0; (policy = ag_eviction_policy_at(i)); i += test_stride()) {
            if (m < 2) n += run(policy);
        }
        print_message("%s: %zu tries failed\n", models[m], n);
        assert_true(n > 0);
        ag_model_destroy(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changes_no_session_when_out_of_memory),
    };
    ag_error err;
    ag_backend_params bp = {.n_threads = 1};
    failing_install(&allocator, SIZE_MAX);
    allocator.rest = true;
    if (ag_backend_create(&bp, &backend, &err) != AG_OK) return EXIT_FAILURE;
    ag_memory *memory = ag_backend_memory(backend);
    good_memory = memory->ops;
    ag_memory_ops failing_memory = *good_memory;
    failing_memory.alloc = alloc;
    failing_memory.commits_at_once = true; /* makes caches grow in steps */
    memory->ops = &failing_memory;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    memory->ops = good_memory;
    ag_backend_destroy(backend);
    return failed;
}
