/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of OpenAI's Responses API: parsers and replies. */
#include "protocol_bench.h"

#include "../../programs/antigravity/serve/openai/response_store.h"

#include <string.h>

static const serve_protocol *responses(void) {
    return protocol_at(responses_routes, "/v1/responses");
}

static void converts_a_string_to_a_user_message(void **state) {
    (void)state;
    assert_messages(responses(), "{'model': 'm', 'input': 'Hello', 'instructions': 'Be brief.'}",
                    "[{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content':"
                    " 'Hello'}]");
}

static void converts_no_input_to_an_empty_turn(void **state) {
    (void)state;
    assert_messages(responses(), "{'model': 'm'}", "[{'role': 'user', 'content': ''}]");
}

static void joins_items_of_a_turn_to_one_message(void **state) {
    (void)state;
    assert_messages(
        responses(),
        "{'input': [{'role': 'user', 'content': [{'type': 'input_text', 'text':"
        " 'Weather?'}]},"
        " {'type': 'reasoning', 'id': 'rs_1', 'summary': [], 'content': [{'type':"
        " 'reasoning_text', 'text': 'Hm.'}]},"
        " {'type': 'message', 'role': 'assistant', 'content': [{'type': 'output_text',"
        " 'text': 'I look.'}]},"
        " {'type': 'function_call', 'call_id': 'c1', 'name': 'f', 'arguments': '{}'},"
        " {'type': 'function_call', 'call_id': 'c2', 'name': 'g', 'arguments': '{}'},"
        " {'type': 'function_call_output', 'call_id': 'c1', 'output': 'one'},"
        " {'type': 'function_call_output', 'call_id': 'c2', 'output': [{'type':"
        " 'input_text', 'text': 'two'}]},"
        " {'role': 'user', 'content': 'And?'}]}",
        "[{'role': 'user', 'content': 'Weather?'},"
        " {'role': 'assistant', 'content': 'I look.', 'reasoning_content': 'Hm.',"
        " 'tool_calls': [{'id': 'c1', 'type': 'function', 'function': {'name': 'f',"
        " 'arguments': '{}'}}, {'id': 'c2', 'type': 'function', 'function': {'name': 'g',"
        " 'arguments': '{}'}}]},"
        " {'role': 'tool', 'tool_call_id': 'c1', 'content': 'one'},"
        " {'role': 'tool', 'tool_call_id': 'c2', 'content': 'two'},"
        " {'role': 'user', 'content': 'And?'}]");
}

static void separates_answers_of_several_turns(void **state) {
    (void)state;
    assert_messages(responses(),
                    "{'input': [{'role': 'assistant', 'content': 'One.'}, {'role': 'assistant',"
                    " 'phase': 'final_answer', 'content': 'Two.'}]}",
                    "[{'role': 'assistant', 'content': 'One.'}, {'role': 'assistant', 'content':"
                    " 'Two.'}]");
}

static void reads_response_parameters(void **state) {
    (void)state;
    parsed_body *p = parse_body(
        responses(), "{'model': 'm', 'input': 'x', 'max_output_tokens': 9, 'temperature': 0.5,"
                     " 'top_p': 0.25, 'top_logprobs': 2, 'parallel_tool_calls': false, 'stream':"
                     " true, 'tools': [{'type': 'function', 'name': 'f', 'parameters': {}},"
                     " {'type': 'web_search'}], 'tool_choice': 'required', 'reasoning': {'effort':"
                     " 'none'}, 'text': {'format': {'type': 'json_schema', 'name': 'n', 'schema':"
                     " {'type': 'null'}}}}");
    const serve_request *r = &p->request;
    assert_int_equal(p->error.status, 0);
    assert_int_equal(r->max_tokens, 9);
    assert_true(r->sampling.temperature == 0.5 && r->sampling.top_p == 0.25);
    assert_true(r->logprobs && r->n_top == 2 && r->one_call && r->stream && r->constrained);
    assert_json(r->tools, "[{'type': 'function', 'function': {'name': 'f', 'parameters': {}}}]");
    assert_int_equal(r->tool_choice, SERVE_TOOLS_REQUIRED);
    assert_json(r->variables, "{'enable_thinking': false}");
    assert_string_equal(r->constraint_text, "{\"type\":\"null\"}");
    parsed_free(p);
}

