/* SPDX-License-Identifier: Apache-2.0 */
/* `antigravity serve` as clients of Anthropic, OpenAI Responses and ollama see it. */
#include "serve_client.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"Once upon a time\"}]"
#define BRIEF "\"model\":\"demo\",\"max_tokens\":8,\"temperature\":0,"
#define MESSAGES "POST /v1/messages"
#define RESPONSES "POST /v1/responses"

static serve_process server;

static const char *string_at(const json_t *value, const char *path) {
    const char *text = json_string_value(json_at(value, path));
    assert_non_null(text);
    return text;
}

static json_int_t number_at(const json_t *value, const char *path) {
    assert_true(json_is_integer(json_at(value, path)));
    return json_integer_value(json_at(value, path));
}

static void a_message_is_answered(void **state) {
    (void)state;
    json_t *m = serve_json(&server, MESSAGES, "{" BRIEF HELLO "}", 200);
    assert_string_equal(string_at(m, "type"), "message");
    assert_string_equal(string_at(m, "content.0.type"), "text");
    assert_true(strlen(string_at(m, "content.0.text")) > 0);
    assert_string_equal(string_at(m, "stop_reason"), "max_tokens");
    assert_int_equal(number_at(m, "usage.output_tokens"), 8);
    json_int_t read =
        number_at(m, "usage.input_tokens") + number_at(m, "usage.cache_read_input_tokens");
    json_t *count =
        serve_json(&server, MESSAGES "/count_tokens", "{\"model\":\"demo\"," HELLO "}", 200);
    assert_int_equal(number_at(count, "input_tokens"), read);
    json_decref(count);
    json_decref(m);
}

/* The texts of all deltas of a stream. */
static void join_deltas(const char *stream, const char *mark, char *out, size_t cap) {
    size_t n = 0;
    for (const char *at = strstr(stream, mark); at; at = strstr(at + 1, mark)) {
        const char *from = strstr(at, "\"text\":\"") + strlen("\"text\":\"");
        size_t len = strcspn(from, "\"");
        assert_true(n + len < cap);
        memcpy(out + n, from, len);
        n += len;
    }
    out[n] = 0;
}

static void a_message_streams_the_same(void **state) {
    (void)state;
    char text[512];
    json_t *m = serve_json(&server, MESSAGES, "{" BRIEF HELLO "}", 200);
    serve_reply r = serve_ask(&server, MESSAGES, "", "{\"stream\":true," BRIEF HELLO "}");
    assert_int_equal(r.status, 200);
    assert_says(r.head, "text/event-stream");
    assert_true(strncmp(r.body, "event: message_start\ndata: ", 27) == 0);
    assert_says(r.body, "event: ping\n");
    assert_says(r.body, "event: message_delta\n");
    assert_true(strcmp(r.body + r.n_body - strlen("data: {\"type\":\"message_stop\"}\n\n"),
                       "data: {\"type\":\"message_stop\"}\n\n") == 0);
    join_deltas(r.body, "\"text_delta\"", text, sizeof text);
    assert_string_equal(text, string_at(m, "content.0.text"));
    serve_reply_free(&r);
    json_decref(m);
}

#define AGENT(cch)                                                                                 \
    "{" BRIEF "\"system\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: "             \
    "cc_version=2.1; cch=" cch ";\"},{\"type\":\"text\",\"text\":\"You are an agent that tells a " \
    "long story about a dog and a cat in a garden.\"}]," HELLO "}"

static void a_changing_billing_header_does_not_lose_the_prefix(void **state) {
    (void)state;
    json_decref(serve_json(&server, MESSAGES, AGENT("aaaaa"), 200));
    json_t *m = serve_json(&server, MESSAGES, AGENT("bbbbb"), 200);
    assert_int_equal(number_at(m, "usage.input_tokens"), 1); /* a prompt's last token is read */
    assert_true(number_at(m, "usage.cache_read_input_tokens") > 10);
    json_decref(m);
}

