/* SPDX-License-Identifier: Apache-2.0 */
/* A whole token in one launch against the same token operation by operation.
 * "test_opencl_token all" compares each token from the prompt on and takes longer choices. */
#include "backend/opencl/steps.h"
#include "cache/eviction/score_sums.h"
#include "models/model_impl.h"
#include "session/session_impl.h"
#include "unit/opencl_device.h"
#include "unit/random_filter.h"

#include <antigravity/antigravity.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static ag_backend *be;
static ag_model *model;
static bool takes_all;

enum { N_PROMPT = 7, N_TOKENS = 150 }; /* into the second block of the cache */

/* Quantised activations, and weights of attention in halves on some devices, against floats. */
static const double close_enough = 0.08, closer = 0.015;

static ag_session *new_session(const ag_session_params *params) {
    ag_session *s;
    ag_error err;
    if (ag_session_create(model, params, &s, &err) != AG_OK) fail_msg("%s", err.msg);
    return s;
}

static int32_t token_at(size_t i) { return (int32_t)(i * 2654435761u % 4000); }

static void consume(ag_session *s, ag_cl_switch whole, size_t i, size_t n) {
    int32_t ids[N_TOKENS];
    ag_error err;
    for (size_t t = 0; t < n; t++) ids[t] = token_at(i + t);
    ag_cl_of(be)->switches.token = whole;
    if (ag_session_prefill(s, ids, n, NULL, NULL, &err) != AG_OK) fail_msg("%s", err.msg);
}

/* Root of the mean square of the difference, as a share of that of the logits. */
static double distance(ag_session *a, ag_session *b) {
    const float *x = ag_session_logits(a), *y = ag_session_logits(b);
    double difference = 0, size = 0;
    for (uint32_t i = 0; i < ag_model_get_info(model)->n_vocab; i++) {
        difference += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        size += (double)y[i] * (double)y[i];
    }
    return sqrt(difference / size);
}

static uint32_t steps_taken(void) { return ag_cl_of(be)->counts.launched; }

/* The same of the sums of attention weights; 0: the policy has none. */
static double distance_of_sums(ag_session *a, ag_session *b) {
    ag_score_sums *x = ag_cache_manager_sums(a->manager), *y = ag_cache_manager_sums(b->manager);
    double difference = 0, size = 0;
    ag_error err;
    for (uint32_t l = 0; x && l < ag_model_get_info(model)->n_layers; l++) {
        if (ag_score_sums_fetch(x, l, &err) != AG_OK) fail_msg("%s", err.msg);
        if (ag_score_sums_fetch(y, l, &err) != AG_OK) fail_msg("%s", err.msg);
        for (uint32_t h = 0; h < ag_kv_cache_layer(a->cache, l)->n_kv_heads; h++) {
            const float *p = ag_score_sums_of(x, l, h), *q = ag_score_sums_of(y, l, h);
            for (uint32_t i = 0; i < ag_kv_cache_n_slots(b->cache, l, h); i++) {
                if (isinf(q[i]) && p[i] == q[i]) continue; /* retained whatever happens */
                difference += ((double)p[i] - (double)q[i]) * ((double)p[i] - (double)q[i]);
                size += (double)q[i] * (double)q[i];
            }
        }
    }
    return size > 0 ? sqrt(difference / size) : 0;
}

/* Returns the largest distance of tokens `from` to n - 1, those before being read at once. */
static double compare(const ag_session_params *params, size_t from, size_t n, bool expect_taken) {
    ag_session *whole, *parts = new_session(params);
    double worst = 0;
    ag_error err;
    if (takes_all && from > N_PROMPT) from = N_PROMPT, n = N_TOKENS;
    consume(parts, AG_CL_OFF, 0, from);
    if (ag_session_fork(parts, &whole, &err) != AG_OK) fail_msg("%s", err.msg);
    for (size_t i = from; i < n; i++) {
        const uint32_t before = steps_taken();
        consume(whole, AG_CL_ON, i, 1);
        assert_int_equal(steps_taken() != before, expect_taken);
        const uint32_t taken = steps_taken();
        consume(parts, AG_CL_OFF, i, 1);
        assert_int_equal(steps_taken(), taken);
        const double d = distance(whole, parts);
        if (!(d < worst)) worst = d;
    }
    assert_int_equal(ag_kv_cache_length(ag_session_kv_cache(whole)),
                     ag_kv_cache_length(ag_session_kv_cache(parts)));
    const double of_sums = distance_of_sums(whole, parts);
    ag_session_destroy(whole);
    ag_session_destroy(parts);
    printf("largest distance of the logits: %.4f, of sums: %.4f\n", worst, of_sums);
    return of_sums <= worst ? worst : of_sums;
}

