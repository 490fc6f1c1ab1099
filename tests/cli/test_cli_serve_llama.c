/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of `antigravity serve` with llama.cpp's API. */
#include "served_group.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"Once upon a time\"}]"

/* Checks llama.cpp's forms: ids and texts in one prompt, several prompts, selected fields,
 * chunks. */
static void serves_completion(void **state) {
    (void)state;
    json_t *v = serve_json(&server, "POST /completion",
                           "{\"prompt\":\"Once upon a time\",\"n_predict\":4,\"temperature\":0,"
                           "\"n_probs\":2,\"return_tokens\":true,\"logit_bias\":{\"foo\":0}}",
                           200);
    assert_true(strlen(json_string_at(v, "content")) > 0);
    assert_string_equal(json_string_at(v, "stop_type"), "limit");
    assert_int_equal(json_number_at(v, "tokens_predicted"), 4);
    assert_int_equal(json_number_at(v, "timings.prompt_n") + json_number_at(v, "timings.cache_n"),
                     json_number_at(v, "tokens_evaluated"));
    assert_int_equal(json_array_size(json_at(v, "tokens")), 4);
    assert_int_equal(json_array_size(json_at(v, "completion_probabilities")), 4);
    assert_int_equal(json_array_size(json_at(v, "completion_probabilities.3.top_logprobs")), 2);
    json_t *tokens = serve_json(&server, "POST /tokenize",
                                "{\"content\":\"Once upon a time\",\"add_special\":true}", 200);
    char *ids = json_dumps(json_at(tokens, "tokens"), JSON_COMPACT);
    char body[512];
    assert_non_null(ids);
    snprintf(
        body, sizeof body,
        "{\"prompt\":[%s,{\"prompt_string\":\"Once upon a time\"}],\"n_predict\":4,"
        "\"temperature\":0,\"response_fields\":[\"content\",\"generation_settings/n_predict\"]}",
        ids);
    json_t *both = serve_json(&server, "POST /completions", body, 200);
    assert_int_equal(json_array_size(both), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *one = json_array_get(both, i);
        assert_int_equal(json_object_size(one), 2);
        assert_string_equal(json_string_at(one, "content"), json_string_at(v, "content"));
        assert_int_equal(json_integer_value(json_object_get(one, "generation_settings/n_predict")),
                         4);
    }
    json_decref(both);
    snprintf(body, sizeof body, "{\"prompt\":[%.*s,\" there was\"],\"n_predict\":1}",
             (int)strlen(ids) - 2, ids + 1);
    both = serve_json(&server, "POST /completion", body, 200);
    assert_true(json_array_size(json_at(both, "prompt")) >
                json_array_size(json_at(tokens, "tokens")));
    json_decref(both);
    free(ids);
    json_decref(tokens);
    const char *name;
    json_t *setting;
    json_object_foreach((json_t *)(uintptr_t)json_at(v, "generation_settings"), name,
                        setting) if (json_is_null(setting))
        fail_msg("generation_settings.%s is null", name);
    assert_true(json_is_integer(json_at(v, "generation_settings.seed")));
    assert_true(json_real_value(json_at(v, "generation_settings.temperature")) == 0);
    json_decref(v);
    json_decref(serve_json(&server, "POST /completion", "{\"prompt\":[]}", 400));
    v = serve_json(&server, "POST /completion", "{\"prompt\":\"ab\",\"n\":2,\"n_predict\":1}", 200);
    assert_string_equal(json_string_at(v, "0.prompt"), "ab");
    assert_int_equal(json_number_at(v, "1.generation_settings.seed"),
                     json_number_at(v, "0.generation_settings.seed") + 1);
    assert_null(json_object_get(json_array_get(v, 1), "prompt"));
    json_decref(v);
    char names[65 * 4 + 64] = "{\"prompt\":\"a\",\"response_fields\":[";
    for (size_t i = 0; i < 65; i++) strcat(names, i ? ",\"a\"" : "\"a\"");
    json_decref(serve_json(&server, "POST /completion", strcat(names, "]}"), 400));
    /* No field has such a long name. */
    v = serve_json(&server, "POST /completion",
                   "{\"prompt\":\"a\",\"n_predict\":1,\"response_fields\":[\"generation_settings/"
                   "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"]}",
                   200);
    assert_int_equal(json_object_size(v), 0);
    json_decref(v);
    json_decref(serve_json(&server, "POST /completion",
                           "{\"prompt\":{\"prompt_string\":\"x\",\"multimodal_data\":[]}}", 400));
}

