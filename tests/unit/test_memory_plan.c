/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the memory plan made before loading with the memory counted after it. The argument is
 * the name of the backend. */
#include "support/dtypes.h"
#include "support/named_backend.h"

#include <antigravity/expert.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MODELS AG_GOLDEN_MODELS "/"

enum { CONTEXT = 300, CHUNK = 64, SESSIONS = 2 };

static const char *backend_name = "cpu";
static ag_backend *be;

static ag_session_params small_sessions(void) {
    ag_session_params p = ag_session_defaults();
    p.max_seq_len = CONTEXT;
    p.prefill_chunk = CHUNK;
    return p;
}

/* Returns the bytes of the workspace that are always on the host: for each row of a batch a row of
 * floats and a position. A plan may exceed the measured bytes mainly by these. */
static uint64_t host_rows(const ag_model_info *info) {
    enum { MOST_ROWS = 256 };
    return MOST_ROWS * (info->hidden_size * sizeof(float) + sizeof(uint32_t));
}

static void fill(ag_session *s, uint32_t n_vocab) {
    int32_t ids[CONTEXT];
    for (int32_t i = 0; i < CONTEXT; i++) ids[i] = i % (int32_t)n_vocab;
    uint32_t n = ag_session_capacity_left(s);
    assert_in_range(n, 1, CONTEXT);
    assert_int_equal(ag_session_prefill(s, ids, n, NULL, NULL, NULL), AG_OK);
}

static void compare(ag_model *model, const ag_memory_plan *plan, size_t before) {
    const ag_session_params params = small_sessions();
    const ag_model_info *info = ag_model_get_info(model);
    ag_memory *mem = ag_backend_memory(be);
    assert_int_equal(ag_model_memory_bytes(model), plan->weight_bytes);
    assert_int_equal(ag_memory_bytes_in_use(mem) - before, plan->weight_bytes);
    ag_session *s[SESSIONS];
    uint64_t kv = 0;
    for (size_t i = 0; i < SESSIONS; i++) {
        assert_int_equal(ag_session_create(model, &params, &s[i], NULL), AG_OK);
        fill(s[i], info->n_vocab);
        kv += ag_kv_cache_capacity_bytes(ag_session_kv_cache(s[i]));
    }
    assert_int_equal(kv, plan->kv_bytes);
    const uint64_t counted = ag_memory_bytes_in_use(mem) - before;
    /* The plan of a mixture, whose rows are wide, has rows that no pass here needs. */
    const uint64_t more = (info->n_experts ? 3 : 1) * host_rows(info);
    assert_in_range(plan->total_bytes - plan->draft_bytes, counted, counted + more);
    for (size_t i = 0; i < SESSIONS; i++) ag_session_destroy(s[i]);
}

static void plan_equals_the_memory_counted_after_loading(void **state) {
    (void)state;
    static const char *const models[] = {MODELS "gqa-llama3rope-sharded",
                                         MODELS "mha-tied-f32",
                                         MODELS "mqa-odd-sizes-f16",
                                         MODELS "bias-wide-head",
                                         MODELS "qwen2-moe",
                                         MODELS "gpt-oss-mxfp4",
                                         AG_SERVED_DEMO};
    const dtype_set types = dtypes_with(AG_DTYPE_WEIGHT);
    const ag_session_params session = small_sessions();
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        for (size_t t = 0; t < types.n; t++) {
            const ag_model_params params = {.weights = types.v[t]};
            const size_t before = ag_memory_bytes_in_use(ag_backend_memory(be));
            ag_memory_plan plan;
            ag_model *model;
            ag_error err;
            if (m && types.v[t] > AG_Q8_0) continue; /* slow to make or to multiply */
            if (ag_memory_plan_make(be, models[m], &params, &session, SESSIONS, &plan, &err) !=
                AG_OK) {
                fail_msg("%s", err.msg);
            }
            assert_int_equal(ag_memory_bytes_in_use(ag_backend_memory(be)), before);
            assert_int_equal(ag_memory_plan_check(&plan, be, &err), AG_OK);
            assert_int_equal(ag_model_load(be, models[m], &params, &model, &err), AG_OK);
            compare(model, &plan, before);
            ag_model_destroy(model);
        }
    }
}

static void plans_a_shape_like_a_directory(void **state) {
    (void)state;
    const ag_dtype types[] = {AG_Q4_0, AG_F16};
    const ag_session_params session = small_sessions();
    for (size_t t = 0; t < 2; t++) {
        const ag_model_params params = {.weights = types[t]};
        const size_t before = ag_memory_bytes_in_use(ag_backend_memory(be));
        ag_memory_plan plan;
        ag_model *model;
        assert_int_equal(
            ag_memory_plan_synthetic(be, "tiny", &params, &session, SESSIONS, &plan, NULL), AG_OK);
        assert_int_equal(ag_model_synthetic(be, "tiny", &params, &model, NULL), AG_OK);
        compare(model, &plan, before);
        ag_model_destroy(model);
    }
    ag_memory_plan plan;
    ag_error err;
    assert_int_equal(ag_memory_plan_synthetic(be, "none", NULL, NULL, 1, &plan, &err),
                     AG_NOT_FOUND);
}