static void launch_equals_operations(void **state) {
    (void)state;
    assert_true(compare(NULL, 112, 144, true) < close_enough);
}

static void launch_equals_operations_after_evictions(void **state) {
    (void)state;
    ag_session_params p = ag_session_defaults();
    p.eviction.policy = ag_eviction_policy_find("streaming");
    p.eviction.budget_tokens = 48;
    p.eviction.slack = 16;
    assert_true(compare(&p, 56, 96, true) < close_enough);
}

/* Returns a model of random weights. window: of attention; 0: all slots. On processors its kernel
 * is the bundled model's. */
static ag_model *random_model(ag_dtype weights, uint32_t max_positions, uint32_t window) {
    ag_model_spec spec = ag_spec_plain(4, 2, 64);
    spec.vocab_size = 4096;
    spec.hidden_size = 256;
    spec.intermediate_size = 768;
    spec.n_layers = 2;
    spec.max_positions = max_positions;
    spec.kinds[0].window = window;
    ag_model_params mp = ag_model_defaults();
    mp.weights = weights;
    ag_model *made;
    ag_error err;
    if (ag_model_random(be, &spec, &mp, &made, &err) != AG_OK) fail_msg("%s", err.msg);
    return made;
}

/* Protected keys are rotated before each step. */
static void launch_equals_operations_past_the_trained_length(void **state) {
    (void)state;
    ag_session_params p = ag_session_defaults();
    ag_model *bundled = model;
    model = random_model(AG_Q4_0, N_TOKENS / 2, 0);
    p.eviction.policy = ag_eviction_policy_find("streaming");
    p.eviction.budget_tokens = 40;
    p.eviction.recent = 16;
    p.eviction.slack = 8;
    assert_true(compare(&p, 64, 96, true) < close_enough);
    ag_model_destroy(model);
    model = bundled;
}

/* Random weights lose less on the way than learned ones. */
static void launch_equals_operations_with_each_type_of_weights(void **state) {
    (void)state;
    ag_model *bundled = model;
    for (unsigned t = 0; t < AG_DTYPE_COUNT; t++) {
        if (!(AG_CL_TOKEN_BLOCKS >> t & 1)) continue;
        printf("%s: ", ag_dtype_name((ag_dtype)t));
        model = random_model((ag_dtype)t, N_TOKENS, 0);
        assert_true(compare(NULL, N_PROMPT, 16, true) < closer);
        ag_model_destroy(model);
    }
    model = bundled;
}

/* Sessions of two models alternate by token. Only the first round uploads their parameters. */
static void sessions_and_models_take_turns(void **state) {
    (void)state;
    enum { SESSIONS = 4 };
    const size_t n_turns = takes_all ? 20 : 8;
    ag_model *both[2] = {model, NULL};
    const ag_model_params mp = ag_model_defaults();
    ag_error err;
    if (ag_model_load(be, AG_SERVED_DEMO, &mp, &both[1], &err) != AG_OK) {
        fail_msg("%s", err.msg);
    }
    ag_session *together[SESSIONS], *alone;
    for (size_t i = 0; i < SESSIONS; i++) {
        model = both[i % 2];
        together[i] = new_session(NULL);
        consume(together[i], AG_CL_ON, i, N_PROMPT);
    }
    const ag_cl_backend *cl = ag_cl_of(be);
    uint32_t uploaded = 0, compiled = 0;
    for (size_t t = 0; t < n_turns; t++) {
        for (size_t i = 0; i < SESSIONS; i++) consume(together[i], AG_CL_ON, i + t, 1);
        if (t == 0) uploaded = cl->counts.uploaded;
        if (t == 0) compiled = cl->programs.n_compiled + cl->programs.n_from_cache;
    }
    assert_int_equal(cl->counts.uploaded, uploaded);
    assert_int_equal(cl->programs.n_compiled + cl->programs.n_from_cache, compiled);
    for (size_t i = 0; i < SESSIONS; i++) {
        model = both[i % 2];
        alone = new_session(NULL);
        consume(alone, AG_CL_ON, i, N_PROMPT);
        for (size_t t = 0; t < n_turns; t++) consume(alone, AG_CL_ON, i + t, 1);
        assert_true(distance(together[i], alone) < 1e-6);
        ag_session_destroy(alone);
        ag_session_destroy(together[i]);
    }
    model = both[0];
    ag_model_destroy(both[1]);
}