static void applies_the_samplers_of_llama_cpp(void **state) {
    (void)state;
    static const char *const fields[] = {"typical_p",      "top_n_sigma",    "xtc_probability",
                                         "xtc_threshold",  "dynatemp_range", "dynatemp_exponent",
                                         "dry_multiplier", "dry_base"};
    static const char *const bad[] = {
        "\"typical_p\":2",          "\"dry_base\":0.5",
        "\"dry_allowed_length\":0", "\"xtc_threshold\":\"x\"",
        "\"mirostat\":2",           "\"dry_multiplier\":1,\"dry_sequence_breakers\":[\"\"]"};
    json_t *v = serve_json(
        &server, "POST /completion",
        "{\"prompt\":\"a\",\"n_predict\":1,\"mirostat\":0,\"typical_p\":0.5,\"top_n_sigma\":1.5,"
        "\"xtc_probability\":0.5,\"xtc_threshold\":0.25,\"dynatemp_range\":0.5,"
        "\"dynatemp_exponent\":2,\"dry_multiplier\":0.5,\"dry_base\":1.5,"
        "\"dry_allowed_length\":3,\"dry_penalty_last_n\":64,\"dry_sequence_breakers\":[\"x\"]}",
        200);
    static const double values[] = {0.5, 1.5, 0.5, 0.25, 0.5, 2, 0.5, 1.5};
    const json_t *settings = json_at(v, "generation_settings");
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        assert_true(json_number_value(json_object_get(settings, fields[i])) == values[i]);
    assert_int_equal(json_integer_value(json_object_get(settings, "dry_allowed_length")), 3);
    assert_int_equal(json_integer_value(json_object_get(settings, "dry_penalty_last_n")), 64);
    json_decref(v);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char body[128];
        snprintf(body, sizeof body, "{\"prompt\":\"a\",\"n_predict\":1,%s}", bad[i]);
        json_decref(serve_json(&server, "POST /completion", body, 400));
    }
}

/* A text that repeats two tokens continues otherwise. */
static void dry_changes_a_repeated_text(void **state) {
    (void)state;
    json_t *texts[2];
    for (int dry = 0; dry < 2; dry++) {
        char body[256];
        snprintf(body, sizeof body,
                 "{\"prompt\":[11,40,11,40,11,40,11,40,11],\"n_predict\":1,\"temperature\":0,"
                 "\"return_tokens\":true,\"logit_bias\":[[40,15]],\"dry_multiplier\":%d,"
                 "\"dry_sequence_breakers\":[]}",
                 dry * 50);
        texts[dry] = serve_json(&server, "POST /completion", body, 200);
    }
    assert_int_equal(json_number_at(texts[0], "tokens.0"), 40);
    assert_int_not_equal(json_number_at(texts[1], "tokens.0"), 40);
    for (int i = 0; i < 2; i++) json_decref(texts[i]);
}

static void stream_ends_with_timings(void **state) {
    (void)state;
    serve_reply r = serve_fetch(&server, "POST /completion", "",
                                "{\"prompt\":\"Once\",\"n_predict\":3,\"stream\":true}");
    assert_int_equal(r.status, 200);
    assert_true(strncmp(r.body, "data: {\"index\":0,\"content\":", 27) == 0);
    const char *last = strstr(r.body, "\"stop\":true");
    assert_non_null(last);
    assert_says(last, "\"predicted_n\":3");
    assert_null(strstr(last + 1, "\"stop\":true"));
    serve_reply_free(&r);
}

