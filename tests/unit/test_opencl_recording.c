/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of decoding replayed from a recorded one against the same steps operation by operation: the
 * logits are the same bits, whatever the cache does in between. */
#include "backend/opencl/steps.h"
#include "models/model_impl.h"
#include "support/guarding_allocator.h"
#include "unit/opencl_device.h"

#include <antigravity/antigravity.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MODELS AG_SOURCE_DIR "/tests/data/golden/models/"

enum {
    N_PROMPT = 5,
    N_TOKENS = 270
}; /* into the third block of the cache, each a run of its own */

static ag_backend *be;
static ag_model *model;

static int32_t token_at(size_t i) {
    return (int32_t)(i * 2654435761u % ag_model_get_info(model)->n_vocab);
}

static void must(ag_status st, const ag_error *err) {
    if (st != AG_OK) fail_msg("%s: %s", ag_status_name(st), err->msg);
}

static ag_session *new_session(const ag_session_params *params) {
    ag_session *s;
    ag_error err;
    must(ag_session_create(model, params, &s, &err), &err);
    return s;
}

static void consume(ag_session *s, ag_cl_switch plan, size_t i, size_t n) {
    int32_t ids[N_PROMPT];
    ag_error err;
    for (size_t t = 0; t < n; t++) ids[t] = token_at(i + t);
    ag_cl_of(be)->switches.recording = plan;
    must(ag_session_prefill(s, ids, n, NULL, NULL, &err), &err);
}

static uint32_t n_replayed(void) { return ag_cl_of(be)->counts.replayed; }

static void assert_same_logits(const ag_session *a, const ag_session *b, size_t i) {
    const size_t bytes = ag_model_get_info(model)->n_vocab * sizeof(float);
    if (memcmp(ag_session_logits(a), ag_session_logits(b), bytes) != 0) {
        fail_msg("other logits after token %zu", i);
    }
}

/* Token i in both sessions, replayed or recorded in one and by operations in the other. */
static void step(ag_session *recorded, ag_session *plain, size_t i) {
    consume(recorded, AG_CL_ON, i, 1);
    const uint32_t before = n_replayed();
    consume(plain, AG_CL_OFF, i, 1);
    assert_int_equal(n_replayed(), before);
    assert_same_logits(recorded, plain, i);
}

/* How many of the steps were replayed. */
static uint32_t compare(const ag_session_params *params, size_t n_tokens) {
    ag_session *recorded = new_session(params), *plain = new_session(params);
    const uint32_t before = n_replayed();
    consume(recorded, AG_CL_ON, 0, N_PROMPT);
    consume(plain, AG_CL_OFF, 0, N_PROMPT);
    for (size_t i = N_PROMPT; i < n_tokens; i++) step(recorded, plain, i);
    assert_int_equal(ag_kv_cache_length(ag_session_kv_cache(recorded)),
                     ag_kv_cache_length(ag_session_kv_cache(plain)));
    ag_session_destroy(recorded);
    ag_session_destroy(plain);
    return n_replayed() - before;
}

/* ---- caches ---- */

static void most_tokens_of_a_growing_cache_are_replayed(void **state) {
    (void)state;
    const uint32_t n = compare(NULL, N_TOKENS);
    assert_int_equal(n, N_TOKENS - N_PROMPT - 3); /* all but the first in each block */
}

/* With recordings and without: once for a layer's first block, and once for the next. */
static void tables_of_blocks_are_sent_when_they_change(void **state) {
    (void)state;
    const uint32_t layers = ag_model_get_info(model)->n_layers;
    const ag_cl_switch ways[] = {AG_CL_OFF, AG_CL_ON};
    for (size_t w = 0; w < 2; w++) {
        const uint32_t *const sent = &ag_cl_of(be)->counts.tables;
        ag_session *s = new_session(NULL);
        consume(s, ways[w], 0, N_PROMPT);
        consume(s, ways[w], N_PROMPT, 1);
        const uint32_t first = *sent;
        for (size_t i = N_PROMPT + 1; i < 128; i++) consume(s, ways[w], i, 1);
        assert_int_equal(*sent, first);
        for (size_t i = 128; i < 200; i++) consume(s, ways[w], i, 1);
        assert_int_equal(*sent, first + layers);
        ag_session_destroy(s);
    }
}