/* Few sessions in one step have a launch each. The third one's protected tokens need operations. */
static void few_sessions_of_a_step_have_launches_of_their_own(void **state) {
    (void)state;
    enum { SESSIONS = 4 };
    ag_session_params protected = ag_session_defaults();
    protected.eviction.policy = ag_eviction_policy_find("streaming");
    protected.eviction.budget_tokens = 48;
    protected.eviction.protected_prefix = 2 * N_PROMPT;
    protected.eviction.slack = 16;
    ag_session *together[SESSIONS], *alone[SESSIONS];
    ag_error err;
    for (size_t n = 2; n <= SESSIONS; n++) {
        ag_step_item items[SESSIONS] = {{0}};
        int32_t ids[SESSIONS];
        for (size_t i = 0; i < n; i++) {
            const ag_session_params *params = i == 2 ? &protected : NULL;
            together[i] = new_session(params);
            alone[i] = new_session(params);
            consume(together[i], AG_CL_ON, i, N_PROMPT);
            consume(alone[i], AG_CL_ON, i, N_PROMPT);
            ids[i] = token_at(i + N_PROMPT);
            items[i] = (ag_step_item){.session = together[i],
                                      .ids = &ids[i],
                                      .n = 1,
                                      .phase = AG_PHASE_DECODE,
                                      .logits = AG_LOGITS_LAST};
        }
        const uint32_t before = steps_taken();
        if (ag_session_step(items, n, &err) != AG_OK) fail_msg("%s", err.msg);
        assert_int_equal(steps_taken() - before, n > 2 ? n - 1 : n);
        for (size_t i = 0; i < n; i++) {
            consume(alone[i], AG_CL_ON, i + N_PROMPT, 1);
            assert_true(distance(together[i], alone[i]) < 1e-6);
            assert_int_equal(ag_kv_cache_length(ag_session_kv_cache(together[i])), N_PROMPT + 1);
            ag_session_destroy(together[i]);
            ag_session_destroy(alone[i]);
        }
    }
}

/* Sums of attention weights of each decoded token, and maxima of the newest one. */
static void launch_adds_to_the_sums_of_policies(void **state) {
    (void)state;
    static const char *const policies[] = {"h2o", "tova", "snapkv"};
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        ag_session_params p = ag_session_defaults();
        p.eviction.policy = ag_eviction_policy_find(policies[i]);
        p.eviction.budget_tokens = 48;
        p.eviction.slack = 16;
        printf("%s: ", policies[i]);
        assert_true(compare(&p, 56, 80, true) < close_enough);
    }
}

/* The kernel writes no scores of slots outside a window. */
static void operations_add_to_sums_in_models_with_windows(void **state) {
    (void)state;
    ag_session_params p = ag_session_defaults();
    ag_model *bundled = model;
    p.eviction.policy = ag_eviction_policy_find("h2o");
    p.eviction.budget_tokens = 48;
    p.eviction.slack = 16;
    model = random_model(AG_Q4_0, N_TOKENS, 32);
    assert_true(compare(&p, 56, 72, false) < close_enough);
    assert_true(compare(NULL, 56, 72, true) < close_enough);
    ag_model_destroy(model);
    model = bundled;
}

/* By operations: once for a layer's first block, and once for the next. With addresses, also
 * for the writing of new rows, because the memory of the blocks has moved. */
static void tables_of_blocks_are_sent_when_they_change(void **state) {
    (void)state;
    const uint32_t *const sent = &ag_cl_of(be)->counts.tables;
    ag_session *s = new_session(NULL);
    consume(s, AG_CL_OFF, 0, AG_KV_BLOCK - 3);
    consume(s, AG_CL_OFF, AG_KV_BLOCK - 3, 1);
    const uint32_t first = *sent;
    consume(s, AG_CL_OFF, AG_KV_BLOCK - 2, 1);
    consume(s, AG_CL_OFF, AG_KV_BLOCK - 1, 1);
    assert_int_equal(*sent, first);
    for (size_t i = 0; i < 3; i++) consume(s, AG_CL_OFF, i, 1);
    const uint32_t times = ag_cl_of(be)->by_address ? 2 : 1;
    assert_int_equal(*sent, first + times * ag_model_get_info(model)->n_layers);
    ag_session_destroy(s);
}

/* ---- the choice of the token, which the launch makes, too ---- */

enum { N_CHOSEN = 24 };
typedef struct heard {
    int32_t ids[N_CHOSEN];
    size_t n;
} heard;

static bool hear(void *user, int32_t id, const char *text, size_t len) {
    heard *h = user;
    (void)text;
    (void)len;
    if (h->n < N_CHOSEN) h->ids[h->n++] = id;
    return true;
}

static ag_sampler *new_sampler(const ag_sampler_params *p) {
    ag_sampler *s;
    ag_error err;
    if (ag_sampler_create(p, (int32_t)ag_model_get_info(model)->n_vocab, &s, &err) != AG_OK) {
        fail_msg("%s", err.msg);
    }
    return s;
}

