/* SPDX-License-Identifier: Apache-2.0 */
/* Calls under tool_choice "auto", through every protocol: the arguments obey the tool's parameters.
 * In the template a call begins with "the", which the model writes of its own accord. */
#include "served_group.h"

#define PARAMETERS                                                                           \
    "{\"type\":\"object\",\"properties\":{\"city\":{\"enum\":[\"Oslo\",\"Rome\"]},\"days\":" \
    "{\"type\":\"integer\",\"minimum\":1,\"maximum\":9}},\"required\":[\"city\",\"days\"]}"
#define FUNCTION "\"name\":\"get_weather\",\"description\":\"d\""
#define CHAT_TOOL \
    "{\"type\":\"function\",\"function\":{" FUNCTION ",\"parameters\":" PARAMETERS "}}"
#define USER "[{\"role\":\"user\",\"content\":\"Once there was a king\"}]"
#define HEAD "\"model\":\"demo\",\"temperature\":0,"

static int start_server(void **state) {
    (void)state;
    SERVE_START(&server, "-q", "-m", DEMO, "--chat-template",
                AG_SOURCE_DIR "/tests/cli/word_calls.jinja");
    return 0;
}

static bool is_valid(const json_t *arguments) {
    const char *city = json_string_value(json_object_get(arguments, "city"));
    const json_int_t days = json_integer_value(json_object_get(arguments, "days"));
    return city && (!strcmp(city, "Oslo") || !strcmp(city, "Rome")) && days >= 1 && days <= 9 &&
           json_object_size(arguments) == 2;
}

/* Returns whether the arguments are complete, and checks them; only the last call of an answer may
 * be cut short. */
static bool check_text(const char *text, bool is_last) {
    json_t *v = json_loads(text, 0, NULL);
    const bool is_complete = v != NULL;
    if (v ? !is_valid(v) : !is_last) fail_msg("%s", text);
    json_decref(v);
    return is_complete;
}

static bool check_object(const json_t *arguments, bool is_last) {
    if (!is_last) assert_true(is_valid(arguments));
    return is_valid(arguments);
}

/* Checks an answer of chat completions. Returns the number of complete calls. */
static size_t check_choice(const json_t *choice) {
    const json_t *message = json_object_get(choice, "message");
    const json_t *calls = json_object_get(message, "tool_calls");
    const bool is_cut = !strcmp(json_string_at(choice, "finish_reason"), "length");
    const size_t n = json_array_size(calls);
    size_t n_complete = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *call = json_array_get(calls, i);
        assert_string_equal(json_string_at(call, "function.name"), "get_weather");
        n_complete += check_text(json_string_at(call, "function.arguments"), is_cut && i + 1 == n);
    }
    return n_complete;
}

static json_t *chat(const char *more) {
    char body[4096];
    snprintf(body, sizeof body, "{" HEAD "\"messages\":" USER ",\"tools\":[" CHAT_TOOL "]%s}",
             more);
    return serve_json(&server, "POST /v1/chat/completions", body, 200);
}

static void arguments_obey_in_chat_completions(void **state) {
    (void)state;
    json_t *v = chat(",\"max_tokens\":200");
    assert_true(check_choice(json_at(v, "choices.0")) > 0);
    /* The text before and between the calls is the model's. */
    assert_non_null(strstr(json_string_at(v, "choices.0.message.content"), " "));
    assert_null(strstr(json_string_at(v, "choices.0.message.content"), "get_weather"));
    json_decref(v);
    v = chat(",\"max_tokens\":200,\"tool_choice\":\"none\"");
    assert_null(json_object_get(json_at(v, "choices.0.message"), "tool_calls"));
    json_decref(v);
}

/* The objects of a schema are closed, and an answer that a limit cuts short says so. */
static void objects_are_closed(void **state) {
    char body[2048];
    (void)state;
    snprintf(
        body, sizeof body,
        "{\"model\":\"demo\",\"messages\":" USER ",\"n\":16,\"temperature\":2,\"max_tokens\":90,"
        "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":"
        "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"]}}}}");
    json_t *v = serve_json(&server, "POST /v1/chat/completions", body, 200);
    const json_t *choice;
    size_t i;
    json_array_foreach(json_at(v, "choices"), i, choice) {
        json_t *answer = json_loads(json_string_at(choice, "message.content"), 0, NULL);
        const bool is_cut = !strcmp(json_string_at(choice, "finish_reason"), "length");
        if (!answer) assert_true(is_cut);
        if (answer) assert_int_equal(json_object_size(answer), 1);
        json_decref(answer);
    }
    json_decref(v);
    v = chat(",\"max_tokens\":9,\"tool_choice\":\"required\"");
    assert_string_equal(json_string_at(v, "choices.0.finish_reason"), "length");
    json_decref(v);
}

