/* SPDX-License-Identifier: Apache-2.0 */
#include "support/dtypes.h"
#include "support/tiny_model.h"

#include <antigravity/antigravity.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <math.h>

static ag_backend *backend;
static ag_error err;

static int make_backend(void **state) {
    (void)state;
    return ag_backend_create(NULL, &backend, NULL) != AG_OK;
}

static int drop_backend(void **state) {
    (void)state;
    ag_backend_destroy(backend);
    return 0;
}

/* Logits after a few tokens with F32 weights, or the status and message of the failure. */
static ag_status run_model(const char *dir, float *logits) {
    ag_model *model = NULL;
    ag_session *s = NULL;
    ag_model_params p = {.weights = AG_F32};
    memset(&err, 0, sizeof err);
    ag_status st = ag_model_load(backend, dir, &p, &model, &err);
    if (st == AG_OK) st = ag_session_create(model, NULL, &s, &err);
    const int32_t ids[] = {1, 17, 0, 299};
    if (st == AG_OK) st = ag_session_prefill(s, ids, 4, NULL, NULL, &err);
    if (st == AG_OK) memcpy(logits, ag_session_logits(s), TINY_VOCAB * sizeof *logits);
    ag_session_destroy(s);
    ag_model_destroy(model);
    return st;
}

static ag_status run(const tiny_model *m, float *logits) {
    char dir[512];
    assert_true(tiny_model_write(m, dir, sizeof dir));
    ag_status st = run_model(dir, logits);
    tiny_model_remove(dir);
    return st;
}

static void expect_failure(const tiny_model *m, ag_status want, const char *part) {
    float logits[TINY_VOCAB];
    ag_status st = run(m, logits);
    if (st != want)
        fail_msg("%s instead of %s: %s", ag_status_name(st), ag_status_name(want), err.msg);
    if (!strstr(err.msg, part)) fail_msg("\"%s\" is not in \"%s\"", part, err.msg);
}

static void loads_tied_models_with_either_name(void **state) {
    (void)state;
    float a[TINY_VOCAB], b[TINY_VOCAB];
    assert_int_equal(run(&(tiny_model){.tied = true}, a), AG_OK);
    assert_int_equal(run(&(tiny_model){.tied = true, .only_head = true}, b), AG_OK);
    assert_memory_equal(a, b, sizeof a);
    /* No lm_head and nothing said about tying: tied all the same. */
    assert_int_equal(run(&(tiny_model){.tied = false}, b), AG_OK);
    assert_memory_equal(a, b, sizeof a);
}

static void prefers_the_embedding_of_a_tied_model(void **state) {
    (void)state;
    char dir[512];
    ag_model *tied, *untied;
    ag_model_params p = {.weights = AG_F32};
    for (int i = 0; i < 2; i++) {
        tiny_model m = {.tied = i == 0, .with_head = true};
        assert_true(tiny_model_write(&m, dir, sizeof dir));
        ag_model_info info;
        assert_int_equal(ag_model_inspect(dir, &p, &info, &err), AG_OK);
        assert_int_equal(info.tied, i == 0);
        assert_int_equal(ag_model_load(backend, dir, &p, i ? &untied : &tied, &err), AG_OK);
        tiny_model_remove(dir);
    }
    uint64_t table = (uint64_t)TINY_VOCAB * TINY_DIM;
    assert_int_equal(ag_model_get_info(untied)->n_parameters,
                     ag_model_get_info(tied)->n_parameters + table);
    ag_model_destroy(tied);
    ag_model_destroy(untied);
}

static void loads_unaligned_tensors(void **state) {
    (void)state;
    const char *const types[] = {"F32", "F16", "BF16"};
    for (size_t i = 0; i < 3; i++) {
        float a[TINY_VOCAB], b[TINY_VOCAB];
        assert_int_equal(run(&(tiny_model){.dtype = types[i]}, a), AG_OK);
        assert_int_equal(run(&(tiny_model){.dtype = types[i], .unaligned = true}, b), AG_OK);
        assert_memory_equal(a, b, sizeof a);
    }
}

static void reports_missing_and_misshapen_tensors(void **state) {
    (void)state;
    const char *const names[] = {
        "model.embed_tokens.weight",
        "model.norm.weight",
        "model.layers.0.input_layernorm.weight",
        "model.layers.1.self_attn.k_proj.weight",
        "model.layers.1.mlp.down_proj.weight",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        expect_failure(&(tiny_model){.leave_out = names[i]}, AG_NOT_FOUND, names[i]);
        expect_failure(&(tiny_model){.reshape = names[i]}, AG_SHAPE, names[i]);
    }
    expect_failure(&(tiny_model){.reshape = "model.embed_tokens.weight"}, AG_SHAPE, "[301,64]");
    expect_failure(&(tiny_model){.reshape = "model.embed_tokens.weight"}, AG_SHAPE, "[300,64]");
}