static void rejects_fields_that_need_unknown_objects(void **state) {
    (void)state;
    const serve_protocol *p = responses();
    assert_body_refused(p, "{'input': 'x', 'previous_response_id': 'resp_1'}", 400,
                        "previous_response_id: response 'resp_1' not found");
    assert_body_refused(p, "{'input': 'x', 'conversation': 'c'}", 400, "not stored");
    assert_body_refused(p, "{'input': 'x', 'prompt': {'id': 'p'}}", 400, "not stored");
    assert_body_refused(p, "{'input': 'x', 'background': true}", 400, "background");
    assert_body_refused(p, "{'input': [{'type': 'item_reference', 'id': 'a'}]}", 400,
                        "item_reference");
    assert_body_refused(p,
                        "{'input': [{'role': 'user', 'content': [{'type': 'input_image',"
                        " 'image_url': 'http://x'}]}]}",
                        400, "images are not supported");
    assert_body_refused(p, "{'input': 7}", 400, "input");
    assert_body_refused(p, "{'input': 'x', 'tool_choice': 'perhaps'}", 400, "perhaps");
    assert_body_refused(p, "{'input': 'x', 'text': {'format': {'type': 'xml'}}}", 400,
                        "text.format");
    assert_body_refused(p, "{'input': 'x', 'max_output_tokens': 0}", 400, "max_output_tokens");
    assert_body_refused(p, "{'input': ['x']}", 400, "input");
    assert_body_refused(p, "{'input': [{'role': 'user', 'content': 'x'}, {'role': 'tool'}]}", 400,
                        "input[1].role: unknown role 'tool'; it must be user, assistant, system or "
                        "developer");
    assert_body_refused(p, "{'input': [{'content': 'x'}]}", 400, "input[0].role: missing; it must");
}

static response_store *bench_store(void) { return http_responses(NULL); }

static bool store_text(const char *id, const char *client, const char *items,
                       const char *response) {
    const stored_response r = {.items = (char *)(uintptr_t)items,
                               .response = (char *)(uintptr_t)response};
    return response_store_add(bench_store(), id, client, &r);
}

static bool is_stored(const char *id, const char *client) {
    stored_response r;
    const bool found = response_store_get(bench_store(), id, client, &r);
    stored_response_free(&r);
    return found;
}

static void continues_a_stored_conversation_with_calls(void **state) {
    (void)state;
    assert_true(store_text(
        "resp_1", "",
        "[{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\","
        "\"text\":\"Weather?\"}]}]",
        "{\"output\":[{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[],\"content\":[{"
        "\"type\":\"reasoning_text\",\"text\":\"Hm.\"}]},{\"type\":\"function_call\",\"id\":"
        "\"fc_1\",\"call_id\":\"c1\",\"name\":\"f\",\"arguments\":\"{}\"}]}"));
    parsed_body *p = parse_body(
        responses(), "{'instructions': 'Be brief.', 'previous_response_id': 'resp_1', 'input':"
                     " [{'type': 'function_call_output', 'call_id': 'c1', 'output': 'Rain'}]}");
    if (p->error.status) fail_msg("%s", p->error.text);
    assert_json(p->request.messages,
                "[{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content':"
                " 'Weather?'}, {'role': 'assistant', 'content': null, 'reasoning_content': 'Hm.',"
                " 'tool_calls': [{'id': 'c1', 'type': 'function', 'function': {'name': 'f',"
                " 'arguments': '{}'}}]}, {'role': 'tool', 'tool_call_id': 'c1', 'content':"
                " 'Rain'}]");
    /* The next response is stored with all items, without the instructions. */
    json_t *items = json_loads(p->request.stored_text, 0, NULL);
    assert_int_equal(json_array_size(items), 4);
    assert_at(items, "3.output", "'Rain'");
    json_decref(items);
    parsed_free(p);
    assert_true(response_store_remove(bench_store(), "resp_1", ""));
}

static void store_is_bounded_in_number_and_bytes(void **state) {
    char id[32], text[4097];
    (void)state;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_true(store_text("a", "one", "[]", "{}"));
    assert_true(is_stored("a", "one") && !is_stored("a", "two"));
    assert_false(response_store_remove(bench_store(), "a", "two"));
    /* Bytes: the one that was used longest ago is dropped. */
    for (size_t i = 0; i < 100; i++) {
        snprintf(id, sizeof id, "b%zu", i);
        assert_true(store_text(id, "one", text, text));
        assert_true(response_store_bytes(bench_store()) <= BENCH_STORE_BYTES);
        assert_true(is_stored("a", "one")); /* and becomes the newest */
    }
    assert_true(is_stored("b99", "one") && !is_stored("b0", "one"));
    for (size_t i = 0; i < 100; i++) {
        snprintf(id, sizeof id, "b%zu", i);
        response_store_remove(bench_store(), id, "one");
    }
    assert_true(response_store_remove(bench_store(), "a", "one"));
    assert_int_equal(response_store_bytes(bench_store()), 0);
    /* Number. */
    response_store *many = response_store_create(64 << 20);
    const stored_response r = {.items = text, .response = text};
    stored_response found;
    for (size_t i = 0; i <= RESPONSE_STORE_MAX; i++) {
        snprintf(id, sizeof id, "%zu", i);
        assert_true(response_store_add(many, id, "", &r));
    }
    assert_false(response_store_get(many, "0", "", &found));
    assert_true(response_store_get(many, "1", "", &found));
    assert_string_equal(found.response, text);
    stored_response_free(&found);
    response_store_destroy(many);
}

