/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of sessions: it matches the plan, and destroyed sessions leave none. */
#include "support/sanitized.h"

#include <antigravity/expert.h>
#include <antigravity/process.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MODEL AG_GOLDEN_MODELS "/gqa-llama3rope-sharded"

/* ---- counting allocator ---- */

typedef union header {
    size_t bytes;
    max_align_t align;
} header;

static atomic_size_t held, n_held;

static void *counted_alloc(void *user, size_t bytes) {
    (void)user;
    header *h = bytes < SIZE_MAX - sizeof *h ? malloc(sizeof *h + bytes) : NULL;
    if (!h) return NULL;
    h->bytes = bytes;
    atomic_fetch_add(&held, bytes);
    atomic_fetch_add(&n_held, 1);
    return h + 1;
}

static void counted_release(void *user, void *p) {
    (void)user;
    if (!p) return;
    header *h = (header *)p - 1;
    atomic_fetch_sub(&held, h->bytes);
    atomic_fetch_sub(&n_held, 1);
    free(h);
}

static void *counted_resize(void *user, void *p, size_t bytes) {
    void *grown = counted_alloc(user, bytes);
    if (!grown || !p) return grown;
    size_t old = ((header *)p - 1)->bytes;
    memcpy(grown, p, old < bytes ? old : bytes);
    counted_release(user, p);
    return grown;
}

/* ---- */

static ag_backend *backend;
static ag_model *model;

static int load(void **state) {
    (void)state;
    ag_set_allocator(&(ag_allocator){counted_alloc, counted_resize, counted_release, NULL});
    ag_backend_params bp = {.n_threads = 2};
    if (ag_backend_create(&bp, &backend, NULL) != AG_OK) return 1;
    return ag_model_load(backend, MODEL, NULL, &model, NULL) != AG_OK;
}

static int unload(void **state) {
    (void)state;
    ag_model_destroy(model);
    ag_backend_destroy(backend);
    ag_set_allocator(NULL);
    return n_held != 0;
}

static size_t in_use(void) { return ag_memory_bytes_in_use(ag_backend_memory(backend)); }

static ag_session_params params_of(const char *policy) {
    ag_session_params p = ag_session_defaults();
    p.max_seq_len = 500;
    p.prefill_chunk = 64;
    p.eviction.policy = ag_eviction_policy_find(policy);
    return p;
}

static ag_session *make(const ag_session_params *p) {
    ag_session *s;
    ag_error err;
    if (ag_session_create(model, p, &s, &err) != AG_OK) fail_msg("%s", err.msg);
    return s;
}

static void feed(ag_session *s, size_t n) {
    ag_error err;
    for (size_t i = 0; i < n; i++) {
        if (ag_session_decode(s, (int32_t)(i % 300), &err) != AG_OK) fail_msg("%s", err.msg);
    }
}

static size_t n_mappings(void) {
    FILE *f = fopen("/proc/self/maps", "r");
    size_t n = 0;
    if (!f) return 0;
    for (int c; (c = getc(f)) != EOF;) n += c == '\n';
    fclose(f);
    return n;
}

static size_t resident(void) {
    ag_memory_usage usage;
    ag_process_memory(&usage);
    return usage.anonymous;
}

/* Creates and destroys a session of each policy in turn, with a fork. */
static void live_and_die(size_t i) {
    size_t n = 0;
    while (ag_eviction_policy_at(n)) n++;
    ag_session_params p = params_of(ag_eviction_policy_at(i % n)->name);
    ag_session *s = make(&p), *fork;
    feed(s, 1);
    assert_int_equal(ag_session_fork(s, &fork, NULL), AG_OK);
    feed(fork, 1);
    ag_session_destroy(i % 2 ? s : fork);
    ag_session_destroy(i % 2 ? fork : s);
}

static void thousand_sessions_leave_no_memory(void **state) {
    (void)state;
    for (size_t i = 0; i < 20; i++) live_and_die(i);
    size_t bytes = in_use(), heap = held, blocks = n_held, maps = n_mappings(), pages = resident();
    for (size_t i = 0; i < 1000; i++) live_and_die(i);
    assert_int_equal(in_use(), bytes);
    assert_int_equal(held, heap);
    assert_int_equal(n_held, blocks);
    if (SANITIZED) return;
    assert_int_equal(n_mappings(), maps);
    size_t now = resident(), more = now > pages ? now - pages : 0;
    print_message("%zu bytes resident, %zu more than after 20 sessions\n", now, more);
    assert_true(more < 1 << 20);
}

