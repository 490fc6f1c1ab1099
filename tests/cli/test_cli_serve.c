/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of antigravity serve with OpenAI's API and the bundled model. */
#include "served_group.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHAT "POST /v1/chat/completions"
#define ONCE "\"messages\":[{\"role\":\"user\",\"content\":\"Once upon a time\"}]"

/* ---- state of the server ---- */

static void reports_health_and_models(void **state) {
    (void)state;
    json_t *v = serve_json(&server, "GET /health", NULL, 200);
    assert_string_equal(json_string_value(json_at(v, "status")), "ok");
    assert_int_equal(json_integer_value(json_at(v, "running")), 0);
    assert_int_equal(json_integer_value(json_at(v, "waiting")), 0);
    assert_true(json_is_null(json_at(v, "memory.limit")));
    assert_true(json_integer_value(json_at(v, "memory.used")) > 1000000);
    assert_int_equal(json_integer_value(json_at(v, "models.served")), 1);
    assert_int_equal(json_integer_value(json_at(v, "models.loaded")), 1);
    assert_int_equal(json_object_size(v), 5);
    json_decref(v);
    v = serve_json(&server, "GET /v1/models", NULL, 200);
    assert_string_equal(json_string_value(json_at(v, "data.0.id")), "demo");
    assert_string_equal(json_string_value(json_at(v, "data.0.aliases.0")), "gpt-4o");
    assert_int_equal(json_array_size(json_at(v, "data")), 1);
    assert_string_equal(json_string_value(json_at(v, "data.0.object")), "model");
    assert_int_equal(json_integer_value(json_at(v, "data.0.context_length")), 2048);
    json_decref(v);
    v = serve_json(&server, "GET /v1/models/gpt-4o", NULL, 200);
    assert_string_equal(json_string_value(json_at(v, "id")), "gpt-4o");
    json_decref(v);
    v = serve_json(&server, "GET /v1/models/other", NULL, 404);
    assert_string_equal(json_string_value(json_at(v, "error.code")), "model_not_found");
    json_decref(v);
}

static void reports_metrics_and_resident_sessions(void **state) {
    (void)state;
    json_decref(serve_json(&server, CHAT, "{\"model\":\"demo\"," ONCE ",\"max_tokens\":3}", 200));
    serve_reply r = serve_fetch(&server, "GET /metrics", "", NULL);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.head, "Content-Type: text/plain; version=0.0.4"));
    assert_non_null(strstr(r.body, "# TYPE antigravity_generated_tokens_total counter\n"));
    assert_null(strstr(r.body, "antigravity_generated_tokens_total 0\n"));
    serve_reply_free(&r);
    json_t *v = serve_json(&server, "GET /v1/kv", NULL, 200);
    assert_string_equal(json_string_value(json_at(v, "data.0.model")), "demo");
    assert_true(json_integer_value(json_at(v, "data.0.tokens")) > 3);
    json_decref(v);
}

/* ---- chats ---- */

static void replies_to_a_chat(void **state) {
    (void)state;
    json_t *v = serve_json(
        &server, CHAT, "{\"model\":\"demo\"," ONCE ",\"max_tokens\":10,\"temperature\":0}", 200);
    assert_string_equal(json_string_value(json_at(v, "object")), "chat.completion");
    assert_string_equal(json_string_value(json_at(v, "choices.0.message.role")), "assistant");
    assert_string_equal(json_string_value(json_at(v, "choices.0.message.content")),
                        ", there was a little girl named Lily. She");
    assert_string_equal(json_string_value(json_at(v, "choices.0.finish_reason")), "length");
    assert_int_equal(json_integer_value(json_at(v, "usage.prompt_tokens")), 4);
    assert_int_equal(json_integer_value(json_at(v, "usage.completion_tokens")), 10);
    assert_int_equal(json_integer_value(json_at(v, "usage.total_tokens")), 14);
    json_decref(v);
    /* The second time all of the prompt but its last token is cached. */
    v = serve_json(&server, CHAT, "{\"model\":\"demo\"," ONCE ",\"max_completion_tokens\":1}", 200);
    assert_int_equal(json_integer_value(json_at(v, "usage.prompt_tokens_details.cached_tokens")),
                     3);
    json_decref(v);
}