/* Copies the content of the answer to a body. */
static void complete(const char *body, char out[static 256]) {
    json_t *v = serve_json(&server, "POST /completion", body, 200);
    snprintf(out, 256, "%s", json_string_at(v, "content"));
    json_decref(v);
}

static void accepts_texts_in_logit_bias(void **state) {
    (void)state;
    static const char *const forms[] = {
        "[[\"%s\",false]]",
        "[[\"%s\",-100]]",
        "{\"%s\":-100}",
    };
    static const char start[] =
        "{\"prompt\":\"Once upon a time\",\"n_predict\":1,\"temperature\":0";
    char free_text[256], text[256], bias[300], body[600];
    snprintf(body, sizeof body, "%s}", start);
    complete(body, free_text);
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        snprintf(bias, sizeof bias, forms[i], free_text);
        snprintf(body, sizeof body, "%s,\"logit_bias\":%s}", start, bias);
        complete(body, text);
        assert_string_not_equal(text, free_text);
    }
    static const char *const wrong[] = {"[[1]]", "[[1,\"x\"]]", "[[-1,1]]",    "[[null,1]]",
                                        "7",     "[[\"\",1]]",  "{\"x\":null}"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        snprintf(body, sizeof body, "%s,\"logit_bias\":%s}", start, wrong[i]);
        json_t *v = serve_json(&server, "POST /completion", body, 400);
        assert_string_equal(json_string_at(v, "error.param"), "logit_bias");
        json_decref(v);
    }
}

static void accepts_a_schema_next_to_its_type(void **state) {
    (void)state;
    static const char *const forms[] = {
        "\"response_format\":{\"type\":\"json_object\",\"schema\":{\"const\":\"42\"}}",
        "\"json_schema\":{\"const\":\"42\"}",
    };
    char body[400];
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        snprintf(body, sizeof body, "{" HELLO ",%s}", forms[i]);
        json_t *v = serve_json(&server, "POST /chat/completions", body, 200);
        assert_string_equal(json_string_at(v, "choices.0.message.content"), "\"42\"");
        json_decref(v);
    }
    static const char *const wrong[] = {
        "\"response_format\":{\"type\":\"json_object\",\"schema\":123}",
        "\"response_format\":{\"type\":\"json_object\",\"schema\":{\"type\":\"hiccup\"}}",
        "\"json_schema\":{},\"regex\":\"a\"",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        snprintf(body, sizeof body, "{" HELLO ",%s}", wrong[i]);
        json_decref(serve_json(&server, "POST /chat/completions", body, 400));
    }
}

/* Clients shorten a conversation if the error has the name that they know. */
static void reports_a_prompt_beyond_the_context(void **state) {
    (void)state;
    enum { WORDS = 200 };
    char body[WORDS * 5 + 64];
    /* The length is checked before the grammar is compiled, which is malformed. */
    int n = snprintf(body, sizeof body, "{\"grammar\":\"root ::= (\",\"prompt\":\"");
    for (size_t i = 0; i < WORDS; i++) n += snprintf(body + n, sizeof body - (size_t)n, " once");
    snprintf(body + n, sizeof body - (size_t)n, "\"}");
    json_t *v = serve_json(&server, "POST /completion", body, 400);
    assert_string_equal(json_string_at(v, "error.type"), "exceed_context_size_error");
    assert_string_equal(json_string_at(v, "error.code"), "context_length_exceeded");
    assert_int_equal(json_number_at(v, "error.n_ctx"), 128);
    assert_true(json_number_at(v, "error.n_prompt_tokens") > 128);
    json_decref(v);
}