static void errors_have_the_shape_of_their_protocol(void **state) {
    (void)state;
    json_t *m = serve_json(&server, MESSAGES, "{\"max_tokens\":1," HELLO "}", 400);
    assert_string_equal(string_at(m, "type"), "error");
    assert_string_equal(string_at(m, "error.type"), "invalid_request_error");
    json_decref(m);
    m = serve_json(&server, MESSAGES, "{\"model\":\"nobody\",\"max_tokens\":1," HELLO "}", 404);
    assert_string_equal(string_at(m, "error.type"), "not_found_error");
    json_decref(m);
    m = serve_json(&server, RESPONSES, "{\"input\":\"x\"}", 400);
    assert_string_equal(string_at(m, "error.type"), "invalid_request_error");
    json_decref(m);
    m = serve_json(&server, RESPONSES,
                   "{\"model\":\"demo\",\"input\":\"x\",\"previous_response_id\":\"resp_1\"}", 400);
    assert_says(string_at(m, "error.message"), "previous_response_id: responses are not stored");
    json_decref(m);
    m = serve_json(&server, "POST /api/chat", "{\"model\":\"nobody\"," HELLO "}", 404);
    assert_says(string_at(m, "error"), "nobody");
    json_decref(m);
}

static void images_are_refused_in_each_protocol(void **state) {
    (void)state;
    static const char *const asked[][2] = {
        {MESSAGES, "{" BRIEF "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\","
                   "\"source\":{\"type\":\"base64\",\"media_type\":\"image/png\",\"data\":\"\"}}]}"
                   "]}"},
        {RESPONSES, "{\"model\":\"demo\",\"input\":[{\"role\":\"user\",\"content\":[{\"type\":"
                    "\"input_image\",\"image_url\":\"http://127.0.0.1:1/x.png\"}]}]}"},
        {"POST /api/chat", "{\"model\":\"demo\",\"messages\":[{\"role\":\"user\",\"content\":\"x\","
                           "\"images\":[\"aGk=\"]}]}"},
    };
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        serve_reply r = serve_ask(&server, asked[i][0], "", asked[i][1]);
        assert_int_equal(r.status, 400);
        assert_says(r.body, "this model has no vision");
        serve_reply_free(&r);
    }
}

static void a_response_is_answered(void **state) {
    (void)state;
    json_t *r = serve_json(&server, RESPONSES,
                           "{\"model\":\"demo\",\"input\":\"Once upon a time\","
                           "\"max_output_tokens\":8,\"temperature\":0}",
                           200);
    assert_string_equal(string_at(r, "object"), "response");
    assert_string_equal(string_at(r, "status"), "incomplete");
    assert_string_equal(string_at(r, "incomplete_details.reason"), "max_output_tokens");
    assert_true(strlen(string_at(r, "output.0.content.0.text")) > 0);
    assert_int_equal(number_at(r, "usage.output_tokens"), 8);
    json_decref(r);
    /* Without /v1 the first model answers. */
    json_decref(serve_json(&server, "POST /responses",
                           "{\"input\":\"Once\",\"max_output_tokens\":1}", 200));
    r = serve_json(&server, RESPONSES "/input_tokens", "{\"model\":\"demo\",\"input\":\"Once\"}",
                   200);
    assert_true(number_at(r, "input_tokens") > 0);
    json_decref(r);
}

static void a_response_streams_numbered_events(void **state) {
    (void)state;
    serve_reply r = serve_ask(&server, RESPONSES, "",
                              "{\"model\":\"demo\",\"input\":\"Once upon a time\",\"stream\":true,"
                              "\"max_output_tokens\":4}");
    assert_int_equal(r.status, 200);
    assert_true(strncmp(r.body, "event: response.created\n", 24) == 0);
    assert_does_not_say(r.body, "[DONE]");
    long expected = 0;
    static const char key[] = "\"sequence_number\":";
    for (const char *at = strstr(r.body, key); at; at = strstr(at + 1, key))
        assert_int_equal(strtol(at + strlen(key), NULL, 10), expected++);
    assert_true(expected > 8);
    assert_says(r.body, "event: response.incomplete\n");
    serve_reply_free(&r);
}

