/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of Anthropic's Messages API: parsers and replies. */
#include "protocol_bench.h"

#include <string.h>
#include <unistd.h>

#define HEAD "'model': 'm', 'max_tokens': 10"
#define HELLO "'messages': [{'role': 'user', 'content': 'Hello'}]"

static const serve_protocol *messages(void) {
    return protocol_at(anthropic_routes, "/v1/messages");
}

static void keeps_string_contents(void **state) {
    (void)state;
    assert_messages(messages(), "{" HEAD ", 'system': 'Be brief.', " HELLO "}",
                    "[{'role': 'system', 'content': 'Be brief.'},"
                    " {'role': 'user', 'content': 'Hello'}]");
}

static void strips_the_billing_header(void **state) {
    (void)state;
    static const char expected[] =
        "[{'role': 'system', 'content': 'You are an agent.'},{'role': 'user', 'content': 'Hello'}]";
    assert_messages(messages(),
                    "{" HEAD ", 'system': [{'type': 'text', 'text': 'x-anthropic-billing-header: "
                    "cc_version=1; cch=a1b2c;'}, {'type': 'text', 'text': 'You are an agent.',"
                    " 'cache_control': {'type': 'ephemeral'}}], " HELLO "}",
                    expected);
    assert_messages(messages(),
                    "{" HEAD ", 'system': 'x-anthropic-billing-header: cch=f;\\nYou are an agent.'"
                    ", " HELLO "}",
                    expected);
    /* In other positions it is ordinary text. */
    assert_messages(messages(),
                    "{" HEAD ", 'system': [{'type': 'text', 'text': 'A'}, {'type': 'text', 'text':"
                    " 'x-anthropic-billing-header: cch=f;'}], " HELLO "}",
                    "[{'role': 'system', 'content': [{'type': 'text', 'text': 'A'}, {'type': 'text'"
                    ", 'text': 'x-anthropic-billing-header: cch=f;'}]},"
                    " {'role': 'user', 'content': 'Hello'}]");
}

static void converts_calls_and_results_to_messages(void **state) {
    (void)state;
    assert_messages(
        messages(),
        "{" HEAD ", 'messages': [{'role': 'user', 'content': 'Weather?'},"
        " {'role': 'assistant', 'content': [{'type': 'thinking', 'thinking': 'Hm.', 'signature':"
        " ''}, {'type': 'text', 'text': 'I look.'}, {'type': 'tool_use', 'id': 'c1', 'name':"
        " 'weather', 'input': {'city': 'Rome', 'a': 1}}]},"
        " {'role': 'user', 'content': [{'type': 'text', 'text': 'Here:'}, {'type': 'tool_result',"
        " 'tool_use_id': 'c1', 'content': [{'type': 'text', 'text': 'sunny'}, {'type': 'text',"
        " 'text': 'warm'}]}, {'type': 'tool_result', 'tool_use_id': 'c2', 'is_error': true,"
        " 'content': 'no'}]}]}",
        "[{'role': 'user', 'content': 'Weather?'},"
        " {'role': 'assistant', 'content': 'I look.', 'reasoning_content': 'Hm.', 'tool_calls':"
        " [{'id': 'c1', 'type': 'function', 'function': {'name': 'weather', 'arguments':"
        " '{\\\"city\\\":\\\"Rome\\\",\\\"a\\\":1}'}}]},"
        " {'role': 'tool', 'tool_call_id': 'c1', 'content': 'sunny\\nwarm'},"
        " {'role': 'tool', 'tool_call_id': 'c2', 'content': 'Error: no'},"
        " {'role': 'user', 'content': 'Here:'}]");
}

static void joins_many_thinking_blocks_in_linear_time(void **state) {
    (void)state;
    enum { N = 300000 };
    json_t *blocks = json_array();
    for (int i = 0; i < N; i++)
        json_array_append_new(blocks, json_pack("{ssss}", "type", "thinking", "thinking",
                                                "some thought of 32 bytes, or so."));
    json_t *body = json_pack("{sss[{ssso}]}", "model", "m", "messages", "role", "assistant",
                             "content", blocks);
    assert_non_null(body);
    serve_request r;
    serve_error e;
    serve_request_init(&r);
    alarm(60); /* ends a test that would take minutes */
    assert_true(protocol_at(anthropic_routes, "/v1/messages/count_tokens")->parse(body, &r, &e));
    alarm(0);
    const json_t *text = json_find(r.messages, "0.reasoning_content");
    assert_int_equal(json_string_length(text), (size_t)N * 32);
    serve_request_free(&r);
    json_decref(body);
}

