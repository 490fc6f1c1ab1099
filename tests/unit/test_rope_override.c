/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary embeddings that load parameters override: a model whose configuration states no scaling
 * gives the logits that were recorded with scaling. */
#include <antigravity/antigravity.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#define GOLDEN AG_SOURCE_DIR "/tests/data/golden/"

enum { MAX_IDS = 512 };
static const double tolerance = 1e-4;
static char dir[] = "/tmp/ag-rope-XXXXXX";

static json_t *load_json(const char *path) {
    json_error_t error;
    json_t *value = json_load_file(path, 0, &error);
    if (!value) fail_msg("%s: %s", path, error.text);
    return value;
}

/* Makes `dir` the model of that name without rope scaling, and with another theta if it is not 0.
 */
static void make_plain_copy(const char *name, double theta) {
    static const char *const files[] = {"model.safetensors", "generation_config.json"};
    char from[512], to[512];
    for (size_t i = 0; i < 2; i++) {
        snprintf(from, sizeof from, AG_GOLDEN_MODELS "/%s/%s", name, files[i]);
        snprintf(to, sizeof to, "%s/%s", dir, files[i]);
        remove(to);
        assert_int_equal(symlink(from, to), 0);
    }
    snprintf(from, sizeof from, AG_GOLDEN_MODELS "/%s/config.json", name);
    snprintf(to, sizeof to, "%s/config.json", dir);
    json_t *config = load_json(from), *rope = json_object_get(config, "rope_parameters");
    json_object_del(config, "rope_scaling");
    if (rope) json_object_set_new(rope, "factor", json_real(1));
    if (theta != 0) json_object_set_new(rope ? rope : config, "rope_theta", json_real(theta));
    assert_int_equal(json_dump_file(config, to, 0), 0);
    json_decref(config);
}

static size_t read_ids(const json_t *record, int32_t *ids) {
    const json_t *list = json_object_get(record, "ids");
    const size_t n = json_array_size(list);
    assert_true(n > 0 && n <= MAX_IDS);
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return n;
}

/* Returns the largest difference of the last logits of `dir` from the record. */
static double distance(const ag_rope_override *rope, const json_t *record) {
    ag_error err;
    ag_backend *be;
    ag_model *m;
    ag_session *s;
    int32_t ids[MAX_IDS];
    double most = 0;
    const ag_backend_params cpu = {.name = "cpu", .n_threads = 1};
    ag_model_params params = ag_model_defaults();
    ag_session_params session = ag_session_defaults();
    params.weights = session.k_type = session.v_type = AG_F32;
    params.rope = *rope;
    session.max_seq_len = MAX_IDS;
    assert_int_equal(ag_backend_create(&cpu, &be, &err), AG_OK);
    if (ag_model_load(be, dir, &params, &m, &err) != AG_OK) fail_msg("%s", err.msg);
    assert_int_equal(ag_session_create(m, &session, &s, &err), AG_OK);
    assert_int_equal(ag_session_prefill(s, ids, read_ids(record, ids), NULL, NULL, &err), AG_OK);
    const json_t *top = json_object_get(record, "last_top_ids");
    for (size_t i = 0; i < json_array_size(top); i++) {
        const float logit = ag_session_logits(s)[json_integer_value(json_array_get(top, i))];
        const json_t *expected = json_array_get(json_object_get(record, "last_top_logits"), i);
        most = fmax(most, fabs((double)logit - json_number_value(expected)));
    }
    ag_session_destroy(s);
    ag_model_destroy(m);
    ag_backend_destroy(be);
    return most;
}

static ag_model_info inspect(const ag_rope_override *rope) {
    ag_error err;
    ag_model_info info;
    ag_model_params params = ag_model_defaults();
    params.rope = *rope;
    if (ag_model_inspect(dir, &params, &info, &err) != AG_OK) fail_msg("%s", err.msg);
    return info;
}

static void linear_scaling_gives_the_recorded_logits(void **state) {
    (void)state;
    json_t *record = load_json(GOLDEN "linear-rope.json");
    const ag_rope_override none = {0}, by_scale = {.freq_scale = 0.25},
                           linear = {.scaling = AG_ROPE_SCALING_LINEAR, .freq_scale = 0.25};
    make_plain_copy("linear-rope", 0);
    assert_true(distance(&none, record) > 0.1);
    assert_true(distance(&linear, record) < tolerance);
    assert_true(distance(&by_scale, record) < tolerance);
    assert_int_equal(inspect(&none).max_positions, 512);
    assert_int_equal(inspect(&linear).max_positions, 2048);
    assert_string_equal(inspect(&linear).rope_scaling, "linear");
    json_decref(record);
}

static void freq_base_gives_the_recorded_logits(void **state) {
    (void)state;
    json_t *record = load_json(GOLDEN "linear-rope.json");
    const ag_rope_override base = {.freq_base = 10000, .freq_scale = 0.25};
    make_plain_copy("linear-rope", 500);
    assert_true(distance(&(ag_rope_override){.freq_scale = 0.25}, record) > 0.1);
    assert_true(distance(&base, record) < tolerance);
    json_decref(record);
}