/* A shape without weights also gets the widest types that the limit allows. */
static void random_mix_uses_the_widest_types_that_fit(void **state) {
    (void)state;
    const ag_dtype types[] = {AG_Q4_0, AG_WEIGHTS_MIX};
    ag_memory_plan plan[2];
    for (size_t t = 0; t < 2; t++) {
        const ag_model_params params = {.weights = types[t]};
        assert_int_equal(
            ag_memory_plan_synthetic(be, "llama-3.2-1b", &params, NULL, 1, &plan[t], NULL), AG_OK);
        assert_int_equal(plan[t].weights_mixed, t == 1);
    }
    /* 5.3 bits for 4.5 at most. */
    const uint64_t q4_0 = plan[0].weight_bytes;
    assert_in_range(plan[1].weight_bytes, q4_0 / 45 * 50, q4_0 / 45 * 54);
}

static void plan_reports_memory_of_the_device(void **state) {
    (void)state;
    ag_memory_plan plan;
    assert_int_equal(ag_memory_plan_synthetic(be, "tiny", NULL, NULL, 1, &plan, NULL), AG_OK);
    assert_true(plan.has_bytes > plan.total_bytes);
    assert_in_range(plan.free_bytes, 1, plan.has_bytes);
    assert_true(plan.memory[0]);
    assert_int_equal(plan.on_device, strcmp(backend_name, "cpu") != 0);
    assert_int_equal(plan.total_bytes, plan.weight_bytes + plan.kv_bytes + plan.workspace_bytes +
                                           plan.eviction_bytes + plan.draft_bytes);
    if (!plan.on_device) return;
    /* Several sessions share the rows of logits that a step computes at a time. */
    ag_memory_plan several;
    assert_int_equal(ag_memory_plan_synthetic(be, "tiny", NULL, NULL, 2, &several, NULL), AG_OK);
    const size_t n_vocab = 4096;
    assert_int_equal(plan.draft_bytes, 0);
    assert_int_equal(several.draft_bytes, 64 * n_vocab * sizeof(float));
}

/* Refuses gpt-oss-20b on a machine of 8 GiB, with both numbers. */
static void mixture_that_does_not_fit_is_refused(void **state) {
    (void)state;
    const ag_model_params params = {.weights = AG_MXFP4};
    ag_memory_plan plan;
    ag_error err;
    assert_int_equal(ag_memory_plan_synthetic(be, "gpt-oss-20b", &params, NULL, 1, &plan, NULL),
                     AG_OK);
    assert_in_range(plan.weight_bytes, 10ull << 30, 12ull << 30);
    plan.has_bytes = plan.free_bytes = 8ull << 30;
    assert_int_equal(ag_memory_plan_check(&plan, be, &err), AG_NOMEM);
    assert_non_null(strstr(err.msg, "MiB are needed"));
    assert_non_null(strstr(err.msg, "8192"));
}

/* A cache that may grow, or that a policy keeps small, does not count. */
static void check_requires_min_bytes(void **state) {
    (void)state;
    ag_memory_plan plan;
    ag_error err;
    ag_session_params session = ag_session_defaults();
    assert_int_equal(ag_memory_plan_synthetic(be, "tiny", NULL, &session, 1, &plan, NULL), AG_OK);
    const uint64_t without_cache = plan.weight_bytes + plan.workspace_bytes;
    assert_int_equal(plan.min_bytes, plan.on_device ? plan.total_bytes : without_cache);
    plan.has_bytes = plan.free_bytes = plan.min_bytes;
    assert_int_equal(ag_memory_plan_check(&plan, be, &err), AG_OK);
    plan.has_bytes = plan.free_bytes = plan.min_bytes - 1;
    assert_int_equal(ag_memory_plan_check(&plan, be, &err), AG_NOMEM);
    assert_non_null(strstr(err.msg, "MiB are needed"));
    assert_non_null(strstr(err.msg, plan.memory));
    plan.has_bytes = plan.free_bytes = 0; /* not known */
    assert_int_equal(ag_memory_plan_check(&plan, be, &err), AG_OK);
    session.eviction.policy = ag_eviction_policy_find("keydiff");
    session.eviction.budget_tokens = 256;
    assert_int_equal(ag_memory_plan_synthetic(be, "tiny", NULL, &session, 1, &plan, NULL), AG_OK);
    assert_int_equal(plan.min_bytes, without_cache);
    assert_true(plan.eviction_bytes > 0);
}

int main(int argc, char **argv) {
    if (argc > 1) backend_name = argv[1];
    be = open_backend(backend_name, 0);
    if (!be) return EXIT_SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_equals_the_memory_counted_after_loading),
        cmocka_unit_test(plans_a_shape_like_a_directory),
        cmocka_unit_test(random_mix_uses_the_widest_types_that_fit),
        cmocka_unit_test(plan_reports_memory_of_the_device),
        cmocka_unit_test(mixture_that_does_not_fit_is_refused),
        cmocka_unit_test(check_requires_min_bytes),
    };
    int code = cmocka_run_group_tests(tests, NULL, NULL);
    ag_backend_destroy(be);
    return code;
}