static void memory_grows_with_the_filled_slots(void **state) {
    (void)state;
    ag_session_params p = params_of("none");
    ag_session_destroy(make(&p));
    size_t before = in_use(), logits = ag_model_get_info(model)->n_vocab * sizeof(float);
    ag_session *s = make(&p);
    assert_int_equal(in_use() - before, logits);
    for (int i = 0; i < 3; i++) {
        feed(s, 100);
        assert_int_equal(in_use() - before - logits,
                         ag_kv_cache_memory_usage_bytes(ag_session_kv_cache(s)));
    }
    assert_int_equal(ag_session_truncate(s, 100, NULL), AG_OK);
    assert_int_equal(in_use() - before - logits,
                     ag_kv_cache_capacity_bytes(ag_session_kv_cache(s)) / 4);
    ag_session_reset(s);
    assert_int_equal(in_use() - before, logits);
    feed(s, 1);
    ag_session_destroy(s);
    assert_int_equal(in_use(), before);
}

/* Returns what is allocated when a prompt ends inside a chunk: 256 queries of every layer, and
 * their attention. */
static size_t bytes_of_cut_chunk(const ag_eviction_policy *policy) {
    const ag_model_info *info = ag_model_get_info(model);
    if (policy->importance != AG_IMPORTANCE_CHUNK) return 0;
    return (size_t)(info->n_layers + 1) * 256 * info->n_heads * info->head_dim * sizeof(float);
}

static void plan_includes_the_policy(void **state) {
    (void)state;
    ag_session_params none = params_of("none");
    size_t empty = held;
    ag_session *s = make(&none);
    size_t plain = held - empty;
    ag_session_destroy(s);
    for (size_t i = 0; ag_eviction_policy_at(i); i++) {
        ag_session_params p = params_of(ag_eviction_policy_at(i)->name);
        ag_session_plan plan;
        assert_int_equal(ag_session_plan_memory(ag_model_get_info(model), &p, &plan, NULL), AG_OK);
        s = make(&p);
        size_t takes = held - empty - plain + bytes_of_cut_chunk(p.eviction.policy);
        assert_true(plan.eviction_bytes <= takes);
        assert_true(takes - plan.eviction_bytes < 4096); /* small temporary rows */
        ag_session_destroy(s);
    }
}

/* The text repeats itself, so that each token is drafted. */
static void generate(ag_session *s) {
    ag_error err;
    int32_t ids[60];
    for (int32_t i = 0; i < 60; i++) ids[i] = 3 + i % 7;
    const ag_logit_bias bias = {.id = 3, .bias = 1000};
    ag_sampler_params greedy = ag_sampler_defaults();
    greedy.temperature = 0;
    greedy.repetition_penalty = 1;
    greedy.logit_bias = &bias;
    greedy.n_logit_bias = 1;
    ag_sampler *sampler;
    const int32_t n_vocab = (int32_t)ag_model_get_info(model)->n_vocab;
    assert_int_equal(ag_sampler_create(&greedy, n_vocab, &sampler, &err), AG_OK);
    ag_generate_params g = ag_generate_defaults();
    g.max_tokens = 40;
    g.ignore_eos = true;
    g.sampler = sampler;
    g.speculate = AG_SPECULATE_ALWAYS;
    ag_generate_stats stats;
    if (ag_session_generate(s, ids, 60, &g, &stats, &err) != AG_OK) fail_msg("%s", err.msg);
    assert_true(stats.n_accepted > 0);
    ag_sampler_destroy(sampler);
}

static void plan_includes_drafts(void **state) {
    (void)state;
    const size_t n_vocab = ag_model_get_info(model)->n_vocab, rows = 16 * n_vocab * sizeof(float);
    static const char *const policies[] = {"none", "sliding"};
    for (size_t i = 0; i < 2; i++) {
        const ag_session_params p = params_of(policies[i]);
        ag_session_plan plan;
        assert_int_equal(ag_session_plan_memory(ag_model_get_info(model), &p, &plan, NULL), AG_OK);
        /* A session with a full cache and logits exists, and scratch for many rows. */
        ag_session *s = make(&p);
        int32_t ids[100];
        for (int32_t k = 0; k < 100; k++) ids[k] = k;
        assert_int_equal(ag_session_prefill(s, ids, 100, NULL, NULL, NULL), AG_OK);
        const size_t heap = held, counted = in_use();
        const size_t cache = ag_kv_cache_memory_usage_bytes(ag_session_kv_cache(s));
        assert_int_equal(ag_session_truncate(s, 1, NULL), AG_OK);
        generate(s);
        const size_t grown = ag_kv_cache_memory_usage_bytes(ag_session_kv_cache(s)) - cache;
        assert_int_equal(grown, 0);
        /* The model has its rows already if it generated before. */
        assert_int_equal(in_use() - counted, i ? 0 : rows);
        const size_t takes = held - heap + (i ? rows : 0);
        assert_in_range(takes, plan.draft_bytes, plan.draft_bytes + 4096);
        ag_session_destroy(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thousand_sessions_leave_no_memory),
        cmocka_unit_test(memory_grows_with_the_filled_slots),
        cmocka_unit_test(plan_includes_the_policy),
        cmocka_unit_test(plan_includes_drafts),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