/* "strict": false does not turn the constraint of calls off. */
static void arguments_obey_if_strict_is_false(void **state) {
    (void)state;
    json_t *v = serve_json(&server, "POST /v1/chat/completions",
                           "{" HEAD "\"messages\":" USER ",\"max_tokens\":200,\"tools\":[{"
                           "\"type\":\"function\",\"function\":{" FUNCTION ",\"strict\":false,"
                           "\"parameters\":" PARAMETERS "}}]}",
                           200);
    assert_true(check_choice(json_at(v, "choices.0")) > 0);
    json_decref(v);
}

static void ends_the_answer_after_one_call(void **state) {
    (void)state;
    json_t *v = chat(",\"max_tokens\":400,\"parallel_tool_calls\":false");
    assert_int_equal(check_choice(json_at(v, "choices.0")), 1);
    assert_string_equal(json_string_at(v, "choices.0.finish_reason"), "tool_calls");
    json_decref(v);
}

static void several_answers_obey(void **state) {
    size_t n = 0;
    (void)state;
    json_t *v = chat(",\"max_tokens\":120,\"n\":4,\"temperature\":1,\"seed\":7,"
                     "\"top_p\":0.9,\"repetition_penalty\":1.1");
    for (size_t i = 0; i < 4; i++) n += check_choice(json_array_get(json_at(v, "choices"), i));
    assert_true(n > 1);
    json_decref(v);
}

/* Tokens do not depend on when masks are made. */
static void equal_requests_get_equal_answers(void **state) {
    static const char more[] = ",\"max_tokens\":100,\"n\":2,\"temperature\":1,\"seed\":3";
    (void)state;
    json_t *a = chat(more), *b = chat(more);
    for (size_t i = 0; i < 2; i++) {
        const json_t *x = json_at(json_array_get(json_at(a, "choices"), i), "message");
        const json_t *y = json_at(json_array_get(json_at(b, "choices"), i), "message");
        assert_string_equal(json_string_at(x, "content"), json_string_at(y, "content"));
        assert_int_equal(json_array_size(json_object_get(x, "tool_calls")),
                         json_array_size(json_object_get(y, "tool_calls")));
    }
    json_decref(a);
    json_decref(b);
}

/* Joins the arguments of the calls in a stream of chat completions. */
static void arguments_obey_in_a_stream(void **state) {
    char joined[16][512] = {""};
    size_t n = 0;
    (void)state;
    serve_reply r =
        serve_fetch(&server, "POST /v1/chat/completions", "Content-Type: application/json\r\n",
                    "{" HEAD "\"messages\":" USER ",\"tools\":[" CHAT_TOOL
                    "],\"max_tokens\":200,\"stream\":true}");
    assert_int_equal(r.status, 200);
    for (char *at = r.body; (at = strstr(at, "data: {"));) {
        json_t *v = json_loads(at += 6, JSON_DISABLE_EOF_CHECK, NULL);
        const json_t *choices = json_object_get(v, "choices");
        const json_t *call = json_array_get(
            json_object_get(json_object_get(json_array_get(choices, 0), "delta"), "tool_calls"), 0);
        const char *text =
            json_string_value(json_object_get(json_object_get(call, "function"), "arguments"));
        const size_t index = (size_t)json_integer_value(json_object_get(call, "index"));
        assert_true(index < 16);
        if (call && index + 1 > n) n = index + 1;
        if (text) strncat(joined[index], text, sizeof joined[index] - strlen(joined[index]) - 1);
        json_decref(v);
    }
    size_t n_complete = 0;
    for (size_t i = 0; i < n; i++) n_complete += check_text(joined[i], i + 1 == n);
    assert_true(n_complete > 0);
    serve_reply_free(&r);
}

static void arguments_obey_in_responses(void **state) {
    size_t n = 0;
    (void)state;
    json_t *v = serve_json(&server, "POST /v1/responses",
                           "{" HEAD "\"input\":\"Once there was a king\",\"max_output_tokens\":200,"
                           "\"tools\":[{\"type\":\"function\",\"strict\":false," FUNCTION
                           ",\"parameters\":" PARAMETERS "}]}",
                           200);
    const json_t *item, *output = json_at(v, "output");
    size_t i;
    json_array_foreach(output, i, item) {
        if (strcmp(json_string_at(item, "type"), "function_call") != 0) continue;
        n += check_text(json_string_at(item, "arguments"), i + 1 == json_array_size(output));
    }
    assert_true(n > 0);
    json_decref(v);
}

