/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of ollama's chat and generate: parsers and replies. */
#include "protocol_bench.h"

#include <string.h>
#include <unistd.h>

static const serve_protocol *at(const char *path) { return protocol_at(ollama_routes, path); }

static void reads_sampling_options(void **state) {
    (void)state;
    parsed_body *p = parse_body(
        at("/api/chat"), "{'model': 'm', 'messages': [{'role': 'user', 'content': 'Hi'}],"
                         " 'options': {'temperature': 0.5, 'top_k': 3, 'top_p': 0.9, 'min_p': 0.1,"
                         " 'repeat_penalty': 1.5, 'repeat_last_n': 64, 'seed': 7, 'num_predict':"
                         " 12, 'stop': 'A', 'num_ctx': 4096}, 'format': 'json', 'think': 'low',"
                         " 'keep_alive': '5m'}");
    const serve_request *r = &p->request;
    if (p->error.status) fail_msg("%s", p->error.text);
    assert_true(r->stream); /* the default */
    assert_true(r->sampling.temperature == 0.5 && r->sampling.repetition_penalty == 1.5);
    assert_int_equal(r->sampling.top_k, 3);
    assert_int_equal(r->sampling.repetition_window, 64);
    assert_true(r->sampling.has_seed && r->sampling.seed == 7);
    assert_int_equal(r->max_tokens, 12);
    assert_int_equal(r->max_context, 4096);
    assert_true(r->keep_alive_s == 300 && !r->load_only);
    assert_json(r->stop, "['A']");
    assert_true(r->constrained && r->constraint == AG_CONSTRAINT_JSON_OBJECT);
    assert_json(r->variables, "{'reasoning_effort': 'low', 'enable_thinking': true}");
    parsed_free(p);
}

static void reads_a_suffix(void **state) {
    (void)state;
    parsed_body *p = parse_body(at("/api/generate"), "{'model': 'm', 'prompt': 'x',"
                                                     " 'suffix': 'y'}");
    assert_int_equal(p->request.kind, SERVE_TEXT);
    assert_string_equal(p->request.suffix, "y");
    assert_false(p->request.parse_special);
    parsed_free(p);
    p = parse_body(at("/api/generate"), "{'model': 'm', 'prompt': 'x', 'suffix': ''}");
    assert_int_equal(p->request.kind, SERVE_CHAT);
    parsed_free(p);
}

static void negative_num_predict_means_no_limit(void **state) {
    (void)state;
    parsed_body *p = parse_body(at("/api/generate"), "{'model': 'm', 'prompt': 'x', 'options':"
                                                     " {'num_predict': -2, 'seed': -1}}");
    assert_int_equal(p->request.max_tokens, -1);
    assert_false(p->request.sampling.has_seed);
    parsed_free(p);
}

static void numbers_calls_and_results_alike(void **state) {
    (void)state;
    parsed_body *p = parse_body(
        at("/api/chat"), "{'model': 'm', 'messages': [{'role': 'user', 'content': 'Hi'},"
                         " {'role': 'assistant', 'thinking': 'Hm.', 'tool_calls': [{'function':"
                         " {'name': 'f', 'arguments': {'a': 1}}}, {'function': {'name': 'g',"
                         " 'arguments': {}}}]}, {'role': 'tool', 'tool_name': 'f', 'content': '1'},"
                         " {'role': 'tool', 'tool_name': 'g', 'content': '2'}]}");
    assert_json(p->request.messages,
                "[{'role': 'user', 'content': 'Hi'},"
                " {'role': 'assistant', 'content': '', 'reasoning_content': 'Hm.', 'tool_calls':"
                " [{'id': 'call_0', 'type': 'function', 'function': {'name': 'f', 'arguments':"
                " {'a': 1}}}, {'id': 'call_1', 'type': 'function', 'function': {'name': 'g',"
                " 'arguments': {}}}]},"
                " {'role': 'tool', 'content': '1', 'tool_call_id': 'call_0', 'name': 'f'},"
                " {'role': 'tool', 'content': '2', 'tool_call_id': 'call_1', 'name': 'g'}]");
    parsed_free(p);
}

/* Many small messages: the work for each must not depend on their number. */
static void reads_many_results_in_linear_time(void **state) {
    (void)state;
    enum { N = 200000 };
    json_t *messages = json_array(), *body = json_object();
    for (int i = 0; i < N; i++) json_array_append_new(messages, json_pack("{ss}", "role", "tool"));
    json_object_set_new(body, "messages", messages);
    serve_request r;
    serve_error e;
    serve_request_init(&r);
    alarm(60); /* ends a test that would take an hour */
    assert_true(at("/api/chat")->parse(body, &r, &e));
    alarm(0);
    assert_int_equal(json_array_size(r.messages), N);
    serve_request_free(&r);
    json_decref(body);
}

static void prompt_becomes_a_message_unless_raw(void **state) {
    (void)state;
    parsed_body *p =
        parse_body(at("/api/generate"), "{'model': 'm', 'prompt': 'Hi', 'system': 'Be brief.'}");
    assert_int_equal(p->request.kind, SERVE_CHAT);
    assert_json(p->request.messages, "[{'role': 'system', 'content': 'Be brief.'}, {'role':"
                                     " 'user', 'content': 'Hi'}]");
    parsed_free(p);
    p = parse_body(at("/api/generate"), "{'model': 'm', 'prompt': 'Hi', 'raw': true}");
    assert_int_equal(p->request.kind, SERVE_TEXT);
    assert_json(p->request.prompts, "['Hi']");
    parsed_free(p);
}

