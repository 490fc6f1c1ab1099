/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of `antigravity serve` with the APIs of Anthropic, OpenAI Responses and ollama. */
#include "served_group.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"Once upon a time\"}]"
#define BRIEF "\"model\":\"demo\",\"max_tokens\":8,\"temperature\":0,"
#define MESSAGES "POST /v1/messages"
#define RESPONSES "POST /v1/responses"

static void replies_to_a_message(void **state) {
    (void)state;
    json_t *m = serve_json(&server, MESSAGES, "{" BRIEF HELLO "}", 200);
    assert_string_equal(json_string_at(m, "type"), "message");
    assert_string_equal(json_string_at(m, "content.0.type"), "text");
    assert_true(strlen(json_string_at(m, "content.0.text")) > 0);
    assert_string_equal(json_string_at(m, "stop_reason"), "max_tokens");
    assert_int_equal(json_number_at(m, "usage.output_tokens"), 8);
    json_int_t read = json_number_at(m, "usage.input_tokens") +
                      json_number_at(m, "usage.cache_read_input_tokens");
    json_t *count =
        serve_json(&server, MESSAGES "/count_tokens", "{\"model\":\"demo\"," HELLO "}", 200);
    assert_int_equal(json_number_at(count, "input_tokens"), read);
    json_decref(count);
    json_decref(m);
}

/* Joins the texts of all deltas of a stream. */
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

static void streams_the_same_message(void **state) {
    (void)state;
    char text[512];
    json_t *m = serve_json(&server, MESSAGES, "{" BRIEF HELLO "}", 200);
    serve_reply r = serve_fetch(&server, MESSAGES, "", "{\"stream\":true," BRIEF HELLO "}");
    assert_int_equal(r.status, 200);
    assert_says(r.head, "text/event-stream");
    assert_true(strncmp(r.body, "event: message_start\ndata: ", 27) == 0);
    assert_says(r.body, "event: ping\n");
    assert_says(r.body, "event: message_delta\n");
    assert_true(strcmp(r.body + r.n_body - strlen("data: {\"type\":\"message_stop\"}\n\n"),
                       "data: {\"type\":\"message_stop\"}\n\n") == 0);
    join_deltas(r.body, "\"text_delta\"", text, sizeof text);
    assert_string_equal(text, json_string_at(m, "content.0.text"));
    serve_reply_free(&r);
    json_decref(m);
}

#define AGENT(cch)                                                                                 \
    "{" BRIEF "\"system\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: "             \
    "cc_version=2.1; cch=" cch ";\"},{\"type\":\"text\",\"text\":\"You are an agent that tells a " \
    "long story about a dog and a cat in a garden.\"}]," HELLO "}"

static void reuses_the_prefix_despite_a_billing_header(void **state) {
    (void)state;
    json_decref(serve_json(&server, MESSAGES, AGENT("aaaaa"), 200));
    json_t *m = serve_json(&server, MESSAGES, AGENT("bbbbb"), 200);
    assert_int_equal(json_number_at(m, "usage.input_tokens"),
                     1); /* the last token of a prompt is always computed */
    assert_true(json_number_at(m, "usage.cache_read_input_tokens") > 10);
    json_decref(m);
}

static void errors_have_the_format_of_their_protocol(void **state) {
    (void)state;
    json_t *m = serve_json(&server, MESSAGES, "{\"max_tokens\":1," HELLO "}", 400);
    assert_string_equal(json_string_at(m, "type"), "error");
    assert_string_equal(json_string_at(m, "error.type"), "invalid_request_error");
    json_decref(m);
    m = serve_json(&server, MESSAGES, "{\"model\":\"nobody\",\"max_tokens\":1," HELLO "}", 404);
    assert_string_equal(json_string_at(m, "error.type"), "not_found_error");
    json_decref(m);
    m = serve_json(&server, RESPONSES, "{\"input\":\"x\"}", 400);
    assert_string_equal(json_string_at(m, "error.type"), "invalid_request_error");
    json_decref(m);
    m = serve_json(&server, RESPONSES,
                   "{\"model\":\"demo\",\"input\":\"x\",\"previous_response_id\":\"resp_1\"}", 400);
    assert_says(json_string_at(m, "error.message"),
                "previous_response_id: response 'resp_1' not found");
    json_decref(m);
    m = serve_json(&server, "POST /api/chat", "{\"model\":\"nobody\"," HELLO "}", 404);
    assert_says(json_string_at(m, "error"), "nobody");
    json_decref(m);
}