static void reads_parameters(void **state) {
    (void)state;
    parsed_body *p = parse_body(
        messages(),
        "{" HEAD ", 'stop_sequences': ['A', 'B'], 'temperature': 0.5, 'top_p': 0.9,"
        " 'top_k': 7, 'stream': true, 'metadata': {'user_id': 'x'}, 'tools': [{'name':"
        " 'f', 'input_schema': {'type': 'object'}}, {'type': 'web_search_1', 'name':"
        " 'w'}], 'tool_choice': {'type': 'tool', 'name': 'f',"
        " 'disable_parallel_tool_use': true}, 'thinking': {'type': 'disabled'},"
        " 'output_config': {'format': {'type': 'json_schema', 'schema': {}}}, " HELLO "}");
    const serve_request *r = &p->request;
    assert_int_equal(p->error.status, 0);
    assert_json(r->stop, "['A', 'B']");
    assert_true(r->sampling.temperature == 0.5 && r->sampling.top_p == 0.9);
    assert_int_equal(r->sampling.top_k, 7);
    assert_int_equal(r->max_tokens, 10);
    assert_true(r->stream && r->one_call && r->constrained && !r->continue_last);
    assert_int_equal(r->constraint, AG_CONSTRAINT_JSON_SCHEMA);
    assert_string_equal(r->constraint_text, "{}");
    assert_json(r->tools, "[{'type': 'function', 'function': {'name': 'f', 'parameters':"
                          " {'type': 'object'}}}]");
    assert_int_equal(r->tool_choice, SERVE_TOOLS_NAMED);
    assert_string_equal(r->tool_name, "f");
    assert_json(r->variables, "{'enable_thinking': false}");
    parsed_free(p);
}

static void continues_the_last_assistant_message(void **state) {
    (void)state;
    parsed_body *p = parse_body(messages(), "{" HEAD ", 'messages': [{'role': 'user', 'content':"
                                            " 'Hi'}, {'role': 'assistant', 'content': 'I am'}]}");
    assert_true(p->request.continue_last);
    parsed_free(p);
}

static void names_the_invalid_field(void **state) {
    (void)state;
    const serve_protocol *p = messages();
    assert_body_refused(p, "{'model': 'm', " HELLO "}", 400, "max_tokens");
    assert_body_refused(p, "{" HEAD "}", 400, "messages");
    assert_body_refused(p, "{" HEAD ", 'messages': []}", 400, "at least one");
    assert_body_refused(
        p, "{" HEAD ", 'messages': [{'role': 'robot', 'content': ''}]}", 400,
        "messages[0].role: unknown role 'robot'; it must be user, assistant or system");
    assert_body_refused(p, "{" HEAD ", 'messages': [{'content': ''}]}", 400,
                        "messages[0].role: missing; it must be user");
    assert_body_refused(p, "{" HEAD ", 'messages': [{'role': 'user', 'content': 3}]}", 400,
                        "content");
    assert_body_refused(p,
                        "{" HEAD ", 'messages': [{'role': 'user', 'content': [{'type': 'zip'}]"
                        "}]}",
                        400, "zip");
    assert_body_refused(p, "{" HEAD ", 'temperature': 'hot', " HELLO "}", 400, "temperature");
    assert_body_refused(p, "{" HEAD ", 'top_p': 2, " HELLO "}", 400, "must be from 0 to 1");
    assert_body_refused(p, "{" HEAD ", 'tools': [{'name': 'f'}], " HELLO "}", 400, "input_schema");
    assert_body_refused(p, "{" HEAD ", 'tool_choice': {'type': 'some'}, " HELLO "}", 400,
                        "tool_choice");
    assert_body_refused(p,
                        "{" HEAD ", 'messages': [{'role': 'user', 'content': [{'type': 'image',"
                        " 'source': {'type': 'url', 'url': 'http://x'}}]}]}",
                        400, "images are not supported");
    assert_body_refused(p,
                        "{" HEAD ", 'messages': [{'role': 'user', 'content': [{'type':"
                        " 'tool_result', 'tool_use_id': 'a', 'content': [{'type': 'image'}]}]}"
                        "]}",
                        400, "images are not supported");
}