static void reports_values_that_are_not_finite(void **state) {
    (void)state;
    const char *const names[] = {
        "model.norm.weight",
        "model.layers.1.self_attn.q_proj.weight",
        "model.embed_tokens.weight",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        tiny_model m = {.poison = names[i], .poison_value = NAN};
        expect_failure(&m, AG_FORMAT, names[i]);
        m.poison_value = -INFINITY;
        expect_failure(&m, AG_FORMAT, names[i]);
    }
    /* An untied table is never converted: its rows are looked at when they are read. */
    tiny_model untied = {
        .with_head = true, .poison = "model.embed_tokens.weight", .poison_value = NAN};
    expect_failure(&untied, AG_FORMAT, "model.embed_tokens.weight");
}

static void rejects_types_that_are_not_of_weights(void **state) {
    (void)state;
    expect_failure(&(tiny_model){.dtype = "I32"}, AG_UNSUPPORTED, "I32");
}

static void ignores_unknown_tensors(void **state) {
    (void)state;
    float logits[TINY_VOCAB];
    const tiny_model m = {.extra_tensor = "model.layers.0.self_attn.rotary_emb.inv_freq"};
    assert_int_equal(run(&m, logits), AG_OK);
}

static void reports_a_path_without_a_model(void **state) {
    (void)state;
    float logits[TINY_VOCAB];
    assert_int_equal(run_model("/nonexistent/model", logits), AG_NOT_FOUND);
    assert_non_null(strstr(err.msg, "/nonexistent/model"));
    assert_int_not_equal(run_model(AG_SOURCE_DIR "/LICENSE", logits), AG_OK);
    assert_non_null(strstr(err.msg, "LICENSE"));
    assert_int_equal(run_model(AG_SOURCE_DIR "/tests", logits), AG_NOT_FOUND);
    assert_non_null(strstr(err.msg, "config.json"));
}

/* A backend may fill up the last rows and columns of a quantised weight: to 16 rows and 64 columns,
 * the tiny model's smallest weight has 8 rows of 32. */
static uint64_t prepared_bytes_at_most(ag_dtype type, uint64_t bytes) {
    return ag_dtype_is_quantized(type) ? 4 * bytes : bytes;
}

static void inspect_equals_the_loaded_model(void **state) {
    (void)state;
    const dtype_set types = dtypes_with(AG_DTYPE_WEIGHT);
    char dir[512];
    assert_true(tiny_model_write(&(tiny_model){.dtype = "BF16"}, dir, sizeof dir));
    for (size_t i = 0; i < types.n; i++) {
        ag_model_params p = {.weights = types.v[i]};
        ag_model_info info;
        ag_model *model;
        assert_int_equal(ag_model_inspect(dir, &p, &info, &err), AG_OK);
        assert_int_equal(ag_model_load(backend, dir, &p, &model, &err), AG_OK);
        assert_memory_equal(&info, ag_model_get_info(model), sizeof info);
        assert_in_range(ag_model_memory_bytes(model), info.weight_bytes,
                        prepared_bytes_at_most(types.v[i], info.weight_bytes));
        assert_int_equal(info.file_type, AG_BF16);
        ag_model_destroy(model);
    }
    ag_model_params p = {.weights = AG_I32};
    ag_model *model;
    assert_int_equal(ag_model_load(backend, dir, &p, &model, &err), AG_UNSUPPORTED);
    assert_null(model);
    tiny_model_remove(dir);
}

static void remember(void *user, ag_log_level level, const char *msg) {
    if (level == AG_LOG_WARN) snprintf(user, 512, "%s", msg);
}

static void rows_that_fit_no_block_keep_their_type(void **state) {
    (void)state;
    char said[512] = "";
    ag_backend *listening;
    ag_backend_params bp = {.n_threads = 1, .log = remember, .log_user = said};
    assert_int_equal(ag_backend_create(&bp, &listening, &err), AG_OK);
    ag_model_info info;
    const char *dir = AG_GOLDEN_MODELS "/mqa-odd-sizes-f16";
    assert_int_equal(ag_model_inspect(dir, NULL, &info, &err), AG_OK);
    assert_int_equal(info.n_kept, 15); /* 80 and 200 columns: all matrices */
    ag_model *model;
    assert_int_equal(ag_model_load(listening, dir, NULL, &model, &err), AG_OK);
    assert_int_equal(ag_model_memory_bytes(model), info.weight_bytes);
    assert_non_null(strstr(said, "15 matrices keep the type f16"));
    ag_model_destroy(model);
    ag_backend_destroy(listening);
}

static bool stop_early(void *user, uint64_t done, uint64_t total) {
    (void)user;
    return done * 3 < total;
}

static void cancels_loading(void **state) {
    (void)state;
    char dir[512];
    assert_true(tiny_model_write(&(tiny_model){0}, dir, sizeof dir));
    ag_model_params p = {.weights = AG_F16, .progress = stop_early};
    ag_model *model;
    assert_int_equal(ag_model_load(backend, dir, &p, &model, &err), AG_CANCELLED);
    assert_null(model);
    tiny_model_remove(dir);
}