/* Joins a field of the first deltas in text[cap], and copies the last finish_reason to *finish. */
static size_t read_stream(const serve_reply *r, char *text, size_t cap, char *finish) {
    size_t n_chunks = 0;
    text[0] = finish[0] = '\0';
    for (const char *at = r->body; (at = strstr(at, "data: ")) != NULL;) {
        at += 6;
        const char *end = strstr(at, "\n\n");
        assert_non_null(end);
        if (!strncmp(at, "[DONE]", 6)) return n_chunks;
        json_t *chunk = json_loadb(at, (size_t)(end - at), 0, NULL);
        assert_non_null(chunk);
        const json_t *choice = json_array_get(json_object_get(chunk, "choices"), 0);
        const char *piece =
            json_string_value(json_object_get(json_object_get(choice, "delta"), "content"));
        const char *why = json_string_value(json_object_get(choice, "finish_reason"));
        if (piece) strncat(text, piece, cap - strlen(text) - 1);
        if (why) snprintf(finish, 32, "%s", why);
        json_decref(chunk);
        n_chunks++;
    }
    fail_msg("no [DONE]: %s", r->body);
    return 0;
}

static void streams_a_chat(void **state) {
    (void)state;
    char text[1024], finish[32];
    serve_reply r = serve_fetch(&server, CHAT, "",
                                "{\"model\":\"demo\"," ONCE ",\"max_tokens\":10,\"temperature\":0,"
                                "\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.head, "Content-Type: text/event-stream\r\n"));
    /* An opening chunk, one for each token, one for the end, one for the usage. */
    assert_int_equal(read_stream(&r, text, sizeof text, finish), 13);
    assert_string_equal(text, ", there was a little girl named Lily. She");
    assert_string_equal(finish, "length");
    assert_non_null(strstr(r.body, "\"completion_tokens\":10"));
    serve_reply_free(&r);
}

/* Without a stream this many are rejected: rejects_invalid_requests_with_a_reason. The first token
 * ends each answer. */
static void streams_probabilities_with_their_tokens(void **state) {
    (void)state;
    serve_reply r = serve_fetch(&server, CHAT, "",
                                "{\"model\":\"demo\"," ONCE ",\"max_tokens\":100,\"n\":60,"
                                "\"logprobs\":true,\"top_logprobs\":20,\"stream\":true,"
                                "\"logit_bias\":{\"4091\":100}}");
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "data: [DONE]"));
    serve_reply_free(&r);
}

static void applies_stop_strings_seeds_and_n(void **state) {
    (void)state;
    json_t *v = serve_json(&server, CHAT,
                           "{\"model\":\"demo\"," ONCE
                           ",\"max_tokens\":40,\"temperature\":0,\"stop\":\" girl\"}",
                           200);
    assert_string_equal(json_string_value(json_at(v, "choices.0.message.content")),
                        ", there was a little");
    assert_string_equal(json_string_value(json_at(v, "choices.0.finish_reason")), "stop");
    json_decref(v);
    static const char several[] =
        "{\"model\":\"demo\"," ONCE ",\"max_tokens\":8,\"n\":3,\"seed\":7,\"temperature\":1.5}";
    v = serve_json(&server, CHAT, several, 200);
    json_t *again = serve_json(&server, CHAT, several, 200);
    assert_int_equal(json_array_size(json_at(v, "choices")), 3);
    assert_true(json_equal(json_at(v, "choices.2.message"), json_at(again, "choices.2.message")));
    assert_false(json_equal(json_at(v, "choices.0.message"), json_at(v, "choices.1.message")));
    json_decref(v);
    json_decref(again);
}