static void every_type_of_cache_is_replayed(void **state) {
    (void)state;
    enum { TOKENS = 140 };
    const ag_dtype types[][2] = {
        {AG_F32, AG_F32}, {AG_Q8_0, AG_Q8_0}, {AG_F16, AG_Q4_0}, {AG_Q4_0, AG_Q4_0}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        ag_session_params p = ag_session_defaults();
        p.k_type = types[i][0];
        p.v_type = types[i][1];
        const size_t head_dim = ag_model_get_info(model)->head_dim;
        if (head_dim % ag_dtype_block(p.k_type) || head_dim % ag_dtype_block(p.v_type)) continue;
        assert_int_equal(compare(&p, TOKENS), TOKENS - N_PROMPT - 2);
    }
}

static void evictions_change_only_what_is_sent(void **state) {
    (void)state;
    static const char *const policies[] = {"streaming", "keydiff", "snapkv", "h2o"};
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        ag_session_params p = ag_session_defaults();
        p.eviction.policy = ag_eviction_policy_find(policies[i]);
        p.eviction.budget_tokens = 150; /* the second block comes and goes */
        assert_true(compare(&p, N_TOKENS) > N_TOKENS / 2);
    }
}

static void protected_tokens_of_the_start_go_by_operations(void **state) {
    (void)state;
    enum { TOKENS = 40 };
    ag_session_params p = ag_session_defaults();
    p.eviction.policy = ag_eviction_policy_find("streaming");
    p.eviction.budget_tokens = 150;
    p.eviction.protected_prefix = N_PROMPT + 3;
    assert_int_equal(compare(&p, TOKENS), TOKENS - N_PROMPT - 3 - 1);
}

/* ---- sessions ---- */

static uint32_t n_recorded(void) { return ag_cl_of(be)->counts.recorded; }

/* A session whose steps are recorded, one whose steps are not, and their model. */
typedef struct pair {
    ag_model *model;
    ag_session *recorded, *plain;
} pair;

static pair new_pair(ag_model *of, size_t first_token) {
    pair p = {.model = model = of};
    p.recorded = new_session(NULL);
    p.plain = new_session(NULL);
    consume(p.recorded, AG_CL_ON, first_token, N_PROMPT);
    consume(p.plain, AG_CL_OFF, first_token, N_PROMPT);
    return p;
}

static void end_pair(pair *p) {
    ag_session_destroy(p->recorded);
    ag_session_destroy(p->plain);
}

static void take_turns(const pair *pairs, size_t n, size_t turn, size_t n_tokens) {
    for (size_t i = 0; i < n_tokens; i++) {
        const pair *p = &pairs[i / turn % n];
        model = p->model;
        step(p->recorded, p->plain, i);
    }
}

/* Each records its first step, and none of those after it. */
static void expect_no_recording_after_the_first_turn(const pair *pairs, size_t n) {
    enum { TURN = 3, TURNS = 8 };
    const uint32_t recorded = n_recorded(), replayed = n_replayed();
    take_turns(pairs, n, TURN, n * TURN);
    assert_int_equal(n_recorded() - recorded, n);
    take_turns(pairs, n, TURN, n * TURN * TURNS);
    assert_int_equal(n_recorded() - recorded, n);
    assert_int_equal(n_replayed() - replayed, n * (TURN * (TURNS + 1) - 1));
}

static ag_model *load_model(const char *name) {
    ag_model *loaded;
    ag_error err;
    char dir[512];
    snprintf(dir, sizeof dir, "%s%s", MODELS, name);
    must(ag_model_load(be, dir, NULL, &loaded, &err), &err);
    return loaded;
}

static void sessions_take_turns(void **state) {
    (void)state;
    enum { SESSIONS = 3 };
    pair pairs[SESSIONS];
    for (size_t i = 0; i < SESSIONS; i++) pairs[i] = new_pair(model, i);
    expect_no_recording_after_the_first_turn(pairs, SESSIONS);
    /* One that ends takes nothing from the others. */
    end_pair(&pairs[0]);
    const uint32_t recorded = n_recorded();
    take_turns(pairs + 1, SESSIONS - 1, 1, 6);
    assert_int_equal(n_recorded(), recorded);
    for (size_t i = 1; i < SESSIONS; i++) end_pair(&pairs[i]);
}