static void counts_tokens_of_messages(void **state) {
    (void)state;
    json_t *chat = serve_json(&server, "POST /chat/completions/input_tokens", "{" HELLO "}", 200);
    json_t *response = serve_json(&server, "POST /responses/input_tokens",
                                  "{\"input\":\"Once upon a time\"}", 200);
    json_t *written = serve_json(&server, "POST /apply-template", "{" HELLO "}", 200);
    assert_int_equal(json_number_at(chat, "input_tokens"), json_number_at(written, "count"));
    assert_int_equal(json_number_at(response, "input_tokens"), json_number_at(written, "count"));
    json_decref(serve_json(&server, "POST /v1/chat/completions/input_tokens", "{" HELLO "}", 400));
    json_decref(chat);
    json_decref(response);
    json_decref(written);
}

static void rejects_infill_without_fim_tokens(void **state) {
    (void)state;
    static const char *const asked[][2] = {
        {"POST /infill", "{\"input_prefix\":\"a\",\"input_suffix\":\"\"}"},
        {"POST /v1/completions", "{\"model\":\"demo\",\"prompt\":\"a\",\"suffix\":\"b\"}"},
        {"POST /api/generate", "{\"model\":\"demo\",\"prompt\":\"a\",\"suffix\":\"b\"}"},
    };
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        serve_reply r = serve_fetch(&server, asked[i][0], "", asked[i][1]);
        assert_int_equal(r.status, 400);
        assert_says(r.body, "the model has no fill-in-the-middle tokens");
        serve_reply_free(&r);
    }
    static const char *const wrong[] = {
        "{\"input_prefix\":\"a\"}",
        "{\"input_suffix\":\"a\",\"input_extra\":[{\"filename\":\"b\"}]}",
        "{\"input_suffix\":\"a\",\"input_extra\":[{\"filename\":1,\"text\":\"b\"}]}",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        json_t *v = serve_json(&server, "POST /infill", wrong[i], 400);
        assert_says(json_string_at(v, "error.param"), "input_");
        json_decref(v);
    }
    json_decref(serve_json(&server, "POST /v1/completions",
                           "{\"model\":\"demo\",\"prompt\":\"a\",\"suffix\":\"\",\"max_tokens\":1}",
                           200));
}

/* Makes a copy of the demo model in which three unused tokens are fill-in-the-middle tokens. */
static void make_filler(char *dir) {
    static const char *const files[] = {"config.json", "generation_config.json",
                                        "model.safetensors"};
    static const char *const names[][2] = {{"<|start_header_id|>", "<|fim_prefix|>"},
                                           {"<|end_header_id|>", "<|fim_suffix|>"},
                                           {"<|eot_id|>", "<|fim_middle|>"}};
    char path[200];
    size_t i, n_named = 0;
    json_t *token, *tokenizer = json_load_file(DEMO "/tokenizer.json", 0, NULL);
    assert_non_null(tokenizer);
    make_directory(dir);
    for (i = 0; i < 3; i++) link_file(dir, DEMO, files[i]);
    json_array_foreach(json_object_get(tokenizer, "added_tokens"), i, token) {
        for (size_t k = 0; k < 3; k++) {
            if (strcmp(json_string_at(token, "content"), names[k][0]) != 0) continue;
            json_object_set_new(token, "content", json_string(names[k][1]));
            n_named++;
        }
    }
    assert_int_equal(n_named, 3);
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    assert_int_equal(json_dump_file(tokenizer, path, 0), 0);
    json_decref(tokenizer);
}