static void rejects_images_in_each_protocol(void **state) {
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
        serve_reply r = serve_fetch(&server, asked[i][0], "", asked[i][1]);
        assert_int_equal(r.status, 400);
        assert_says(r.body, "images are not supported");
        serve_reply_free(&r);
    }
}

static void replies_to_a_response(void **state) {
    (void)state;
    json_t *r = serve_json(&server, RESPONSES,
                           "{\"model\":\"demo\",\"input\":\"Once upon a time\","
                           "\"max_output_tokens\":8,\"temperature\":0}",
                           200);
    assert_string_equal(json_string_at(r, "object"), "response");
    assert_string_equal(json_string_at(r, "status"), "incomplete");
    assert_string_equal(json_string_at(r, "incomplete_details.reason"), "max_output_tokens");
    assert_true(strlen(json_string_at(r, "output.0.content.0.text")) > 0);
    assert_int_equal(json_number_at(r, "usage.output_tokens"), 8);
    json_decref(r);
    /* Without /v1 the first model is used. */
    json_decref(serve_json(&server, "POST /responses",
                           "{\"input\":\"Once\",\"max_output_tokens\":1}", 200));
    r = serve_json(&server, RESPONSES "/input_tokens", "{\"model\":\"demo\",\"input\":\"Once\"}",
                   200);
    assert_true(json_number_at(r, "input_tokens") > 0);
    json_decref(r);
}