/* A model that comes where another one was is another model. */
static void models_take_turns(void **state) {
    (void)state;
    ag_model *here = model;
    for (int i = 0; i < 3; i++) {
        ag_model *other = load_model(i % 2 ? "linear-rope" : "mistral-v5-config");
        pair pairs[] = {new_pair(here, 0), new_pair(other, 3)};
        expect_no_recording_after_the_first_turn(pairs, 2);
        end_pair(&pairs[0]);
        end_pair(&pairs[1]);
        ag_model_destroy(other);
    }
    model = here;
}

static void of_too_many_sessions_the_oldest_is_recorded_again(void **state) {
    (void)state;
    enum { SESSIONS = AG_CL_STEP_ENTRIES + 1 };
    pair pairs[SESSIONS];
    for (size_t i = 0; i < SESSIONS; i++) pairs[i] = new_pair(model, i);
    const uint32_t recorded = n_recorded();
    take_turns(pairs, SESSIONS, 2, SESSIONS * 2);
    assert_int_equal(n_recorded() - recorded, SESSIONS);
    take_turns(pairs + 1, SESSIONS - 1, 1, SESSIONS - 1);
    assert_int_equal(n_recorded() - recorded, SESSIONS);
    take_turns(pairs, 1, 1, 1);
    assert_int_equal(n_recorded() - recorded, SESSIONS + 1);
    for (size_t i = 0; i < SESSIONS; i++) end_pair(&pairs[i]);
}

/* Who writes first to a block that both hold gets a copy of it somewhere else. */
static void a_fork_is_another_cache(void **state) {
    (void)state;
    ag_session *recorded = new_session(NULL), *plain = new_session(NULL), *fork, *plain_fork;
    ag_error err;
    consume(recorded, AG_CL_ON, 0, N_PROMPT);
    consume(plain, AG_CL_OFF, 0, N_PROMPT);
    for (size_t i = 0; i < 4; i++) step(recorded, plain, i);
    must(ag_session_fork(recorded, &fork, &err), &err);
    must(ag_session_fork(plain, &plain_fork, &err), &err);
    for (size_t i = 4; i < 20; i += 2) {
        step(recorded, plain, i);
        step(fork, plain_fork, i + 1);
    }
    ag_session_destroy(fork);
    ag_session_destroy(plain_fork);
    ag_session_destroy(recorded);
    ag_session_destroy(plain);
}

/* A session of longer chunks lets go of the workspace and takes a larger one. */
static void a_workspace_may_be_replaced(void **state) {
    (void)state;
    ag_session_params p = ag_session_defaults();
    p.prefill_chunk = 16;
    ag_session *recorded = new_session(&p), *plain = new_session(&p);
    consume(recorded, AG_CL_ON, 0, N_PROMPT);
    consume(plain, AG_CL_OFF, 0, N_PROMPT);
    for (size_t i = 0; i < 40; i++) {
        if (i % 10 == 5) {
            p.prefill_chunk = (uint32_t)(100 + 10 * i);
            ag_session *other = new_session(&p);
            if (i % 20 == 5) consume(other, AG_CL_ON, 3, 1);
            ag_session_destroy(other);
        }
        step(recorded, plain, i);
    }
    ag_session_destroy(recorded);
    ag_session_destroy(plain);
}

/* Where a session was, the next one may find the same addresses. */
static void nothing_is_bound_to_a_session_that_is_gone(void **state) {
    (void)state;
    ag_session *s = new_session(NULL);
    for (size_t i = 0; i < 3; i++) consume(s, AG_CL_ON, i, 1);
    const ag_cl_recording *plan = &ag_cl_of(be)->steps->newest->recording;
    assert_true(plan->known && plan->launches.n);
    ag_session_destroy(s);
    assert_int_equal(ag_sync(be), AG_OK);
    assert_false(plan->known || plan->launches.n);
    for (int i = 0; i < 3; i++) assert_int_equal(compare(NULL, N_PROMPT + 4), 3);
}