static void infills_with_fim_tokens(void **state) {
    (void)state;
    char dir[96] = "serve_filler";
    make_filler(dir);
    serve_process filler;
    SERVE_START(&filler, "-q", "-m", dir, "--any-model");
    json_t *spelt = serve_json(&filler, "POST /completion",
                               "{\"prompt\":\"<|fim_prefix|>Once upon<|fim_suffix|> a time"
                               "<|fim_middle|>\",\"n_predict\":4,\"temperature\":0}",
                               200);
    json_t *llama = serve_json(&filler, "POST /infill",
                               "{\"input_prefix\":\"Once \",\"prompt\":\"upon\",\"input_suffix\":"
                               "\" a time\",\"n_predict\":4,\"temperature\":0}",
                               200);
    json_t *openai = serve_json(&filler, "POST /v1/completions",
                                "{\"model\":\"x\",\"prompt\":\"Once upon\",\"suffix\":\" a time\","
                                "\"max_tokens\":4,\"temperature\":0}",
                                200);
    json_t *ollama = serve_json(&filler, "POST /api/generate",
                                "{\"model\":\"x\",\"prompt\":\"Once upon\",\"suffix\":\" a time\","
                                "\"stream\":false,\"options\":{\"num_predict\":4,"
                                "\"temperature\":0}}",
                                200);
    const char *text = json_string_at(spelt, "content");
    const json_int_t n = json_number_at(spelt, "tokens_evaluated");
    assert_string_equal(json_string_at(llama, "content"), text);
    assert_string_equal(json_string_at(openai, "choices.0.text"), text);
    assert_string_equal(json_string_at(ollama, "response"), text);
    assert_int_equal(json_number_at(llama, "tokens_evaluated"), n);
    assert_int_equal(json_number_at(openai, "usage.prompt_tokens"), n);
    assert_int_equal(json_number_at(ollama, "prompt_eval_count"), n);
    serve_reply r = serve_fetch(&filler, "POST /api/show", "", "{\"model\":\"x\"}");
    assert_says(r.body, "\"insert\"");
    serve_reply_free(&r);
    json_decref(spelt);
    json_decref(llama);
    json_decref(openai);
    json_decref(ollama);
    assert_int_equal(serve_stop(&filler, SIGTERM), 0);
}

static void reports_settings(void **state) {
    (void)state;
    json_t *p = serve_json(&server, "GET /props", NULL, 200);
    assert_int_equal(json_number_at(p, "default_generation_settings.n_ctx"), 128);
    assert_int_equal(json_number_at(p, "total_slots"), 3);
    assert_string_equal(json_string_at(p, "model_alias"), "demo");
    assert_string_equal(json_string_at(p, "kv_policies.0"), "none");
    const json_t *policies = json_at(p, "kv_policies");
    /* Requests may name each of them. */
    for (size_t i = 0; i < json_array_size(policies); i++) {
        char body[200];
        snprintf(body, sizeof body,
                 "{\"prompt\":\"Once\",\"n_predict\":1,\"kv_budget\":64,\"kv_policy\":\"%s\"}",
                 json_string_value(json_array_get(policies, i)));
        json_decref(serve_json(&server, "POST /completion", body, 200));
    }
    assert_true(json_array_size(policies) > 4);
    json_decref(p);
    json_t *slots = serve_json(&server, "GET /slots?fail_on_no_slot=1", NULL, 200);
    assert_int_equal(json_array_size(slots), 3);
    assert_false(json_is_true(json_at(slots, "0.is_processing")));
    assert_int_equal(json_number_at(slots, "2.n_ctx"), 128);
    json_decref(slots);
}

#define TEMPLATE "{{ messages[0].content }} {{ mark }}{{ ' Answer:' if add_generation_prompt }}"

static void applies_default_template_variables(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"", "Once upon a time a Answer:"},
        {"\"chat_template_kwargs\":{\"mark\":\"b\"},", "Once upon a time b Answer:"},
        {"\"add_generation_prompt\":false,", "Once upon a time a"},
    };
    char dir[96] = "serve_llama", path[160], body[300];
    make_directory(dir);
    write_file(dir, "chat.jinja", TEMPLATE, sizeof TEMPLATE - 1);
    snprintf(path, sizeof path, "%s/chat.jinja", dir);
    serve_process set;
    SERVE_START(&set, "-q", "--chat-template", path, "--chat-template-kwargs", "{\"mark\":\"a\"}");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(body, sizeof body, "{%s" HELLO "}", cases[i][0]);
        json_t *v = serve_json(&set, "POST /apply-template", body, 200);
        assert_string_equal(json_string_at(v, "prompt"), cases[i][1]);
        json_decref(v);
    }
    json_decref(serve_json(
        &set, "POST /apply-template",
        "{\"add_generation_prompt\":true,\"continue_final_message\":true," HELLO "}", 400));
    assert_int_equal(serve_stop(&set, SIGTERM), 0);
}