static void ollama_answers_in_lines(void **state) {
    (void)state;
    serve_reply r = serve_ask(&server, "POST /api/chat", "",
                              "{\"model\":\"demo:latest\"," HELLO
                              ",\"options\":{\"num_predict\":4,\"temperature\":0}}");
    assert_int_equal(r.status, 200);
    assert_says(r.head, "application/x-ndjson");
    size_t n = 0;
    bool done = false;
    for (char *line = strtok(r.body, "\n"); line; line = strtok(NULL, "\n"), n++) {
        json_t *value = json_loads(line, 0, NULL);
        assert_non_null(value);
        assert_false(done);
        done = json_is_true(json_at(value, "done"));
        assert_string_equal(string_at(value, "message.role"), "assistant");
        json_decref(value);
    }
    assert_true(done && n > 1);
    serve_reply_free(&r);
    json_t *g = serve_json(&server, "POST /api/generate",
                           "{\"model\":\"demo\",\"prompt\":\"Once\",\"raw\":true,\"stream\":false,"
                           "\"options\":{\"num_predict\":3}}",
                           200);
    assert_int_equal(number_at(g, "eval_count"), 3);
    assert_string_equal(string_at(g, "done_reason"), "length");
    json_decref(g);
}

static void ollama_tells_of_models(void **state) {
    (void)state;
    json_t *v = serve_json(&server, "GET /api/version", NULL, 200);
    assert_true(strlen(string_at(v, "version")) > 0);
    json_decref(v);
    v = serve_json(&server, "GET /api/tags", NULL, 200);
    assert_string_equal(string_at(v, "models.0.name"), "demo");
    assert_string_equal(string_at(v, "models.1.name"), "claude");
    json_decref(v);
    v = serve_json(&server, "GET /api/ps", NULL, 200);
    assert_string_equal(string_at(v, "models.0.name"), "demo"); /* it has answered above */
    json_decref(v);
    v = serve_json(&server, "POST /api/show", "{\"model\":\"claude:latest\"}", 200);
    assert_string_equal(string_at(v, "details.family"), "llama");
    const json_t *facts = json_at(v, "model_info");
    assert_true(json_integer_value(json_object_get(facts, "general.parameter_count")) > 0);
    json_decref(v);
    json_decref(serve_json(&server, "POST /api/show", "{\"model\":\"nobody\"}", 404));
}

static void ollama_changes_nothing(void **state) {
    (void)state;
    static const char *const lines[] = {"POST /api/pull",     "POST /api/push",
                                        "POST /api/create",   "POST /api/copy",
                                        "DELETE /api/delete", "POST /api/blobs/sha256:00"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        json_t *v = serve_json(&server, lines[i], "{\"model\":\"demo\"}", 403);
        assert_says(string_at(v, "error"), "models are not changed");
        json_decref(v);
    }
}

/* As llama.cpp has it: ids and texts in one prompt, several prompts, chosen fields, pieces. */
static void llama_cpps_clients_find_completion(void **state) {
    (void)state;
    json_t *v = serve_json(&server, "POST /completion",
                           "{\"prompt\":\"Once upon a time\",\"n_predict\":4,\"temperature\":0,"
                           "\"n_probs\":2,\"return_tokens\":true,\"logit_bias\":{\"foo\":0}}",
                           200);
    assert_true(strlen(string_at(v, "content")) > 0);
    assert_string_equal(string_at(v, "stop_type"), "limit");
    assert_int_equal(number_at(v, "tokens_predicted"), 4);
    assert_int_equal(number_at(v, "timings.prompt_n") + number_at(v, "timings.cache_n"),
                     number_at(v, "tokens_evaluated"));
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
        assert_string_equal(string_at(one, "content"), string_at(v, "content"));
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
    json_decref(v);
    json_decref(serve_json(&server, "POST /completion", "{\"prompt\":[]}", 400));
    json_decref(serve_json(&server, "POST /completion",
                           "{\"prompt\":{\"prompt_string\":\"x\",\"multimodal_data\":[]}}", 400));
}