static void reports_probabilities_and_applies_biases(void **state) {
    (void)state;
    json_t *v = serve_json(&server, CHAT,
                           "{\"model\":\"demo\"," ONCE ",\"max_tokens\":1,\"temperature\":0,"
                           "\"logprobs\":true,\"top_logprobs\":2}",
                           200);
    assert_string_equal(json_string_value(json_at(v, "choices.0.logprobs.content.0.token")), ",");
    assert_int_equal(json_array_size(json_at(v, "choices.0.logprobs.content.0.top_logprobs")), 2);
    assert_true(json_real_value(json_at(v, "choices.0.logprobs.content.0.logprob")) < 0);
    const json_int_t comma = json_integer_value(json_at(v, "choices.0.logprobs.content.0.bytes.0"));
    assert_int_equal(comma, ',');
    json_decref(v);
    v = serve_json(&server, "POST /tokenize", "{\"content\":\",\"}", 200);
    char body[512];
    snprintf(body, sizeof body,
             "{\"model\":\"demo\"," ONCE ",\"max_tokens\":1,\"temperature\":0,"
             "\"logit_bias\":{\"%d\":-100}}",
             (int)json_integer_value(json_at(v, "tokens.0")));
    json_decref(v);
    v = serve_json(&server, CHAT, body, 200);
    assert_string_not_equal(json_string_value(json_at(v, "choices.0.message.content")), ",");
    json_decref(v);
}

