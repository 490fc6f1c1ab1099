/* SPDX-License-Identifier: Apache-2.0 */
/* A server with a configuration file, and requests that name a preset as their model. */
#include "served_group.h"

#include <sys/stat.h>

static char home[64], presets[128];

static void write_preset(const char *file, const char *text) {
    write_file(presets, file, text, strlen(text));
}

static int start_server(void **state) {
    (void)state;
    char directory[96], path[160];
    static const char config[] =
        "{\n  \"model\": \"" DEMO "\",\n  \"alias\": [\"fox\", \"bear\"],\n"
        "  \"weights\": \"bf16\",\n  \"max-seq-len\": 512\n}\n";
    static const char template[] = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n"
                                   "{% endfor %}assistant:";
    make_directory(home);
    snprintf(directory, sizeof directory, "%s/antigravity", home);
    snprintf(presets, sizeof presets, "%s/presets", directory);
    setenv("XDG_CONFIG_HOME", home, 1);
    assert_int_equal(mkdir(directory, 0700), 0);
    assert_int_equal(mkdir(presets, 0700), 0);
    write_preset("tale.json", "{\"model\": \"" DEMO "\", \"temperature\": 0, \"max-tokens\": 7,\n"
                              " \"logit-bias\": [\"4091:-inf\", \"4094:-inf\"], \"top-k\": 3,\n"
                              " \"eviction-policy\": \"sliding\", \"system\": \"Be kind\"}");
    write_preset("plain.json", "{\"temperature\": 0}");
    write_preset("absent.json", "{\"model\": \"no-such-model\"}");
    write_preset("broken.json", "{\"temperature\": \"hot\"}");
    write_file(home, "t.jinja", template, sizeof template - 1);
    write_file(home, "server.json", config, sizeof config - 1);
    snprintf(path, sizeof path, "%s/server.json", home);
    char jinja[128];
    snprintf(jinja, sizeof jinja, "%s/t.jinja", home);
    SERVE_START(&server, "--config", path, "--chat-template", jinja);
    return 0;
}

static int end_server(void **state) {
    char directory[96];
    stop_server(state);
    snprintf(directory, sizeof directory, "%s/antigravity", home);
    remove_directory(presets);
    remove_directory(directory);
    remove_directory(home);
    return 0;
}

static void serves_the_models_of_its_configuration(void **state) {
    (void)state;
    json_t *r = serve_json(&server, "POST /v1/completions",
                           "{\"model\": \"bear\", \"prompt\": \"Once\", \"max_tokens\": 2}", 200);
    assert_int_equal(json_number_at(r, "usage.completion_tokens"), 2);
    json_decref(r);
}

static void a_preset_sets_what_the_request_does_not(void **state) {
    (void)state;
    static const char explicit_one[] =
        "{\"model\": \"demo\", \"prompt\": \"Once upon\", \"temperature\": 0, \"n_predict\": 7, "
        "\"logit_bias\": [[4091, false], [4094, false]]}";
    json_t *r = serve_json(&server, "POST /completion",
                           "{\"model\": \"tale\", \"prompt\": \"Once upon\"}", 200);
    json_t *same = serve_json(&server, "POST /completion", explicit_one, 200);
    assert_string_equal(json_string_at(r, "content"), json_string_at(same, "content"));
    assert_int_equal(json_number_at(r, "tokens_predicted"), 7);
    assert_int_equal(json_number_at(r, "generation_settings.top_k"), 3);
    json_decref(r);
    json_decref(same);
    r = serve_json(
        &server, "POST /completion",
        "{\"model\": \"tale\", \"prompt\": \"Once\", \"temperature\": 0.5, \"n_predict\": 3}", 200);
    assert_int_equal(json_number_at(r, "tokens_predicted"), 3);
    assert_int_equal(json_number_at(r, "generation_settings.top_k"), 3);
    assert_true(json_number_value(json_at(r, "generation_settings.temperature")) == 0.5);
    json_decref(r);
}

/* The system prompt stands before the messages, unless they have one. */
static void a_preset_adds_its_system_prompt(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"{\"model\": \"tale\", \"messages\": [{\"role\": \"user\", \"content\": \"A fox\"}]}",
         "{\"model\": \"demo\", \"temperature\": 0, \"max_tokens\": 7, \"messages\": ["
         "{\"role\": \"system\", \"content\": \"Be kind\"}, {\"role\": \"user\", \"content\": "
         "\"A fox\"}]}"},
        {"{\"model\": \"tale\", \"messages\": [{\"role\": \"system\", \"content\": \"No\"}, "
         "{\"role\": \"user\", \"content\": \"A fox\"}]}",
         "{\"model\": \"demo\", \"temperature\": 0, \"max_tokens\": 7, \"messages\": ["
         "{\"role\": \"system\", \"content\": \"No\"}, {\"role\": \"user\", \"content\": \"A "
         "fox\"}]}"},
    };
    for (size_t i = 0; i < 2; i++) {
        json_t *r = serve_json(&server, "POST /v1/chat/completions", pairs[i][0], 200);
        json_t *same = serve_json(&server, "POST /v1/chat/completions", pairs[i][1], 200);
        assert_int_equal(json_number_at(r, "usage.prompt_tokens"),
                         json_number_at(same, "usage.prompt_tokens"));
        json_decref(r);
        json_decref(same);
    }
}

static void lists_presets_and_reports_broken_ones(void **state) {
    (void)state;
    json_t *r = serve_json(&server, "GET /presets", NULL, 200);
    assert_int_equal(json_array_size(json_at(r, "data")), 3);
    assert_string_equal(json_string_at(r, "data.1.name"), "plain");
    assert_string_equal(json_string_at(r, "data.2.options.system"), "Be kind");
    json_decref(r);
    assert_says(server.log, "broken.json:1: \"temperature\": is a text; it must be a number");
    r = serve_json(&server, "POST /v1/completions", "{\"model\": \"broken\", \"prompt\": \"x\"}",
                   404);
    json_decref(r);
    r = serve_json(&server, "POST /v1/completions",
                   "{\"model\": \"plain\", \"prompt\": \"x\", \"max_tokens\": 1}", 200);
    json_decref(r);
}

static void names_the_preset_of_an_absent_model(void **state) {
    (void)state;
    json_t *r = serve_json(&server, "POST /v1/completions",
                           "{\"model\": \"absent\", \"prompt\": \"x\"}", 404);
    assert_string_equal(json_string_at(r, "error.message"),
                        "preset 'absent': its model 'no-such-model' is not served; /v1/models "
                        "lists the models");
    assert_string_equal(json_string_at(r, "error.code"), "model_not_found");
    json_decref(r);
}

static void templates_render_with_a_preset(void **state) {
    (void)state;
    json_t *r = serve_json(&server, "POST /apply-template",
                           "{\"model\": \"tale\", \"messages\": [{\"role\": \"user\", "
                           "\"content\": \"A fox\"}]}",
                           200);
    assert_string_equal(json_string_at(r, "prompt"), "system: Be kind\nuser: A fox\nassistant:");
    json_decref(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(serves_the_models_of_its_configuration),
        cmocka_unit_test(a_preset_sets_what_the_request_does_not),
        cmocka_unit_test(a_preset_adds_its_system_prompt),
        cmocka_unit_test(names_the_preset_of_an_absent_model),
        cmocka_unit_test(templates_render_with_a_preset),
        cmocka_unit_test(lists_presets_and_reports_broken_ones),
    };
    return cmocka_run_group_tests_name("cli serve presets", tests, start_server, end_server);
}