static void streams_numbered_events(void **state) {
    (void)state;
    serve_reply r =
        serve_fetch(&server, RESPONSES, "",
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

static void ollama_replies_in_lines(void **state) {
    (void)state;
    serve_reply r = serve_fetch(&server, "POST /api/chat", "",
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
        assert_string_equal(json_string_at(value, "message.role"), "assistant");
        json_decref(value);
    }
    assert_true(done && n > 1);
    serve_reply_free(&r);
    json_t *g = serve_json(&server, "POST /api/generate",
                           "{\"model\":\"demo\",\"prompt\":\"Once\",\"raw\":true,\"stream\":false,"
                           "\"options\":{\"num_predict\":3}}",
                           200);
    assert_int_equal(json_number_at(g, "eval_count"), 3);
    assert_string_equal(json_string_at(g, "done_reason"), "length");
    json_decref(g);
}

static void ollama_lists_models(void **state) {
    (void)state;
    json_t *v = serve_json(&server, "GET /api/version", NULL, 200);
    assert_true(strlen(json_string_at(v, "version")) > 0);
    json_decref(v);
    v = serve_json(&server, "GET /api/tags", NULL, 200);
    assert_int_equal(json_array_size(json_at(v, "models")), 1);
    assert_string_equal(json_string_at(v, "models.0.name"), "demo:latest");
    json_decref(v);
    v = serve_json(&server, "GET /api/ps", NULL, 200);
    assert_string_equal(json_string_at(v, "models.0.name"), "demo:latest"); /* it is loaded */
    json_decref(v);
    v = serve_json(&server, "POST /api/show", "{\"model\":\"claude:latest\"}", 200);
    assert_string_equal(json_string_at(v, "details.family"), "llama");
    const json_t *facts = json_at(v, "model_info");
    assert_true(json_integer_value(json_object_get(facts, "general.parameter_count")) > 0);
    json_decref(v);
    json_decref(serve_json(&server, "POST /api/show", "{\"model\":\"nobody\"}", 404));
}

static void ollama_cannot_change_models(void **state) {
    (void)state;
    static const char *const lines[] = {"POST /api/pull",     "POST /api/push",
                                        "POST /api/create",   "POST /api/copy",
                                        "DELETE /api/delete", "POST /api/blobs/sha256:00"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        json_t *v = serve_json(&server, lines[i], "{\"model\":\"demo\"}", 403);
        const bool is_file = strstr(lines[i], "push") || strstr(lines[i], "blobs");
        assert_says(json_string_at(v, "error"), is_file ? "files of models" : "--allow-pull");
        json_decref(v);
    }
}

/* Strict clients accept a list of maps, or null. */
static void reports_completion_probabilities_in_two_forms(void **state) {
    (void)state;
    for (int n = 0; n < 2; n++) {
        char body[160];
        snprintf(body, sizeof body,
                 "{\"model\":\"demo\",\"prompt\":\"Once\",\"max_tokens\":2,\"best_of\":0,"
                 "\"logprobs\":%d}",
                 n);
        json_t *v = serve_json(&server, "POST /v1/completions", body, 200);
        const json_t *tops = json_at(v, "choices.0.logprobs.top_logprobs");
        assert_int_equal(json_array_size(json_at(v, "choices.0.logprobs.token_logprobs")), 2);
        if (n) assert_int_equal(json_object_size(json_array_get(tops, 1)), 1);
        else assert_true(json_is_null(tops));
        json_decref(v);
    }
}

static void assert_header(const serve_reply *r, const char *line) {
    if (line[0] == '!') assert_null(strstr(r->head, line + 1));
    else if (!strstr(r->head, line)) fail_msg("no %s in %s", line, r->head);
}

static void names_ignored_fields(void **state) {
    (void)state;
    static const struct {
        const char *line, *body, *header;
    } cases[] = {
        {"POST /v1/chat/completions",
         "{\"model\":\"demo\"," HELLO ",\"max_tokens\":1,\"user\":\"x\",\"top_k\":3,\"a b\":1,"
         "\"service_tier\":null,\"modalities\":[]}",
         "X-Antigravity-Ignored: user, ?, modalities\r\n"},
        {MESSAGES, "{" BRIEF HELLO ",\"metadata\":{}}", "X-Antigravity-Ignored: metadata\r\n"},
        {"POST /api/chat",
         "{\"model\":\"demo\"," HELLO ",\"options\":{\"num_predict\":1,\"num_gpu\":2},\"n\":1}",
         "X-Antigravity-Ignored: n, options.num_gpu\r\n"},
        {"POST /v1/embeddings",
         "{\"model\":\"demo\",\"input\":\"a\",\"user\":\"x\",\"stream\":true}",
         "X-Antigravity-Ignored: user, stream\r\n"},
        {"POST /v1/chat/completions",
         "{\"model\":\"demo\"," HELLO ",\"max_tokens\":1,\"stream\":true,\"user\":\"x\"}",
         "X-Antigravity-Ignored: user\r\n"},
        {"POST /v1/completions",
         "{\"model\":\"demo\",\"prompt\":\"a\",\"max_tokens\":1,\"echo\":true,\"n\":2}",
         "!X-Antigravity-Ignored"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        serve_reply r = serve_fetch(&server, cases[i].line, "", cases[i].body);
        assert_int_equal(r.status, 200);
        assert_header(&r, cases[i].header);
        serve_reply_free(&r);
    }
    char body[65536] = "{\"model\":\"demo\",\"prompt\":\"a\",\"max_tokens\":1";
    for (size_t i = 0; i < 1000; i++) {
        const size_t n = strlen(body);
        snprintf(body + n, sizeof body - n, ",\"a_longer_name_%zu\":1", i);
    }
    strcat(body, "}");
    serve_reply r = serve_fetch(&server, "POST /v1/completions", "", body);
    assert_int_equal(r.status, 200);
    assert_header(&r, "X-Antigravity-Ignored: a_longer_name_0, a_longer_name_1, ");
    assert_header(&r, ", ...\r\n");
    serve_reply_free(&r);
}

/* Returns the text of an answer, and the seed of the header. */
static json_t *sampled_texts(const char *fields, char seed[32]) {
    char body[256];
    snprintf(body, sizeof body,
             "{\"model\":\"demo\",\"prompt\":\"Once\",\"max_tokens\":12,\"temperature\":1%s}",
             fields);
    serve_reply r = serve_fetch(&server, "POST /v1/completions", "", body);
    const char *header = strstr(r.head, "X-Antigravity-Seed: ");
    assert_non_null(header);
    assert_int_equal(sscanf(header, "X-Antigravity-Seed: %31[0-9]", seed), 1);
    json_t *texts = json_array(), *v = json_loads(r.body, 0, NULL);
    for (size_t i = 0; i < json_array_size(json_at(v, "choices")); i++)
        json_array_append(texts, json_object_get(json_array_get(json_at(v, "choices"), i), "text"));
    json_decref(v);
    serve_reply_free(&r);
    return texts;
}

static void a_drawn_seed_repeats_each_answer(void **state) {
    char seed[32], same[32], fields[64];
    (void)state;
    json_t *drawn = sampled_texts(",\"n\":2", seed);
    for (size_t i = 0; i < 2; i++) {
        snprintf(fields, sizeof fields, ",\"seed\":%llu", strtoull(seed, NULL, 10) + i);
        json_t *again = sampled_texts(fields, same);
        assert_string_equal(same, fields + strlen(",\"seed\":"));
        assert_string_equal(json_string_value(json_array_get(again, 0)),
                            json_string_value(json_array_get(drawn, i)));
        json_decref(again);
    }
    json_decref(drawn);
}

/* ---- lists of models ---- */

/* Does what serve_json() does, with the header of Anthropic's clients. */
static json_t *anthropic_json(const char *line, int status) {
    serve_reply r = serve_fetch(&server, line, "anthropic-version: 2023-06-01\r\n", NULL);
    assert_int_equal(r.status, status);
    json_t *v = json_loads(r.body, 0, NULL);
    assert_non_null(v);
    serve_reply_free(&r);
    return v;
}

static void lists_models_as_anthropic_does(void **state) {
    (void)state;
    json_t *v = anthropic_json("GET /v1/models", 200);
    assert_int_equal(json_array_size(json_at(v, "data")), 1);
    assert_string_equal(json_string_at(v, "data.0.type"), "model");
    assert_string_equal(json_string_at(v, "data.0.id"), "demo");
    assert_string_equal(json_string_at(v, "data.0.display_name"), "demo");
    assert_int_equal(strlen(json_string_at(v, "data.0.created_at")),
                     strlen("2026-01-01T00:00:00Z"));
    assert_true(json_is_false(json_at(v, "has_more")));
    assert_string_equal(json_string_at(v, "first_id"), "demo");
    assert_string_equal(json_string_at(v, "last_id"), "demo");
    json_decref(v);
    v = anthropic_json("GET /v1/models/claude", 200);
    assert_string_equal(json_string_at(v, "id"), "claude");
    json_decref(v);
    static const char *const missing[] = {"GET /v1/models/other", "GET /v1/nothing"};
    for (size_t i = 0; i < 2; i++) {
        v = anthropic_json(missing[i], 404);
        assert_string_equal(json_string_at(v, "type"), "error");
        assert_string_equal(json_string_at(v, "error.type"), "not_found_error");
        assert_says(json_string_at(v, "error.message"), "not found");
        json_decref(v);
    }
}

static void lists_aliases_with_their_model(void **state) {
    (void)state;
    json_t *v = serve_json(&server, "GET /v1/models", NULL, 200);
    assert_int_equal(json_array_size(json_at(v, "data")), 1);
    assert_string_equal(json_string_at(v, "data.0.id"), "demo");
    assert_string_equal(json_string_at(v, "data.0.aliases.0"), "claude");
    json_decref(v);
}

static void shortens_embeddings(void **state) {
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

static void accepts_the_key_in_either_header(void **state) {
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
        serve_reply r = serve_fetch(&locked, MESSAGES, cases[i].header, "{" BRIEF HELLO "}");
        assert_int_equal(r.status, cases[i].status);
        if (r.status == 401) assert_says(r.body, "authentication_error");
        serve_reply_free(&r);
    }
    serve_reply r = serve_fetch(&locked, "GET /api/tags", "", NULL);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replies_to_a_message),
        cmocka_unit_test(streams_the_same_message),
        cmocka_unit_test(reuses_the_prefix_despite_a_billing_header),
        cmocka_unit_test(errors_have_the_format_of_their_protocol),
        cmocka_unit_test(rejects_images_in_each_protocol),
        cmocka_unit_test(replies_to_a_response),
        cmocka_unit_test(streams_numbered_events),
        cmocka_unit_test(ollama_replies_in_lines),
        cmocka_unit_test(ollama_lists_models),
        cmocka_unit_test(ollama_cannot_change_models),
        cmocka_unit_test(reports_completion_probabilities_in_two_forms),
        cmocka_unit_test(names_ignored_fields),
        cmocka_unit_test(a_drawn_seed_repeats_each_answer),
        cmocka_unit_test(lists_models_as_anthropic_does),
        cmocka_unit_test(lists_aliases_with_their_model),
        cmocka_unit_test(shortens_embeddings),
        cmocka_unit_test(accepts_the_key_in_either_header),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