static void large_conversation_is_not_stored(void **state) {
    char *body = malloc(BENCH_STORE_BYTES + 64);
    (void)state;
    sprintf(body, "{'input': '%*s'}", BENCH_STORE_BYTES, "x");
    parsed_body *p = parse_body(responses(), body);
    assert_int_equal(p->error.status, 0);
    assert_null(p->request.stored_text);
    parsed_free(p);
    free(body);
}

static const answer_step with_call[] = {
    {.kind = SERVE_BEGIN},
    {.kind = SERVE_REASONING, .text = "Hm"},
    {.kind = SERVE_REASONING, .text = "m."},
    {.kind = SERVE_CONTENT, .text = "I "},
    {.kind = SERVE_CONTENT, .text = "look."},
    {.kind = SERVE_CALL, .text = "f"},
    {.kind = SERVE_ARGUMENTS, .text = "{\"a\":"},
    {.kind = SERVE_ARGUMENTS, .text = "1}"},
    {.kind = SERVE_ANSWERED, .finish = SERVE_FINISH_CALLS},
    {.kind = SERVE_END},
};
enum { WITH_CALL = sizeof with_call / sizeof with_call[0] };

static void assert_output(const json_t *response) {
    assert_at(response, "output.0.type", "'reasoning'");
    assert_at(response, "output.0.content", "[{'type': 'reasoning_text', 'text': 'Hmm.'}]");
    assert_at(response, "output.1.content",
              "[{'type': 'output_text', 'text': 'I look.', 'annotations': [], 'logprobs': []}]");
    assert_at(response, "output.2.call_id", "'call_1'");
    assert_at(response, "output.2.arguments", "'{\\\"a\\\":1}'");
    assert_int_equal(json_array_size(json_object_get(response, "output")), 3);
    assert_at(response, "status", "'completed'");
    assert_at(response, "usage.input_tokens_details.cached_tokens", "4");
    assert_at(response, "usage.total_tokens", "12");
}

static void response_repeats_request_fields(void **state) {
    (void)state;
    json_t *r = answer_body(responses(),
                            "{'model': 'm', 'input': 'x', 'instructions': 'Be brief.', 'metadata':"
                            " {'a': 'b'}, 'tools': [{'type': 'function', 'name': 'f'}],"
                            " 'temperature': 0.5}",
                            with_call, WITH_CALL);
    assert_output(r);
    assert_at(r, "id", "'resp_0123456789abcdef0123456789abcdef'");
    assert_at(r, "instructions", "'Be brief.'");
    assert_at(r, "metadata", "{'a': 'b'}");
    assert_at(r, "tools",
              "[{'type': 'function', 'name': 'f', 'description': null, 'parameters':"
              " null, 'strict': null}]");
    assert_at(r, "temperature", "0.5");
    assert_at(r, "text", "{'format': {'type': 'text'}}");
    assert_at(r, "reasoning", "{'effort': null, 'summary': null}");
    assert_at(r, "previous_response_id", "null");
    assert_at(r, "store", "true");
    json_decref(r);
}