static uint32_t compare_model_of(uint32_t n_kv_heads, uint32_t prefill_chunk, size_t n_tokens) {
    ag_model_spec spec = ag_spec_plain(32, n_kv_heads, 4);
    spec.vocab_size = 64;
    spec.hidden_size = spec.intermediate_size = 32;
    spec.n_layers = 24;
    spec.max_positions = 256;
    const ag_model_params mp = ag_model_defaults();
    ag_model *bundled = model;
    ag_error err;
    ag_session_params p = ag_session_defaults();
    p.max_seq_len = 200;
    p.prefill_chunk = prefill_chunk;
    must(ag_model_random(be, &spec, &mp, &model, &err), &err);
    const uint32_t n = compare(&p, n_tokens);
    ag_model_destroy(model);
    model = bundled;
    return n;
}

/* What a step sends needs rows behind the token's own. Here a step of few heads is recorded; for
 * one of many there are too few rows, then enough. */
static void a_step_of_another_size_takes_memory_of_its_own(void **state) {
    (void)state;
    enum { TOKENS = 12, REPLAYED = TOKENS - N_PROMPT - 1 };
    assert_int_equal(compare_model_of(1, 8, TOKENS), REPLAYED);
    assert_int_equal(compare_model_of(32, 8, TOKENS), 0);
    assert_int_equal(compare_model_of(32, 200, TOKENS), REPLAYED);
    assert_int_equal(compare_model_of(1, 8, TOKENS), REPLAYED);
    assert_int_equal(guarding_n_overrun, 0);
}

/* ---- for every kind of kernel and model ---- */

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(most_tokens_of_a_growing_cache_are_replayed),
    cmocka_unit_test(tables_of_blocks_are_sent_when_they_change),
    cmocka_unit_test(every_type_of_cache_is_replayed),
    cmocka_unit_test(evictions_change_only_what_is_sent),
    cmocka_unit_test(protected_tokens_of_the_start_go_by_operations),
    cmocka_unit_test(sessions_take_turns),
    cmocka_unit_test(models_take_turns),
    cmocka_unit_test(of_too_many_sessions_the_oldest_is_recorded_again),
    cmocka_unit_test(a_fork_is_another_cache),
    cmocka_unit_test(a_workspace_may_be_replaced),
    cmocka_unit_test(a_step_of_another_size_takes_memory_of_its_own),
    cmocka_unit_test(nothing_is_bound_to_a_session_that_is_gone),
};

/* Kernels for GPUs take long on processors. */
static const struct CMUnitTest few_tests[] = {
    cmocka_unit_test(most_tokens_of_a_growing_cache_are_replayed),
    cmocka_unit_test(sessions_take_turns),
    cmocka_unit_test(a_fork_is_another_cache),
};

static int run(const char *name, const char *lanes, bool zero_copy, ag_dtype weights) {
    ag_error err;
    ag_backend_params bp = {.name = "opencl", .zero_copy = zero_copy};
    ag_model_params mp = ag_model_defaults();
    char dir[512];
    snprintf(dir, sizeof dir, "%s%s", MODELS, name);
    mp.weights = weights;
    setenv("AG_OPENCL_LANES", lanes, 1);
    printf("%s in %s, AG_OPENCL_LANES=%s%s\n", name, ag_dtype_name(weights), lanes,
           zero_copy ? ", shared memory" : "");
    ag_status st = ag_backend_create(&bp, &be, &err);
    if (st == AG_OK) st = ag_model_load(be, dir, &mp, &model, &err);
    if (st != AG_OK) {
        printf("%s\n", err.msg);
        return 1;
    }
    const int failed = *lanes == '1' ? cmocka_run_group_tests(few_tests, NULL, NULL)
                                     : cmocka_run_group_tests(tests, NULL, NULL);
    ag_model_destroy(model);
    ag_backend_destroy(be);
    return failed;
}

int main(void) {
    guarding_install();
    ag_backend *any = open_opencl();
    if (!any) return EXIT_SKIPPED;
    ag_backend_destroy(any);
    setenv("AG_OPENCL_TOKEN", "0", 1);
    int failed = run("gqa-llama3rope-sharded", "0", false, AG_Q4_0);
    failed += run("gqa-llama3rope-sharded", "1", false, AG_Q4_0);
    failed += run("bias-wide-head", "0", true, AG_Q8_0);
    failed += run("mqa-odd-sizes-f16", "1", false, AG_F16);
    return failed;
}