static void vectors_can_be_shortened(void **state) {
    (void)state;
    static const char *const asked[][2] = {
        {"POST /v1/embeddings", "data.0.embedding"},
        {"POST /api/embed", "embeddings.0"},
    };
    for (size_t i = 0; i < 2; i++) {
        json_t *v = serve_json(&server, asked[i][0],
                               "{\"model\":\"demo\",\"input\":\"a dog\",\"dimensions\":3}", 200);
        const json_t *vector = json_at(v, asked[i][1]);
        double sum = 0;
        assert_int_equal(json_array_size(vector), 3);
        for (size_t k = 0; k < 3; k++) {
            double value = json_number_value(json_array_get(vector, k));
            sum += value * value;
        }
        assert_true(sum > 0.999 && sum < 1.001);
        json_decref(v);
    }
}

static void llama_cpps_stream_ends_with_the_figures(void **state) {
    (void)state;
    serve_reply r = serve_ask(&server, "POST /completion", "",
                              "{\"prompt\":\"Once\",\"n_predict\":3,\"stream\":true}");
    assert_int_equal(r.status, 200);
    assert_true(strncmp(r.body, "data: {\"index\":0,\"content\":", 27) == 0);
    const char *last = strstr(r.body, "\"stop\":true");
    assert_non_null(last);
    assert_says(last, "\"predicted_n\":3");
    assert_null(strstr(last + 1, "\"stop\":true"));
    serve_reply_free(&r);
}

static void either_header_may_bring_the_key(void **state) {
    (void)state;
    char path[] = "/tmp/antigravity-keys-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "secret\n", 7), 7);
    close(fd);
    serve_process locked;
    SERVE_START(&locked, "--api-key-file", path, "-q");
    static const struct {
        const char *header;
        int status;
    } cases[] = {
        {"", 401},
        {"x-api-key: wrong\r\n", 401},
        {"x-api-key: secret\r\n", 200},
        {"Authorization: Bearer secret\r\n", 200},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        serve_reply r = serve_ask(&locked, MESSAGES, cases[i].header, "{" BRIEF HELLO "}");
        assert_int_equal(r.status, cases[i].status);
        if (r.status == 401) assert_says(r.body, "authentication_error");
        serve_reply_free(&r);
    }
    serve_reply r = serve_ask(&locked, "GET /api/tags", "", NULL);
    assert_int_equal(r.status, 401);
    serve_reply_free(&r);
    assert_int_equal(serve_stop(&locked, SIGTERM), 0);
    unlink(path);
}

static int start_server(void **state) {
    (void)state;
    SERVE_START(&server, "--alias", "claude", "-q");
    return 0;
}

static int stop_server(void **state) {
    (void)state;
    return serve_stop(&server, SIGTERM);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_is_answered),
        cmocka_unit_test(a_message_streams_the_same),
        cmocka_unit_test(a_changing_billing_header_does_not_lose_the_prefix),
        cmocka_unit_test(errors_have_the_shape_of_their_protocol),
        cmocka_unit_test(images_are_refused_in_each_protocol),
        cmocka_unit_test(a_response_is_answered),
        cmocka_unit_test(a_response_streams_numbered_events),
        cmocka_unit_test(ollama_answers_in_lines),
        cmocka_unit_test(ollama_tells_of_models),
        cmocka_unit_test(ollama_changes_nothing),
        cmocka_unit_test(llama_cpps_clients_find_completion),
        cmocka_unit_test(vectors_can_be_shortened),
        cmocka_unit_test(llama_cpps_stream_ends_with_the_figures),
        cmocka_unit_test(either_header_may_bring_the_key),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