static void arguments_obey_in_messages(void **state) {
    size_t n = 0;
    (void)state;
    json_t *v = serve_json(&server, "POST /v1/messages",
                           "{" HEAD "\"messages\":" USER ",\"max_tokens\":200,\"tools\":[{" FUNCTION
                           ",\"input_schema\":" PARAMETERS "}]}",
                           200);
    const json_t *part, *content = json_at(v, "content");
    size_t i;
    json_array_foreach(content, i, part) {
        if (strcmp(json_string_at(part, "type"), "tool_use") != 0) continue;
        n += check_object(json_at(part, "input"), i + 1 == json_array_size(content));
    }
    assert_true(n > 0);
    json_decref(v);
}

static void arguments_obey_in_ollama(void **state) {
    (void)state;
    json_t *v = serve_json(
        &server, "POST /api/chat",
        "{\"model\":\"demo\",\"stream\":false,\"messages\":" USER
        ",\"options\":{\"temperature\":0,\"num_predict\":200},\"tools\":[" CHAT_TOOL "]}",
        200);
    const json_t *calls = json_at(v, "message.tool_calls");
    const size_t n = json_array_size(calls);
    size_t n_complete = 0;
    for (size_t i = 0; i < n; i++)
        n_complete +=
            check_object(json_at(json_array_get(calls, i), "function.arguments"), i + 1 == n);
    assert_true(n_complete > 0);
    json_decref(v);
}

/* Parameters that cannot be constrained do not fail the request, and other tools obey. */
static void other_tools_obey_beside_one_that_cannot_be_constrained(void **state) {
    size_t n = 0;
    (void)state;
    json_t *v = serve_json(&server, "POST /v1/chat/completions",
                           "{" HEAD "\"messages\":" USER ",\"max_tokens\":300,\"tools\":[" CHAT_TOOL
                           ",{\"type\":\"function\",\"function\":{\"name\":\"odd\",\"parameters\":"
                           "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\","
                           "\"unevaluatedItems\":false}}}}}]}",
                           200);
    const json_t *calls = json_at(v, "choices.0.message.tool_calls");
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *f = json_at(json_array_get(calls, i), "function");
        if (!strcmp(json_string_at(f, "name"), "odd")) continue;
        n += check_text(json_string_at(f, "arguments"), i + 1 == json_array_size(calls));
    }
    assert_true(n > 0);
    json_decref(v);
}

/* A client that leaves during a call. */
static void serves_others_after_a_cancelled_call(void **state) {
    static const char body[] = "{" HEAD "\"messages\":" USER ",\"tools\":[" CHAT_TOOL
                               "],\"max_tokens\":1500,\"ignore_eos\":true,\"stream\":true}";
    char head[256], some[512];
    (void)state;
    for (int i = 0; i < 4; i++) {
        const int fd = serve_connect(&server);
        snprintf(head, sizeof head,
                 "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                 "application/json"
                 "\r\nContent-Length: %zu\r\n\r\n",
                 sizeof body - 1);
        serve_send(fd, head, strlen(head));
        serve_send(fd, body, sizeof body - 1);
        for (int k = 0; k < 1 + 4 * i; k++) assert_true(read(fd, some, sizeof some) > 0);
        close(fd);
    }
    json_t *v = chat(",\"max_tokens\":100");
    assert_true(check_choice(json_at(v, "choices.0")) > 0);
    json_decref(v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_obey_in_chat_completions),
        cmocka_unit_test(objects_are_closed),
        cmocka_unit_test(arguments_obey_if_strict_is_false),
        cmocka_unit_test(ends_the_answer_after_one_call),
        cmocka_unit_test(several_answers_obey),
        cmocka_unit_test(equal_requests_get_equal_answers),
        cmocka_unit_test(arguments_obey_in_a_stream),
        cmocka_unit_test(arguments_obey_in_responses),
        cmocka_unit_test(arguments_obey_in_messages),
        cmocka_unit_test(arguments_obey_in_ollama),
        cmocka_unit_test(other_tools_obey_beside_one_that_cannot_be_constrained),
        cmocka_unit_test(serves_others_after_a_cancelled_call),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