static void counts_tokens_without_max_tokens(void **state) {
    (void)state;
    const serve_protocol *p = protocol_at(anthropic_routes, "/v1/messages/count_tokens");
    parsed_body *parsed = parse_body(p, "{'model': 'm', " HELLO "}");
    assert_true(parsed->request.count_only);
    parsed_free(parsed);
    json_t *count = answer_body(p, "{'model': 'm', " HELLO "}", NULL, 0);
    assert_json(count, "{'input_tokens': 9}");
    json_decref(count);
}

static const answer_step with_call[] = {
    {.kind = SERVE_BEGIN},
    {.kind = SERVE_REASONING, .text = "Hm"},
    {.kind = SERVE_REASONING, .text = "m."},
    {.kind = SERVE_CONTENT, .text = "I "},
    {.kind = SERVE_CONTENT, .text = "look."},
    {.kind = SERVE_CALL, .text = "weather"},
    {.kind = SERVE_ARGUMENTS, .text = "{\"city\":"},
    {.kind = SERVE_ARGUMENTS, .text = "\"Rome\"}"},
    {.kind = SERVE_ANSWERED, .finish = SERVE_FINISH_CALLS},
    {.kind = SERVE_END},
};
enum { WITH_CALL = sizeof with_call / sizeof with_call[0] };

static void replies_with_content_blocks(void **state) {
    (void)state;
    json_t *m = answer_body(messages(), "{" HEAD ", " HELLO "}", with_call, WITH_CALL);
    assert_at(m, "id", "'msg_0123456789abcdef0123456789abcdef'");
    assert_at(m, "type", "'message'");
    assert_at(m, "role", "'assistant'");
    assert_at(m, "stop_reason", "'tool_use'");
    assert_at(m, "stop_sequence", "null");
    assert_at(m, "content.0", "{'type': 'thinking', 'thinking': 'Hmm.', 'signature': ''}");
    assert_at(m, "content.1", "{'type': 'text', 'text': 'I look.', 'citations': null}");
    assert_at(m, "content.2.input", "{'city': 'Rome'}");
    assert_at(m, "content.2.id", "'call_1'");
    assert_at(m, "usage.input_tokens", "5");
    assert_at(m, "usage.cache_read_input_tokens", "4");
    assert_at(m, "usage.output_tokens", "3");
    json_decref(m);
}

static void sends_events_in_order(void **state) {
    (void)state;
    static const char *const names[] = {
        "message_start",       "ping",
        "content_block_start", "content_block_delta", /* thinking */
        "content_block_delta", "content_block_delta", /* its signature */
        "content_block_stop",  "content_block_start", /* text */
        "content_block_delta", "content_block_delta",
        "content_block_stop",  "content_block_start", /* the call */
        "content_block_delta", "content_block_delta",
        "content_block_stop",  "message_delta",
        "message_stop",
    };
    json_t *s =
        answer_body(messages(), "{" HEAD ", 'stream': true, " HELLO "}", with_call, WITH_CALL);
    assert_int_equal(json_array_size(s), sizeof names / sizeof names[0]);
    for (size_t i = 0; i < json_array_size(s); i++) {
        const json_t *pair = json_array_get(s, i);
        assert_string_equal(json_string_value(json_array_get(pair, 0)), names[i]);
        assert_string_equal(json_string_value(json_find(pair, "1.type")), names[i]);
    }
    assert_at(s, "0.1.message.content", "[]");
    assert_at(s, "0.1.message.stop_reason", "null");
    assert_at(s, "0.1.message.usage.input_tokens", "5");
    assert_at(s, "3.1",
              "{'type': 'content_block_delta', 'index': 0, 'delta': {'type':"
              " 'thinking_delta', 'thinking': 'Hm'}}");
    assert_at(s, "5.1.delta", "{'type': 'signature_delta', 'signature': ''}");
    assert_at(s, "7.1.index", "1");
    assert_at(s, "8.1.delta", "{'type': 'text_delta', 'text': 'I '}");
    assert_at(s, "11.1.content_block.name", "'weather'");
    assert_at(s, "11.1.content_block.input", "{}");
    assert_at(s, "12.1.index", "2");
    assert_at(s, "12.1.delta", "{'type': 'input_json_delta', 'partial_json': '{\\\"city\\\":'}");
    assert_at(s, "15.1.delta.stop_reason", "'tool_use'");
    assert_at(s, "15.1.usage.output_tokens", "3");
    json_decref(s);
}