static void rejects_unsupported_fields(void **state) {
    (void)state;
    assert_body_refused(at("/api/chat"),
                        "{'messages': [{'role': 'user', 'content': 'x', 'images':"
                        " ['aGk=']}]}",
                        400, "images are not supported");
    assert_body_refused(at("/api/generate"), "{'prompt': 'x', 'images': ['aGk=']}", 400,
                        "images are not supported");
    assert_body_refused(at("/api/generate"), "{'prompt': 'x', 'context': [1]}", 400, "context");
    assert_body_refused(at("/api/generate"), "{'prompt': 'x', 'template': 'y'}", 400, "template");
    assert_body_refused(at("/api/chat"), "{'messages': [{'content': 'x'}]}", 400, "role");
    assert_body_refused(at("/api/chat"), "{'messages': [{'role': 'user', 'content': 1}]}", 400,
                        "content");
    assert_body_refused(at("/api/chat"), "{'format': 'xml'}", 400, "format");
    assert_body_refused(at("/api/embed"), "{'input': []}", 400, "input");
    assert_body_refused(at("/api/embeddings"), "{}", 400, "prompt");
}

static const answer_step steps[] = {
    {.kind = SERVE_BEGIN},
    {.kind = SERVE_REASONING, .text = "Hm."},
    {.kind = SERVE_IDLE},
    {.kind = SERVE_CONTENT, .text = "Hello"},
    {.kind = SERVE_CALL, .text = "f"},
    {.kind = SERVE_ARGUMENTS, .text = "{\"a\":1}"},
    {.kind = SERVE_ANSWERED, .finish = SERVE_FINISH_CALLS},
    {.kind = SERVE_END},
};
enum { STEPS = sizeof steps / sizeof steps[0] };

static void streams_a_chat_as_lines(void **state) {
    (void)state;
    json_t *s = answer_body(at("/api/chat"), "{'messages': [{'role': 'user', 'content': 'Hi'}]}",
                            steps, STEPS);
    assert_int_equal(json_array_size(s), 4);
    assert_at(s, "0.0", "null");
    assert_at(s, "0.1.message", "{'role': 'assistant', 'content': '', 'thinking': 'Hm.'}");
    assert_at(s, "0.1.done", "false");
    assert_at(s, "1.1.message", "{'role': 'assistant', 'content': 'Hello'}");
    assert_at(s, "2.1.message.tool_calls", "[{'function': {'name': 'f', 'arguments': {'a': 1}}}]");
    assert_at(s, "3.1.done", "true");
    assert_at(s, "3.1.done_reason", "'stop'");
    assert_at(s, "3.1.prompt_eval_count", "9");
    assert_at(s, "3.1.eval_count", "3");
    json_decref(s);
}

static void replies_to_a_chat_with_one_object(void **state) {
    (void)state;
    json_t *m = answer_body(at("/api/chat"),
                            "{'messages': [{'role': 'user', 'content': 'Hi'}], 'stream': false}",
                            steps, STEPS);
    assert_at(m, "message",
              "{'role': 'assistant', 'content': 'Hello', 'thinking': 'Hm.', 'tool_calls':"
              " [{'function': {'name': 'f', 'arguments': {'a': 1}}}]}");
    assert_at(m, "done", "true");
    json_decref(m);
}

static void replies_to_generate(void **state) {
    (void)state;
    const answer_step plain[] = {
        {.kind = SERVE_BEGIN},
        {.kind = SERVE_CONTENT, .text = "Hello"},
        {.kind = SERVE_ANSWERED, .finish = SERVE_FINISH_LENGTH},
        {.kind = SERVE_END},
    };
    json_t *m = answer_body(at("/api/generate"), "{'prompt': 'x', 'stream': false}", plain, 4);
    assert_at(m, "response", "'Hello'");
    assert_at(m, "done_reason", "'length'");
    json_decref(m);
    m = answer_body(at("/api/generate"), "{'prompt': 'x'}", plain, 4);
    assert_at(m, "0.1.response", "'Hello'");
    assert_at(m, "1.1.response", "''");
    assert_at(m, "1.1.done", "true");
    json_decref(m);
}

static void reports_a_failure_as_a_line(void **state) {
    (void)state;
    const answer_step failing[] = {{.kind = SERVE_BEGIN}, {.kind = SERVE_FAILED}};
    json_t *s = answer_body(at("/api/chat"), "{'messages': [{'role': 'user', 'content': 'Hi'}]}",
                            failing, 2);
    assert_json(s, "[[null, {'error': 'the limit of memory'}]]");
    json_decref(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_sampling_options),
        cmocka_unit_test(negative_num_predict_means_no_limit),
        cmocka_unit_test(reads_a_suffix),
        cmocka_unit_test(numbers_calls_and_results_alike),
        cmocka_unit_test(reads_many_results_in_linear_time),
        cmocka_unit_test(prompt_becomes_a_message_unless_raw),
        cmocka_unit_test(rejects_unsupported_fields),
        cmocka_unit_test(streams_a_chat_as_lines),
        cmocka_unit_test(replies_to_a_chat_with_one_object),
        cmocka_unit_test(replies_to_generate),
        cmocka_unit_test(reports_a_failure_as_a_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