static void reports_a_template_that_renders_nothing(void **state) {
    (void)state;
    static const char *const asked[][2] = {
        {"POST /responses", "{\"input\":\"Hi\"}"},
        {"POST /v1/messages", "{\"model\":\"demo\",\"max_tokens\":1," HELLO "}"},
        {"POST /chat/completions", "{" HELLO "}"},
    };
    char dir[96] = "serve_llama", path[160];
    make_directory(dir);
    write_file(dir, "none.jinja", "{# #}", 5);
    snprintf(path, sizeof path, "%s/none.jinja", dir);
    serve_process silent;
    SERVE_START(&silent, "-q", "--chat-template", path);
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        json_t *v = serve_json(&silent, asked[i][0], asked[i][1], 400);
        assert_says(json_string_at(v, "error.message"),
                    "the chat template of model 'demo' renders them to an empty prompt");
        json_decref(v);
    }
    assert_int_equal(serve_stop(&silent, SIGTERM), 0);
}

static int start_server(void **state) {
    (void)state;
    SERVE_START(&server, "-q", "--max-seq-len", "128", "--max-running", "3");
    return 0;
}

static json_t *complete_greedily(const serve_process *p, const char *more) {
    char body[160];
    snprintf(body, sizeof body,
             "{\"prompt\":\"Once upon a time\",\"n_predict\":60,\"temperature\":0%s}", more);
    return serve_json(p, "POST /completion", body, 200);
}

/* The penalty of generation_config.json applies at each temperature, as in chat and generate. */
static void applies_the_penalty_of_the_model_at_temperature_0(void **state) {
    (void)state;
    static const char *const files[] = {"config.json", "tokenizer.json", "model.safetensors"};
    static const char config[] = "{\"repetition_penalty\": 1.5, \"eos_token_id\": [4091, 4094]}";
    char dir[96] = "serve_penalty";
    serve_process server_of_model;
    make_directory(dir);
    for (size_t i = 0; i < 3; i++) link_file(dir, DEMO, files[i]);
    write_file(dir, "generation_config.json", config, strlen(config));
    SERVE_START(&server_of_model, "-q", "-m", dir, "--any-model");
    json_t *own = complete_greedily(&server_of_model, ""),
           *asked = complete_greedily(&server_of_model, ",\"repeat_penalty\":1.5"),
           *none = complete_greedily(&server_of_model, ",\"repeat_penalty\":1");
    assert_true(json_real_value(json_at(own, "generation_settings.repeat_penalty")) == 1.5);
    assert_string_equal(json_string_at(own, "content"), json_string_at(asked, "content"));
    assert_string_not_equal(json_string_at(own, "content"), json_string_at(none, "content"));
    json_decref(own);
    json_decref(asked);
    json_decref(none);
    assert_int_equal(serve_stop(&server_of_model, SIGTERM), 0);
    remove_directory(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(serves_completion),
        cmocka_unit_test(applies_the_samplers_of_llama_cpp),
        cmocka_unit_test(dry_changes_a_repeated_text),
        cmocka_unit_test(stream_ends_with_timings),
        cmocka_unit_test(accepts_texts_in_logit_bias),
        cmocka_unit_test(accepts_a_schema_next_to_its_type),
        cmocka_unit_test(reports_a_prompt_beyond_the_context),
        cmocka_unit_test(counts_tokens_of_messages),
        cmocka_unit_test(rejects_infill_without_fim_tokens),
        cmocka_unit_test(infills_with_fim_tokens),
        cmocka_unit_test(applies_the_penalty_of_the_model_at_temperature_0),
        cmocka_unit_test(reports_settings),
        cmocka_unit_test(applies_default_template_variables),
        cmocka_unit_test(reports_a_template_that_renders_nothing),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