/* The record's factor of attention is 1: mscale and mscale_all_dim are equal. */
static void yarn_gives_the_recorded_logits(void **state) {
    (void)state;
    json_t *record = load_json(GOLDEN "ministral3.json");
    ag_rope_override yarn = {.scaling = AG_ROPE_SCALING_YARN,
                             .freq_scale = 1.0 / 16,
                             .yarn_orig_ctx = 32,
                             .yarn_attn_factor = 1 / (1 + 0.1 * log(16))};
    make_plain_copy("ministral3", 0);
    assert_true(distance(&(ag_rope_override){0}, record) > 10 * tolerance);
    assert_true(distance(&yarn, record) < tolerance);
    yarn.yarn_beta_fast = 32;
    yarn.yarn_beta_slow = 1;
    yarn.yarn_ext_factor = 1;
    assert_true(distance(&yarn, record) < tolerance);
    yarn.yarn_ext_factor = 0.5;
    assert_true(distance(&yarn, record) > tolerance);
    yarn.yarn_ext_factor = 0;
    yarn.yarn_beta_slow = 0.01;
    assert_true(distance(&yarn, record) > tolerance);
    json_decref(record);
}

/* A model without scaling rotates as one whose configuration states YaRN. */
static void yarn_equals_that_of_a_configuration(void **state) {
    (void)state;
    json_t *record = load_json(GOLDEN "linear-rope.json");
    char path[512];
    const ag_rope_override yarn = {
        .scaling = AG_ROPE_SCALING_YARN, .freq_scale = 0.25, .yarn_orig_ctx = 64};
    make_plain_copy("linear-rope", 0);
    const double overridden = distance(&yarn, record);
    snprintf(path, sizeof path, "%s/config.json", dir);
    json_t *config = load_json(path);
    json_object_set_new(config, "rope_scaling",
                        json_pack("{s:s, s:f, s:i}", "rope_type", "yarn", "factor", 4.0,
                                  "original_max_position_embeddings", 64));
    assert_int_equal(json_dump_file(config, path, 0), 0);
    assert_true(overridden > 0.1);
    assert_true(distance(&(ag_rope_override){0}, record) == overridden);
    json_decref(config);
    json_decref(record);
}

/* The model's own scaling can be replaced, too. */
static void none_removes_the_scaling(void **state) {
    (void)state;
    json_t *record = load_json(GOLDEN "linear-rope.json");
    char path[512];
    const ag_rope_override none = {.scaling = AG_ROPE_SCALING_NONE};
    make_plain_copy("linear-rope", 0);
    const double plain = distance(&(ag_rope_override){0}, record);
    snprintf(path, sizeof path, "%s/config.json", dir);
    json_t *config = load_json(AG_GOLDEN_MODELS "/linear-rope/config.json");
    assert_int_equal(json_dump_file(config, path, 0), 0);
    assert_true(distance(&(ag_rope_override){0}, record) < tolerance);
    assert_true(distance(&none, record) == plain);
    json_decref(config);
    json_decref(record);
}

static void rejects_values_out_of_range_and_without_effect(void **state) {
    (void)state;
    static const struct {
        ag_rope_override rope;
        const char *says;
    } cases[] = {
        {{.freq_scale = -1}, "freq_scale is -1"},
        {{.freq_base = 0.5}, "freq_base is 0.5"},
        {{.scaling = AG_ROPE_SCALING_YARN}, "the scaling yarn needs a freq_scale"},
        {{.scaling = AG_ROPE_SCALING_LINEAR}, "the scaling linear needs a freq_scale"},
        {{.scaling = AG_ROPE_SCALING_NONE, .freq_scale = 0.5}, "without scaling it must be 0"},
        {{.yarn_orig_ctx = 32, .freq_scale = 0.5}, "need the scaling yarn, not linear"},
        {{.scaling = AG_ROPE_SCALING_YARN, .freq_scale = 0.5, .yarn_beta_fast = 0.5},
         "yarn_beta_fast is 0.5, yarn_beta_slow 1"},
        {{.scaling = AG_ROPE_SCALING_YARN, .freq_scale = 0.5, .yarn_ext_factor = 2},
         "yarn_ext_factor is 2"},
    };
    make_plain_copy("linear-rope", 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ag_error err = {0};
        ag_model_info info;
        ag_model_params params = ag_model_defaults();
        params.rope = cases[i].rope;
        const ag_status st = ag_model_inspect(dir, &params, &info, &err);
        if (st != AG_INVALID || !strstr(err.msg, cases[i].says))
            fail_msg("%s: %s; expected %s", ag_status_name(st), err.msg, cases[i].says);
    }
    ag_error err;
    ag_model_info info;
    ag_model_params params = ag_model_defaults();
    params.rope.freq_scale = 0.5;
    assert_int_equal(
        ag_model_inspect(AG_GOLDEN_MODELS "/gqa-llama3rope-sharded", &params, &info, &err),
        AG_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "scaling, llama3, cannot be replaced"));
}

static int make_dir(void **state) {
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state) {
    (void)state;
    static const char *const files[] = {"model.safetensors", "generation_config.json",
                                        "config.json"};
    char path[512];
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        remove(path);
    }
    return rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_scaling_gives_the_recorded_logits),
        cmocka_unit_test(freq_base_gives_the_recorded_logits),
        cmocka_unit_test(yarn_gives_the_recorded_logits),
        cmocka_unit_test(yarn_equals_that_of_a_configuration),
        cmocka_unit_test(none_removes_the_scaling),
        cmocka_unit_test(rejects_values_out_of_range_and_without_effect),
    };
    return cmocka_run_group_tests_name("rope override", tests, make_dir, remove_dir);
}