static void sends_a_block_for_an_empty_answer(void **state) {
    (void)state;
    const answer_step steps[] = {
        {.kind = SERVE_BEGIN},
        {.kind = SERVE_ANSWERED, .finish = SERVE_FINISH_STOP_STRING, .stop = "END"},
        {.kind = SERVE_END},
    };
    json_t *m = answer_body(messages(), "{" HEAD ", " HELLO "}", steps, 3);
    assert_at(m, "content", "[{'type': 'text', 'text': '', 'citations': null}]");
    assert_at(m, "stop_reason", "'stop_sequence'");
    assert_at(m, "stop_sequence", "'END'");
    json_decref(m);
    m = answer_body(messages(), "{" HEAD ", 'stream': true, " HELLO "}", steps, 3);
    assert_at(m, "2.0", "'content_block_start'");
    assert_at(m, "3.0", "'content_block_stop'");
    assert_at(m, "4.1.delta.stop_sequence", "'END'");
    json_decref(m);
}

static void reports_idle_and_failure(void **state) {
    (void)state;
    const answer_step steps[] = {
        {.kind = SERVE_BEGIN},
        {.kind = SERVE_IDLE},
        {.kind = SERVE_CONTENT, .text = "A"},
        {.kind = SERVE_FAILED},
    };
    json_t *s = answer_body(messages(), "{" HEAD ", 'stream': true, " HELLO "}", steps, 4);
    assert_at(s, "2", "['ping', {'type': 'ping'}]");
    assert_at(s, "5",
              "['error', {'type': 'error', 'error': {'type': 'overloaded_error', 'message':"
              " 'the limit of memory'}}]");
    json_decref(s);
}

static void omits_thinking_on_request(void **state) {
    (void)state;
    json_t *m = answer_body(messages(),
                            "{" HEAD ", 'thinking': {'type': 'enabled', 'display':"
                            " 'omitted'}, " HELLO "}",
                            with_call, WITH_CALL);
    assert_at(m, "content.0.type", "'text'");
    json_decref(m);
}

static void replaces_truncated_arguments_by_an_empty_object(void **state) {
    (void)state;
    const answer_step steps[] = {
        {.kind = SERVE_BEGIN},
        {.kind = SERVE_CALL, .text = "f"},
        {.kind = SERVE_ARGUMENTS, .text = "{\"a"},
        {.kind = SERVE_ANSWERED, .finish = SERVE_FINISH_LENGTH},
        {.kind = SERVE_END},
    };
    json_t *m = answer_body(messages(), "{" HEAD ", " HELLO "}", steps, 5);
    assert_at(m, "content.0.input", "{}");
    assert_at(m, "stop_reason", "'max_tokens'");
    json_decref(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_string_contents),
        cmocka_unit_test(strips_the_billing_header),
        cmocka_unit_test(converts_calls_and_results_to_messages),
        cmocka_unit_test(joins_many_thinking_blocks_in_linear_time),
        cmocka_unit_test(reads_parameters),
        cmocka_unit_test(continues_the_last_assistant_message),
        cmocka_unit_test(names_the_invalid_field),
        cmocka_unit_test(counts_tokens_without_max_tokens),
        cmocka_unit_test(replies_with_content_blocks),
        cmocka_unit_test(sends_events_in_order),
        cmocka_unit_test(sends_a_block_for_an_empty_answer),
        cmocka_unit_test(reports_idle_and_failure),
        cmocka_unit_test(omits_thinking_on_request),
        cmocka_unit_test(replaces_truncated_arguments_by_an_empty_object),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