static void runs_synthetic_models_in_every_type(void **state) {
    (void)state;
    const dtype_set types = dtypes_with(AG_DTYPE_WEIGHT);
    for (size_t i = 0; i < types.n; i++) {
        ag_model_params p = {.weights = types.v[i]};
        ag_model *model;
        if (ag_model_synthetic(backend, "Tiny", &p, &model, &err) != AG_OK) fail_msg("%s", err.msg);
        ag_session *s;
        assert_int_equal(ag_session_create(model, NULL, &s, &err), AG_OK);
        const int32_t ids[] = {1, 2, 3, 4000};
        assert_int_equal(ag_session_prefill(s, ids, 4, NULL, NULL, &err), AG_OK);
        for (size_t k = 0; k < 4096; k++) assert_true(isfinite(ag_session_logits(s)[k]));
        ag_session_destroy(s);
        ag_model_destroy(model);
    }
    ag_model *model;
    assert_int_equal(ag_model_synthetic(backend, "llama-9", NULL, &model, &err), AG_NOT_FOUND);
    assert_non_null(strstr(err.msg, "llama-3.2-1b"));
}

/* Decodes with a synthetic model of the same sizes, of one layer or of all. */
static void check_synthetic_like(const char *path, uint32_t n_layers) {
    ag_model *model = NULL;
    ag_session *s = NULL;
    ag_model_info like;
    ag_session_params p = ag_session_defaults();
    const int32_t ids[] = {1, 2};
    p.max_seq_len = 8;
    if (ag_model_inspect(path, NULL, &like, &err) != AG_OK ||
        ag_model_synthetic_like(backend, path, NULL, n_layers, &model, &err) != AG_OK)
        fail_msg("%s: %s", path, err.msg);
    const ag_model_info *info = ag_model_get_info(model);
    if (like.layer_kinds[0].mixer == AG_MIXER_ATTENTION || !n_layers)
        assert_int_equal(info->n_layers, n_layers ? n_layers : like.n_layers);
    assert_int_equal(info->hidden_size, like.hidden_size);
    assert_int_equal(info->n_vocab, like.n_vocab);
    assert_int_equal(info->n_experts, like.n_experts);
    if (!n_layers) assert_int_equal(info->weight_type, like.weight_type);
    if (ag_session_create(model, &p, &s, &err) != AG_OK ||
        ag_session_prefill(s, ids, 2, NULL, NULL, &err) != AG_OK)
        fail_msg("%s: %s", path, err.msg);
    for (size_t k = 0; k < info->n_vocab; k++) assert_true(isfinite(ag_session_logits(s)[k]));
    ag_session_destroy(s);
    ag_model_destroy(model);
}

static void runs_synthetic_models_like_other_models(void **state) {
    (void)state;
    static const char *const names[] = {
        "gemma2",    "gemma4",      "gpt-oss-mxfp4", "granite-moe-shared",
        "lfm2-moe",  "mixtral",     "olmo2",         "phi4-mini",
        "qwen2-moe", "qwen3.5-moe", "mha-tied-f32",  "mistral-window",
    };
    char path[512];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, AG_GOLDEN_MODELS "/%s", names[i]);
        check_synthetic_like(path, 1);
        check_synthetic_like(path, 0);
    }
    check_synthetic_like(AG_SOURCE_DIR "/tests/data/golden/gguf/qwen3.5.gguf", 1);
    check_synthetic_like(AG_SOURCE_DIR "/tests/data/golden/gguf/ministral3.gguf", 0);
}

static void inspects_synthetic_models(void **state) {
    (void)state;
    ag_model *model;
    ag_model_info info;
    const ag_model_params p = {.weights = AG_Q8_0};
    assert_int_equal(ag_model_inspect_synthetic("tiny:3", &p, &info, &err), AG_OK);
    assert_int_equal(ag_model_synthetic(backend, "tiny:3", &p, &model, &err), AG_OK);
    assert_int_equal(info.n_layers, 3);
    assert_int_equal(info.weight_bytes, ag_model_get_info(model)->weight_bytes);
    assert_int_equal(info.active_bytes, ag_model_get_info(model)->active_bytes);
    ag_model_destroy(model);
    assert_int_equal(ag_model_inspect_synthetic("none", &p, &info, &err), AG_NOT_FOUND);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_tied_models_with_either_name),
        cmocka_unit_test(prefers_the_embedding_of_a_tied_model),
        cmocka_unit_test(loads_unaligned_tensors),
        cmocka_unit_test(reports_missing_and_misshapen_tensors),
        cmocka_unit_test(reports_values_that_are_not_finite),
        cmocka_unit_test(rejects_types_that_are_not_of_weights),
        cmocka_unit_test(ignores_unknown_tensors),
        cmocka_unit_test(reports_a_path_without_a_model),
        cmocka_unit_test(inspect_equals_the_loaded_model),
        cmocka_unit_test(rows_that_fit_no_block_keep_their_type),
        cmocka_unit_test(cancels_loading),
        cmocka_unit_test(runs_synthetic_models_in_every_type),
        cmocka_unit_test(runs_synthetic_models_like_other_models),
        cmocka_unit_test(inspects_synthetic_models),
    };
    return cmocka_run_group_tests(tests, make_backend, drop_backend);
}