static void generates_json_that_matches_a_schema(void **state) {
    (void)state;
    json_t *v = serve_json(
        &server, CHAT,
        "{\"model\":\"demo\"," ONCE ",\"max_tokens\":60,\"response_format\":{\"type\":"
        "\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":{\"type\":\"object\","
        "\"properties\":{\"age\":{\"type\":\"integer\",\"minimum\":10,\"maximum\":99}},"
        "\"required\":[\"age\"],\"additionalProperties\":false}}}}",
        200);
    json_t *made = json_loads(json_string_value(json_at(v, "choices.0.message.content")), 0, NULL);
    assert_in_range(json_integer_value(json_at(made, "age")), 10, 99);
    assert_string_equal(json_string_value(json_at(v, "choices.0.finish_reason")), "stop");
    json_decref(made);
    json_decref(v);
}

/* ---- texts and tokens ---- */

static void completes_prompts(void **state) {
    (void)state;
    json_t *v = serve_json(&server, "POST /v1/completions",
                           "{\"model\":\"demo\",\"prompt\":[\"Once upon\",\"The old king\"],"
                           "\"max_tokens\":2,\"temperature\":0,\"echo\":true}",
                           200);
    assert_string_equal(json_string_value(json_at(v, "choices.0.text")), "Once upon a time");
    assert_int_equal(json_integer_value(json_at(v, "choices.1.index")), 1);
    assert_int_equal(strncmp(json_string_value(json_at(v, "choices.1.text")), "The old king", 12),
                     0);
    json_decref(v);
    serve_reply r = serve_fetch(&server, "POST /v1/completions", "",
                                "{\"model\":\"demo\",\"prompt\":\"Once upon\",\"max_tokens\":2,"
                                "\"temperature\":0,\"stream\":true}");
    assert_non_null(strstr(r.body, "\"text\":\" a\""));
    assert_non_null(strstr(r.body, "\"text\":\" time\""));
    assert_non_null(strstr(r.body, "data: [DONE]\n\n"));
    serve_reply_free(&r);
}

/* Checks the lists of a choice with echo: the first token has no probability, and each map holds
 * the token itself with the same number. Returns the number of tokens. */
static size_t check_echoed_lists(const json_t *choice) {
    const json_t *tokens = json_at(choice, "logprobs.tokens"),
                 *probs = json_at(choice, "logprobs.token_logprobs"),
                 *tops = json_at(choice, "logprobs.top_logprobs"),
                 *offsets = json_at(choice, "logprobs.text_offset");
    const size_t n = json_array_size(tokens);
    assert_int_equal(json_array_size(probs), n);
    assert_int_equal(json_array_size(tops), n);
    assert_int_equal(json_array_size(offsets), n);
    assert_true(json_is_null(json_array_get(probs, 0)) && json_is_null(json_array_get(tops, 0)));
    for (size_t i = 1; i < n; i++) {
        const json_t *prob = json_array_get(probs, i), *top = json_array_get(tops, i);
        assert_true(
            json_equal(json_object_get(top, json_string_value(json_array_get(tokens, i))), prob));
        const char *name;
        json_t *value;
        size_t n_larger = 0;
        json_object_foreach((json_t *)(uintptr_t)top, name, value) n_larger +=
            json_real_value(value) > json_real_value(prob);
        assert_int_equal(json_object_size(top), 1 + n_larger);
    }
    return n;
}

static void echoes_prompts_with_their_probabilities(void **state) {
    (void)state;
    json_t *v =
        serve_json(&server, "POST /v1/completions",
                   "{\"model\":\"demo\",\"prompt\":[\"Once upon \\u2014 a\",\"The\"],"
                   "\"cache_prompt\":false,\"max_tokens\":2,\"temperature\":0,\"echo\":true,"
                   "\"logprobs\":1}",
                   200);
    const json_t *choice = json_at(v, "choices.0");
    assert_int_equal(check_echoed_lists(choice), 8);
    assert_int_equal(json_number_at(choice, "logprobs.text_offset.2"), 4);
    assert_string_equal(json_string_at(choice, "logprobs.tokens.0"), "<|begin_of_text|>");
    assert_int_equal(json_number_at(choice, "logprobs.text_offset.1"), 0);
    assert_int_equal(json_number_at(choice, "logprobs.text_offset.3"), 9);
    assert_int_equal(json_number_at(choice, "logprobs.text_offset.5"), 11); /* in characters */
    assert_int_equal(json_number_at(choice, "logprobs.text_offset.6"), 13);
    assert_int_equal(check_echoed_lists(json_at(v, "choices.1")), 4);
    json_decref(v);
}

static void echoes_lists_of_ids_without_new_tokens(void **state) {
    (void)state;
    json_t *v =
        serve_json(&server, "POST /v1/completions",
                   "{\"model\":\"demo\",\"prompt\":[[4090,300,400],[500],[600,601]],\"n\":2,"
                   "\"cache_prompt\":false,"
                   "\"max_tokens\":0,\"echo\":true,\"logprobs\":1}",
                   200);
    static const size_t lengths[] = {3, 3, 1, 1, 2, 2};
    assert_int_equal(json_array_size(json_at(v, "choices")), 6);
    for (size_t i = 0; i < 6; i++) {
        const json_t *choice = json_array_get(json_at(v, "choices"), i);
        assert_int_equal(check_echoed_lists(choice), lengths[i]);
        assert_int_equal(json_number_at(choice, "index"), i);
        assert_string_equal(json_string_at(choice, "finish_reason"), "length");
        char text[256] = "";
        for (size_t k = 0; k < lengths[i]; k++)
            strcat(text, json_string_value(json_array_get(json_at(choice, "logprobs.tokens"), k)));
        assert_string_equal(json_string_at(choice, "text"), text);
    }
    assert_int_equal(json_number_at(v, "choices.0.logprobs.text_offset.1"),
                     strlen("<|begin_of_text|>"));
    json_decref(v);
}

static void streams_an_echo_with_its_probabilities(void **state) {
    (void)state;
    serve_reply r = serve_fetch(&server, "POST /v1/completions", "",
                                "{\"model\":\"demo\",\"prompt\":\"Once upon\",\"max_tokens\":1,"
                                "\"cache_prompt\":false,\"temperature\":0,\"echo\":true,"
                                "\"logprobs\":1,\"stream\":true}");
    assert_int_equal(strncmp(r.body, "data: ", 6), 0);
    json_t *first = json_loads(r.body + 6, JSON_DISABLE_EOF_CHECK, NULL);
    assert_string_equal(json_string_at(first, "choices.0.text"), "Once upon");
    assert_int_equal(check_echoed_lists(json_at(first, "choices.0")), 3);
    json_decref(first);
    const char *second = strstr(r.body, "\n\ndata: ");
    json_t *next = json_loads(second + 8, JSON_DISABLE_EOF_CHECK, NULL);
    assert_string_equal(json_string_at(next, "choices.0.text"), " a");
    assert_int_equal(json_number_at(next, "choices.0.logprobs.text_offset.0"), 9);
    json_decref(next);
    serve_reply_free(&r);
}

/* Clients drop the last token: without the one that ends the text they would drop one of the
 * prompt. */
static void an_echo_lists_the_token_that_ends_the_text(void **state) {
    (void)state;
    json_t *v = serve_json(
        &server, "POST /v1/completions",
        "{\"model\":\"demo\",\"prompt\":\"Once upon\",\"max_tokens\":1,"
        "\"cache_prompt\":false,\"logit_bias\":{\"4091\":100},\"echo\":true,\"logprobs\":1}",
        200);
    assert_string_equal(json_string_at(v, "choices.0.text"), "Once upon");
    assert_string_equal(json_string_at(v, "choices.0.finish_reason"), "stop");
    assert_string_equal(json_string_at(v, "choices.0.logprobs.tokens.3"), "<|end_of_text|>");
    assert_int_equal(check_echoed_lists(json_at(v, "choices.0")), 4);
    assert_int_equal(json_number_at(v, "usage.completion_tokens"), 0);
    json_decref(v);
}

static void tokenizes_and_detokenizes(void **state) {
    (void)state;
    json_t *v = serve_json(&server, "POST /tokenize", "{\"content\":\"Once upon a time\"}", 200);
    assert_int_equal(json_integer_value(json_at(v, "count")), 4);
    json_t *ids = json_pack("{s:O}", "tokens", json_at(v, "tokens"));
    char *text = json_dumps(ids, 0);
    json_t *back = serve_json(&server, "POST /detokenize", text, 200);
    assert_string_equal(json_string_value(json_at(back, "content")), "Once upon a time");
    json_decref(back);
    json_decref(ids);
    json_decref(v);
    free(text);
    v = serve_json(&server, "POST /apply-template", "{" ONCE "}", 200);
    assert_string_equal(json_string_value(json_at(v, "prompt")), "Once upon a time");
    json_decref(v);
}

/* ---- rejected requests ---- */

#define FIVE "[4090,1,2,3,4],[4090,1,2,3,4],[4090,1,2,3,4],[4090,1,2,3,4],[4090,1,2,3,4]"

static void rejects_invalid_requests_with_a_reason(void **state) {
    (void)state;
    static const struct {
        const char *line, *body;
        int status;
        const char *says;
    } all[] = {
        {CHAT, "{" ONCE "}", 400, "model: missing"},
        {CHAT, "{\"model\":\"other\"," ONCE "}", 404, "model 'other' not found"},
        {CHAT, "{\"model\":\"demo\"}", 400, "messages"},
        {CHAT, "{\"model\":\"demo\",\"messages\":[]}", 400, "messages"},
        {CHAT,
         "{\"model\":\"demo\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":"
         "\"image_url\",\"image_url\":{\"url\":\"http://x/y.png\"}}]}]}",
         400, "images are not supported"},
        {CHAT, "{\"model\":\"demo\"," ONCE ",\"temperature\":-1}", 400, "temperature"},
        {CHAT, "{\"model\":\"demo\"," ONCE ",\"n\":0}", 400, "n: 0 is out of range"},
        {CHAT, "{\"model\":\"demo\"," ONCE ",\"response_format\":{\"type\":\"xml\"}}", 400,
         "response_format"},
        {CHAT, "{\"model\":\"demo\"," ONCE ",\"kv_type\":\"q9\"}", 400, "q9"},
        {CHAT, "{\"model\":\"demo\"," ONCE ",\"head_budget\":\"adaptive\"}", 400,
         "head_budget: needs an eviction policy"},
        {CHAT, "{\"model\":\"demo\"," ONCE ",\"head_budget\":\"odd\"}", 400,
         "'odd' is not one of even"},
        {CHAT,
         "{\"model\":\"demo\"," ONCE ",\"head_budget\":\"adaptive\",\"kv_policy\":\"streaming\"}",
         400, "eviction policy streaming has no scores"},
        {CHAT,
         "{\"model\":\"demo\"," ONCE ",\"max_tokens\":100,\"n\":60,\"logprobs\":true,"
         "\"top_logprobs\":20}",
         400, "too many probabilities: 126000 tokens"},
        {"POST /v1/completions",
         "{\"model\":\"demo\",\"prompt\":[" FIVE "," FIVE "," FIVE
         "],\"n\":64,\"max_tokens\":0,\"echo\":true,\"logprobs\":20}",
         400, "too many probabilities: 100800 tokens"},
        {CHAT, "{", 400, "not valid JSON"},
        {CHAT, "[]", 400, "must be a JSON object"},
        {CHAT, "{\"model\":\"\xff\"}", 400, "not valid JSON"},
        {CHAT, "", 400, "not valid JSON"},
        {"GET /v1/chat/completions", NULL, 405, "POST"},
        {"GET /nothing", NULL, 404, "/nothing"},
        {"GET /v1/%00", NULL, 400, "malformed"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        json_t *v = serve_json(&server, all[i].line, all[i].body, all[i].status);
        assert_says(json_string_value(json_at(v, "error.message")), all[i].says);
        json_decref(v);
    }
    /* Unknown fields are ignored. */
    json_decref(serve_json(&server, CHAT,
                           "{\"model\":\"demo\"," ONCE ",\"max_tokens\":1,\"num_ctx\":4096,"
                           "\"user\":\"x\",\"metadata\":{}}",
                           200));
}

static void names_unknown_roles(void **state) {
    (void)state;
    static const char *const known[] = {"system",    "developer",    "user",
                                        "assistant", "tool",         "function",
                                        "ipython",   "tool_results", "control"};
    static const char form[] = "{\"model\":\"demo\",\"max_tokens\":1,\"messages\":["
                               "{\"role\":\"user\",\"content\":\"a\"},"
                               "{\"role\":\"%s\",\"content\":\"b\"}]}";
    char body[256];
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        snprintf(body, sizeof body, form, known[i]);
        json_decref(serve_json(&server, CHAT, body, 200));
    }
    snprintf(body, sizeof body, form, "usr");
    json_t *v = serve_json(&server, CHAT, body, 400);
    assert_string_equal(json_string_value(json_at(v, "error.param")), "messages[1].role");
    assert_string_equal(json_string_value(json_at(v, "error.message")),
                        "messages[1].role: unknown role 'usr'; it must be system, developer, user, "
                        "assistant or tool");
    json_decref(v);
}

static int start_server(void **state) {
    (void)state;
    SERVE_START(&server, "--alias", "gpt-4o", "-q");
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reports_health_and_models),
        cmocka_unit_test(replies_to_a_chat),
        cmocka_unit_test(streams_a_chat),
        cmocka_unit_test(streams_probabilities_with_their_tokens),
        cmocka_unit_test(applies_stop_strings_seeds_and_n),
        cmocka_unit_test(reports_probabilities_and_applies_biases),
        cmocka_unit_test(generates_json_that_matches_a_schema),
        cmocka_unit_test(completes_prompts),
        cmocka_unit_test(echoes_prompts_with_their_probabilities),
        cmocka_unit_test(echoes_lists_of_ids_without_new_tokens),
        cmocka_unit_test(streams_an_echo_with_its_probabilities),
        cmocka_unit_test(an_echo_lists_the_token_that_ends_the_text),
        cmocka_unit_test(tokenizes_and_detokenizes),
        cmocka_unit_test(reports_metrics_and_resident_sessions),
        cmocka_unit_test(rejects_invalid_requests_with_a_reason),
        cmocka_unit_test(names_unknown_roles),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