static void numbers_events_and_completes_items_in_order(void **state) {
    (void)state;
    static const char *const names[] = {
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
        "reasoning_text.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    };
    json_t *s = answer_body(responses(), "{'input': 'x', 'stream': true}", with_call, WITH_CALL);
    assert_int_equal(json_array_size(s), sizeof names / sizeof names[0]);
    for (size_t i = 0; i < json_array_size(s); i++) {
        const json_t *pair = json_array_get(s, i);
        const char *name = json_string_value(json_array_get(pair, 0));
        assert_string_equal(name + strlen("response."), names[i]);
        assert_string_equal(json_string_value(json_find(pair, "1.type")), name);
        assert_int_equal(json_integer_value(json_find(pair, "1.sequence_number")), i);
    }
    assert_at(s, "0.1.response.status", "'in_progress'");
    assert_at(s, "0.1.response.usage", "null");
    assert_at(s, "2.1.item.content", "[]");
    assert_at(s, "4.1.delta", "'m.'");
    assert_at(s, "5.1.text", "'Hmm.'");
    assert_at(s, "9.1.output_index", "1");
    assert_at(s, "9.1.content_index", "0");
    assert_at(s, "11.1.text", "'I look.'");
    assert_true(json_equal(json_find(s, "9.1.item_id"), json_find(s, "7.1.item.id")));
    assert_true(json_equal(json_find(s, "14.1.item.id"), json_find(s, "17.1.item_id")));
    assert_at(s, "14.1.item.arguments", "''");
    assert_at(s, "17.1.arguments", "'{\\\"a\\\":1}'");
    assert_output(json_find(s, "19.1.response"));
    json_decref(s);
}

static void sends_texts_around_a_call_as_items(void **state) {
    (void)state;
    const answer_step steps[] = {
        {.kind = SERVE_BEGIN},
        {.kind = SERVE_CONTENT, .text = "One"},
        {.kind = SERVE_CALL, .text = "f"},
        {.kind = SERVE_ARGUMENTS, .text = "{}"},
        {.kind = SERVE_CONTENT, .text = "Two"},
        {.kind = SERVE_ANSWERED, .finish = SERVE_FINISH_CALLS},
        {.kind = SERVE_END},
    };
    json_t *s = answer_body(responses(), "{'input': 'x', 'stream': true}", steps, 7);
    const json_t *last = json_find(json_array_get(s, json_array_size(s) - 1), "1.response");
    assert_at(last, "output.0.content.0.text", "'One'");
    assert_at(last, "output.2.content.0.text", "'Two'");
    json_decref(s);
}

static void truncated_response_is_incomplete(void **state) {
    (void)state;
    const answer_step steps[] = {
        {.kind = SERVE_BEGIN},
        {.kind = SERVE_CONTENT, .text = "One"},
        {.kind = SERVE_ANSWERED, .finish = SERVE_FINISH_LENGTH},
        {.kind = SERVE_END},
    };
    json_t *r = answer_body(responses(), "{'input': 'x', 'max_output_tokens': 1}", steps, 4);
    assert_at(r, "status", "'incomplete'");
    assert_at(r, "incomplete_details", "{'reason': 'max_output_tokens'}");
    assert_at(r, "completed_at", "null");
    json_decref(r);
    json_t *s = answer_body(responses(), "{'input': 'x', 'stream': true}", steps, 4);
    assert_at(s, "7.0", "'response.output_item.done'");
    assert_at(s, "7.1.item.status", "'incomplete'");
    assert_at(s, "8.0", "'response.incomplete'");
    json_decref(s);
}

static void failure_ends_the_stream(void **state) {
    (void)state;
    const answer_step steps[] = {
        {.kind = SERVE_BEGIN},
        {.kind = SERVE_IDLE},
        {.kind = SERVE_FAILED},
    };
    json_t *s = answer_body(responses(), "{'input': 'x', 'stream': true}", steps, 3);
    assert_at(s, "2.1", "': idle\\n\\n'");
    assert_at(s, "3.0", "'response.failed'");
    assert_at(s, "3.1.sequence_number", "2");
    assert_at(s, "3.1.response.error",
              "{'code': 'server_error', 'message': 'the limit of memory'}");
    json_decref(s);
}

static void sends_an_item_for_an_empty_response(void **state) {
    (void)state;
    const answer_step steps[] = {
        {.kind = SERVE_BEGIN},
        {.kind = SERVE_ANSWERED, .finish = SERVE_FINISH_STOP},
        {.kind = SERVE_END},
    };
    json_t *s = answer_body(responses(), "{'input': 'x', 'stream': true}", steps, 3);
    assert_at(s, "7.1.response.output.0.content.0.text", "''");
    json_decref(s);
    json_t *r = answer_body(responses(), "{'input': 'x'}", steps, 3);
    assert_at(r, "output.0.content.0.text", "''");
    json_decref(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(converts_a_string_to_a_user_message),
        cmocka_unit_test(converts_no_input_to_an_empty_turn),
        cmocka_unit_test(joins_items_of_a_turn_to_one_message),
        cmocka_unit_test(separates_answers_of_several_turns),
        cmocka_unit_test(reads_response_parameters),
        cmocka_unit_test(rejects_fields_that_need_unknown_objects),
        cmocka_unit_test(continues_a_stored_conversation_with_calls),
        cmocka_unit_test(store_is_bounded_in_number_and_bytes),
        cmocka_unit_test(large_conversation_is_not_stored),
        cmocka_unit_test(response_repeats_request_fields),
        cmocka_unit_test(numbers_events_and_completes_items_in_order),
        cmocka_unit_test(sends_texts_around_a_call_as_items),
        cmocka_unit_test(truncated_response_is_incomplete),
        cmocka_unit_test(failure_ends_the_stream),
        cmocka_unit_test(sends_an_item_for_an_empty_response),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