/* filters: equal ones for both texts, or NULL. */
static void compare_choices(const ag_sampler_params *p, random_filter *filters,
                            bool expect_listed) {
    const uint32_t n_chosen = takes_all ? N_CHOSEN : N_CHOSEN / 2;
    ag_generate_params g = ag_generate_defaults();
    ag_session *s = new_session(NULL), *rows = new_session(NULL);
    ag_sampler *sampler = new_sampler(p);
    heard h = {.n = 0};
    ag_error err;
    g.sampler = new_sampler(p);
    for (size_t i = 0; filters && i < 2; i++) {
        ag_sampler *to = i ? sampler : g.sampler;
        assert_int_equal(ag_sampler_set_filter(to, &filters[i].base, &err), AG_OK);
    }
    g.max_tokens = n_chosen;
    g.ignore_eos = true;
    g.on_token = hear;
    g.on_token_user = &h;
    const int32_t prompt[] = {3, 40, 77};
    ag_cl_of(be)->switches.token = AG_CL_ON;
    if (ag_session_generate(s, prompt, 3, &g, NULL, &err) != AG_OK) fail_msg("%s", err.msg);
    const cl_uint listed = newest_token(be)->result.n_listed;
    if (!filters && expect_listed) assert_in_range(listed, 1, AG_CL_TOKEN_LISTED);
    if (!filters && !expect_listed) assert_true(listed > AG_CL_TOKEN_LISTED);
    assert_int_equal(ag_session_prefill(rows, prompt, 3, NULL, NULL, &err), AG_OK);
    for (size_t i = 0; i < 3; i++) ag_sampler_accept_prompt(sampler, prompt[i]);
    for (size_t i = 0; i < n_chosen; i++) {
        int32_t id;
        assert_int_equal(ag_sampler_sample(sampler, ag_session_logits(rows), &id, &err), AG_OK);
        assert_int_equal(h.ids[i], id);
        ag_sampler_accept(sampler, id);
        assert_int_equal(ag_session_decode(rows, id, &err), AG_OK);
    }
    ag_sampler_destroy(sampler);
    ag_sampler_destroy(g.sampler);
    ag_session_destroy(rows);
    ag_session_destroy(s);
}

static void launch_chooses_the_tokens_of_the_sampler(void **state) {
    (void)state;
    ag_sampler_params p = ag_sampler_defaults();
    p.temperature = 0;
    p.repetition_penalty = 1.0f;
    compare_choices(&p, NULL, true);
    p.temperature = 1.5f;
    p.top_k = 2;
    for (p.seed = 1; p.seed <= 3; p.seed++) compare_choices(&p, NULL, true);
    p.top_k = 1;
    p.repetition_penalty = 1.3f;
    p.repetition_window = 2;
    compare_choices(&p, NULL, true);
}

static void masks_are_applied_after_the_launch(void **state) {
    (void)state;
    ag_sampler_params p = ag_sampler_defaults();
    p.temperature = 0;
    random_filter filters[2];
    for (size_t i = 0; i < 2; i++)
        filters[i] = make_random_filter(ag_model_get_info(model)->n_vocab, 3, true);
    compare_choices(&p, filters, true);
}

/* A single group of a CPU reports too few of its largest logits for a bound. */
static void searches_the_row_when_candidates_do_not_suffice(void **state) {
    (void)state;
    const bool many_groups = !ag_cl_of(be)->device.is_cpu;
    ag_sampler_params p = ag_sampler_defaults();
    p.temperature = 1.5f;
    p.top_k = 40;
    compare_choices(&p, NULL, many_groups);
}

int main(int argc, char **argv) {
    ag_error err;
    takes_all = argc > 1 && strcmp(argv[1], "all") == 0;
    be = open_opencl();
    if (!be) return EXIT_SKIPPED;
    ag_model_params params = ag_model_defaults();
    if (ag_model_load(be, AG_SERVED_DEMO, &params, &model, &err) != AG_OK) {
        printf("%s\n", err.msg);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launch_equals_operations),
        cmocka_unit_test(launch_equals_operations_after_evictions),
        cmocka_unit_test(launch_equals_operations_past_the_trained_length),
        cmocka_unit_test(launch_equals_operations_with_each_type_of_weights),
        cmocka_unit_test(sessions_and_models_take_turns),
        cmocka_unit_test(few_sessions_of_a_step_have_launches_of_their_own),
        cmocka_unit_test(launch_chooses_the_tokens_of_the_sampler),
        cmocka_unit_test(masks_are_applied_after_the_launch),
        cmocka_unit_test(searches_the_row_when_candidates_do_not_suffice),
        cmocka_unit_test(launch_adds_to_the_sums_of_policies),
        cmocka_unit_test(operations_add_to_sums_in_models_with_windows),
        cmocka_unit_test(tables_of_blocks_are_sent_when_they_change),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ag_model_destroy(model);
    ag_backend_destroy(be);
    return failed;
}
