/* SPDX-License-Identifier: Apache-2.0 */
/* The parser: content, reasoning and calls of answers in pieces of every size. */
#include "chat/parse/parser.h"

#include "support/call_formats.h"
#include "support/failing_allocator.h"
#include "text/bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <time.h>

/* ---- cases ---- */

typedef struct answer_case {
    const char *name;
    const ag_call_format *format;
    bool starts_in_reasoning;
    const char *text;
    const char *reasoning, *content;
    const char *calls; /* "name arguments;" for each call; "!" before the ';' if it is incomplete */
} answer_case;

#define CITY "{\"city\": \"K\xc3\xb6ln\"}"

static const answer_case cases[] = {
    {"plain text", &hermes, false, "Hello <b>you</b> & <tool_cat>", "",
     "Hello <b>you</b> & <tool_cat>", ""},
    {"text that ends inside a delimiter", &hermes, false, "2 <tool_c", "", "2 <tool_c", ""},
    {"white space", &hermes, false, " a \n\n b \n", "", " a \n\n b \n", ""},
    {"reasoning", &hermes, false, "<think>\nhm </thin\n</think>\n\nYes.", "hm </thin", "Yes.", ""},
    {"reasoning the prompt opened", &hermes, true, "hm\n</think>\n\nYes.", "hm", "Yes.", ""},
    {"reasoning opened twice", &hermes, true, "<think>\nhm</think>Yes.", "hm", "Yes.", ""},
    {"reasoning that begins with its delimiter", &hermes, false,
     "\n<think> \n<think>\nhm</think>Yes.", "<think>\nhm", "Yes.", ""},
    {"the same after a prompt that opened it", &hermes, true, " <think>\n <think>hm</think>Yes.",
     "<think>hm", "Yes.", ""},
    {"end of a reasoning that was not opened", &hermes, false, "\n</think>\n\nYes.", "", "Yes.",
     ""},
    {"part of the end of a reasoning", &hermes, false, " </thi", "", " </thi", ""},
    {"reasoning without an end", &hermes, true, "hm and hm", "hm and hm", "", ""},
    {"delimiters of reasoning inside content", &hermes, false, "a <think>b</think> c", "",
     "a <think>b</think> c", ""},
    {"a call", &hermes, false,
     "<tool_call>\n{\"name\": \"weather\", \"arguments\": " CITY "}\n</tool_call>", "", "",
     "weather " CITY ";"},
    {"text and two calls", &hermes, false,
     "<think>x</think>Let me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": " CITY
     "}\n</tool_call>\n<tool_call>{\"arguments\": {}, \"name\": \"add\"}</tool_call>",
     "x", "Let me see.", "weather " CITY ";add {};"},
    {"text after a call", &hermes, false,
     "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": [1, {\"b\": "
     "\"}\\\"\"}]}}</tool_call>\nDone.",
     "", "\nDone.", "add {\"a\": [1, {\"b\": \"}\\\"\"}]};"},
    {"arguments in a string", &hermes, false,
     "<tool_call>{\"name\": \"add\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>", "", "",
     "add {\"a\": 1};"},
    {"delimiter without a call", &hermes, false, "Write <tool_call> and then JSON.", "",
     "Write <tool_call> and then JSON.", ""},
    {"delimiter and another object", &hermes, false, "<tool_call>\n{\"nom\": 1}\n</tool_call> ok",
     "", "<tool_call>\n{\"nom\": 1}\n</tool_call> ok", ""},
    {"two delimiters and a call", &hermes, false,
     "<tool_call> <tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>", "", "<tool_call>",
     "add {};"},
    {"truncated arguments", &hermes, false,
     "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": [1, ", "", "", "add {\"a\": [1, !;"},
    {"truncated end of a call", &hermes, false,
     "<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call", "", "", "add {};"},
    {"truncated start of a second call", &hermes, false,
     "<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>\n<tool_c", "", "",
     "add {};"},
    {"truncated name", &hermes, false, "ab <tool_call>{\"na", "", "ab <tool_call>{\"na", ""},
    {"invalid arguments", &hermes, false,
     "<tool_call>{\"name\": \"add\", \"arguments\": {a: 1}}</tool_call>", "", "a: 1}}</tool_call>",
     "add {!;"},
    {"no arguments", &hermes, false, "<tool_call>{\"name\": \"add\"}</tool_call>", "", "",
     "add {};"},
    {"bare call", &bare, false, "{\"name\": \"weather\", \"parameters\": " CITY "}", "", "",
     "weather " CITY ";"},
    {"fenced call", &hermes, false,
     "```json\n{\"name\": \"weather\", \"arguments\": " CITY "}\n```", "", "", "weather " CITY ";"},
    {"fenced call and text", &hermes, false,
     "``` {\"name\": \"add\", \"arguments\": {}}``` and `x`", "", " and `x`", "add {};"},
    {"fenced object", &hermes, false, "```json\n{\"a\": 1}\n```", "", "```json\n{\"a\": 1}\n```",
     ""},
    {"fence of another language", &hermes, false, "```jsonc\nx```", "", "```jsonc\nx```", ""},
    {"bare call, usual delimiters", &hermes, false,
     "{\"name\": \"add\", \"arguments\": {\"a\": 1}}", "", "", "add {\"a\": 1};"},
    {"bare call of an unknown tool, usual delimiters", &hermes, false,
     "{\"name\": \"Ann\", \"arguments\": {\"a\": 1}}", "",
     "{\"name\": \"Ann\", \"arguments\": {\"a\": 1}}", ""},
    {"bare call in an object \"function\"", &bare, false,
     "{\"type\": \"function\", \"function\": {\"name\": \"add\", \"parameters\": {\"a\": 1}}}", "",
     "", "add {\"a\": 1};"},
    {"bare call of an unknown tool", &bare, false, "{\"name\": \"Ann\", \"parameters\": {}}", "",
     "{\"name\": \"Ann\", \"parameters\": {}}", ""},
    {"bare call after text", &bare, false, "So: {\"name\": \"add\", \"parameters\": {}}", "",
     "So: {\"name\": \"add\", \"parameters\": {}}", ""},
    {"list of numbers", &bare, false, "[1, 2] are numbers", "", "[1, 2] are numbers", ""},
    {"a list of calls", &list, false,
     "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": " CITY ", \"id\": \"abc\"}, {\"name\": "
     "\"add\", \"arguments\": {\"a\": 1}}]",
     "", "", "weather " CITY ";add {\"a\": 1};"},
    {"a list with a space", &list, false, "[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {}}]",
     "", "", "add {};"},
    {"name, then arguments", &named, false,
     "Hm.[TOOL_CALLS]weather[ARGS]" CITY "[TOOL_CALLS]add[CALL_ID]abcdefghi[ARGS]{\"a\": 1}", "",
     "Hm.", "weather " CITY ";add {\"a\": 1};"},
    {"name without delimiter", &named, false, "[TOOL_CALLS]weather is nice", "",
     "[TOOL_CALLS]weather is nice", ""},
    {"ids with names", &kimi, false,
     "Ok<|calls|><|call|>functions.weather:0<|args|>" CITY
     "<|call_end|><|call|>functions.add:1<|args|>{}<|call_end|><|calls_end|>",
     "", "Ok", "weather " CITY ";add {};"},
    {"fenced arguments", &fenced, false,
     "<calls><call>function<sep>weather\n```json\n" CITY
     "\n```</call>\n<call>function<sep>add\n```json\n{}\n```</call></calls>",
     "", "", "weather " CITY ";add {};"},
    {"tags in lines", &lines, false,
     "See:\n\n<tool_call>\n<function=weather>\n<parameter=city>\nK\xc3\xb6ln\n \n</parameter>\n"
     "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=add>\n"
     "</function>\n</tool_call>",
     "", "See:", "weather {\"city\": \"K\xc3\xb6ln\\n \", \"days\": 3};add {};"},
    {"text of several lines", &lines, false,
     "<tool_call>\n<function=weather>\n<parameter=city>\n  if a < b:\n\t\"x\"\n\n</parameter>\n"
     "</function>\n</tool_call>",
     "", "", "weather {\"city\": \"  if a < b:\\n\\t\\\"x\\\"\\n\"};"},
    {"truncated tags", &lines, false,
     "<tool_call>\n<function=weather>\n<parameter=city>\nBonn\n</para", "", "",
     "weather {\"city\": \"Bonn\\n</para!;"},
    {"truncated end of tags", &lines, false,
     "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_c", "", "",
     "add {\"a\": 1}!;"},
    {"delimiter without a function", &lines, false, "<tool_call>\nwhat", "", "<tool_call>\nwhat",
     ""},
    {"tags for keys and values", &keyed, false,
     "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>12</arg_value>\n<arg_key>tags</"
     "arg_key>"
     "\n<arg_value>['x', \"y<z\", None]</arg_value>\n<arg_key>other</arg_key>\n<arg_value>so "
     "it</arg_value>\n</tool_call>",
     "", "", "weather {\"city\": \"12\", \"tags\": [\"x\", \"y<z\", null], \"other\": \"so it\"};"},
    {"escapes in values", &keyed, false,
     "<tool_call>weather\n<arg_key>a</arg_key>\n<arg_value>['\\x4a\\x4A']</arg_value>\n<arg_key>b</"
     "arg_key>\n<arg_value>['\\x4\x11']</arg_value>\n</tool_call>",
     "", "", "weather {\"a\": [\"\\u004a\\u004a\"], \"b\": \"['\\\\x4\\u0011']\"};"},
    {"surrogates in values", &keyed, false,
     "<tool_call>weather\n<arg_key>a</arg_key>\n<arg_value>['\\ud83d\\ude00', '\\ud83dx', "
     "'\\ude00', '\\ud83d\\u0041']</arg_value>\n</tool_call>",
     "", "",
     "weather {\"a\": [\"\\ud83d\\ude00\", \"\\ufffdx\", \"\\ufffd\", "
     "\"\\ufffd\\u0041\"]};"},
    {"tags with types", &typed, false,
     "\n<calls>\n<invoke name=\"add\">\n<parameter name=\"a\" string=\"true\">1</parameter>\n"
     "<parameter name=\"b\" string=\"false\">1</parameter>\n</invoke>\n<invoke name=\"add\">\n"
     "</invoke>\n</calls>",
     "", "", "add {\"a\": \"1\", \"b\": 1};add {};"},
    {"header", &headed, false, " to=user<|message|>Hi to=you<|message|>", "",
     "Hi to=you<|message|>", ""},
    {"truncated header", &headed, false, " to=user<|mess", "", " to=user<|mess", ""},
    {"text like a header", &headed, false, " to you<|message|>", "", " to you<|message|>", ""},
    {"headers of two calls", &headed, false,
     " to=add<|message|><invoke name=\"add\">\n</invoke><|eom|><|start|>assistant "
     "to=weather<|message|><invoke name=\"weather\">\n<parameter name=\"city\">x</parameter>\n"
     "</invoke>",
     "", "", "add {};weather {\"city\": \"x\"};"},
    {"header after reasoning", &headed, true, "hm</think> to=user<|message|>so", "hm", "so", ""},
    {"Python", &python, false,
     "Ok.<|start|>[weather(city='K\xc3\xb6ln, \\'x\\'', days=3), add(tags=['a)', {\"k\": "
     "True}])]<|end|>",
     "", "Ok.",
     "weather {\"city\": \"K\xc3\xb6ln, 'x'\", \"days\": 3};add {\"tags\": [\"a)\", {\"k\": "
     "true}]};"},
    {"Python without arguments", &python, false, "<|start|>[add()]<|end|>", "", "", "add {};"},
    {"braces", &braces, false,
     "<|call>call:weather{city:<|\"|>a}b<|\"|>,days:3,tags:[<|\"|>x<|\"|>],o:{k:true}}<call|><|"
     "call>"
     "call:add{}<call|>",
     "", "",
     "weather {\"city\": \"a}b\", \"days\": 3, \"tags\": [\"x\"], \"o\": {\"k\": true}};add {};"},
    {"channels", &harmony, false,
     "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions."
     "weather <|constrain|>json<|message|>" CITY "<|call|>",
     "hm", "", "weather " CITY ";"},
    {"channels: final answer", &harmony, false,
     "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Yes "
     "<|no|>",
     "hm", "Yes <|no|>", ""},
    {"channels: recipient in the role", &harmony, false,
     " to=functions.weather<|channel|>commentary json<|message|>" CITY "<|call|>", "", "",
     "weather " CITY ";"},
    {"channels: calls in the channel analysis", &harmony, false,
     "<|channel|>analysis<|message|>hm<|end|><|start|>assistant to=functions.weather<|channel|>"
     "analysis<|message|>" CITY "<|call|><|start|>assistant<|channel|>analysis to=functions.add "
     "<|constrain|>json<|message|>{}<|call|>",
     "hm", "", "weather " CITY ";add {};"},
    {"channels: text before a call", &harmony, false,
     "<|channel|>commentary<|message|>So: <|end|><|start|>assistant<|channel|>commentary "
     "to=functions.add <|constrain|>json<|message|>{}<|call|>",
     "", "So: ", "add {};"},
    {"channels: recipient that is no function", &harmony, false,
     "<|channel|>commentary to=analysis<|message|>1", "", "", "analysis 1;"},
    {"text without channels", &harmony, false, "Yes", "", "Yes", ""},
};

/* ---- parsing ---- */

typedef struct result {
    ag_text content, reasoning, calls;
    size_t n_calls;
} result;

static void free_result(result *s) {
    ag_text_free(&s->content);
    ag_text_free(&s->reasoning);
    ag_text_free(&s->calls);
}

static void add(ag_text *to, const char *s, size_t n) {
    assert_int_equal(ag_text_append(to, s, n, NULL), AG_OK);
}

/* Appends each delta: a call as its name, then its arguments. A call's deltas come after the
 * previous call's. */
static void take_deltas(ag_chat_parser *p, result *s) {
    ag_chat_delta d;
    while (ag_chat_parser_next(p, &d)) {
        switch (d.kind) {
        case AG_CHAT_DELTA_CONTENT:
            add(&s->content, d.text, d.len);
            break;
        case AG_CHAT_DELTA_REASONING:
            add(&s->reasoning, d.text, d.len);
            break;
        case AG_CHAT_DELTA_CALL:
            assert_int_equal(d.call, s->n_calls++);
            assert_true(strlen(d.id) > 0);
            if (s->calls.len) add(&s->calls, p->calls[d.call - 1].is_complete ? ";" : "!;", 1);
            add(&s->calls, d.name, strlen(d.name));
            add(&s->calls, " ", 1);
            break;
        case AG_CHAT_DELTA_ARGUMENTS:
            assert_int_equal(d.call, s->n_calls - 1);
            add(&s->calls, d.text, d.len);
        }
    }
}

static ag_chat_parser *parser_for(const answer_case *c, json_t *tools) {
    const ag_parser_params params = {.format = c->format,
                                     .headers = c->format->header_close ? c->format : NULL,
                                     .reasoning_open = "<think>",
                                     .reasoning_close = "</think>",
                                     .starts_in_reasoning = c->starts_in_reasoning,
                                     .tools = tools};
    ag_chat_parser *p;
    assert_int_equal(ag_parser_create(&params, &p, NULL), AG_OK);
    return p;
}

static void finish(ag_chat_parser *p, result *s) {
    assert_int_equal(ag_chat_parser_finish(p, NULL), AG_OK);
    take_deltas(p, s);
    const size_t n = ag_chat_parser_n_calls(p);
    if (n)
        add(&s->calls, p->calls[n - 1].is_complete ? ";" : "!;",
            p->calls[n - 1].is_complete ? 1 : 2);
}

static void compare(const answer_case *c, const result *s, size_t split) {
    const char *got[] = {s->reasoning.data, s->content.data, s->calls.data};
    const char *wanted[] = {c->reasoning, c->content, c->calls};
    for (int i = 0; i < 3; i++) {
        if (!got[i]) got[i] = "";
        if (strcmp(got[i], wanted[i]) == 0) continue;
        fail_msg("%s, split at %zu, %s:\n  %s\nnot\n  %s", c->name, split,
                 i == 0   ? "reasoning"
                 : i == 1 ? "content"
                          : "calls",
                 got[i], wanted[i]);
    }
}

static json_t *parse_tools(void) {
    json_t *tools = json_loads(tools_json, 0, NULL);
    assert_non_null(tools);
    return tools;
}

static void any_split_of_an_answer_gives_the_same_result(void **state) {
    (void)state;
    json_t *tools = parse_tools();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const answer_case *c = &cases[i];
        const size_t n = strlen(c->text);
        for (size_t split = 0; split <= n; split++) {
            ag_chat_parser *p = parser_for(c, tools);
            result s = {0};
            assert_int_equal(ag_chat_parser_push(p, c->text, split, NULL), AG_OK);
            take_deltas(p, &s);
            assert_int_equal(ag_chat_parser_push(p, c->text + split, n - split, NULL), AG_OK);
            finish(p, &s);
            compare(c, &s, split);
            free_result(&s);
            ag_chat_parser_destroy(p);
        }
    }
    json_decref(tools);
}

static void single_bytes_give_the_same_result(void **state) {
    (void)state;
    json_t *tools = parse_tools();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const answer_case *c = &cases[i];
        ag_chat_parser *p = parser_for(c, tools);
        result s = {0};
        for (const char *t = c->text; *t; t++) {
            assert_int_equal(ag_chat_parser_push(p, t, 1, NULL), AG_OK);
            take_deltas(p, &s);
        }
        finish(p, &s);
        compare(c, &s, 1);
        free_result(&s);
        ag_chat_parser_destroy(p);
    }
    json_decref(tools);
}

/* A delta is available as soon as its text is certain, not at the end. */
static void emits_content_once_it_is_certain(void **state) {
    (void)state;
    json_t *tools = parse_tools();
    ag_chat_parser *p = parser_for(&cases[0], tools);
    ag_chat_delta d;
    assert_int_equal(ag_chat_parser_push(p, "Hello <", 7, NULL), AG_OK);
    assert_true(ag_chat_parser_next(p, &d));
    assert_int_equal(d.len, 5);
    assert_false(ag_chat_parser_next(p, &d));
    assert_int_equal(ag_chat_parser_push(p, "b", 1, NULL), AG_OK);
    assert_true(ag_chat_parser_next(p, &d));
    assert_memory_equal(d.text, " <b", 3);
    static const char call[] = "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \"long";
    assert_int_equal(ag_chat_parser_push(p, call, sizeof call - 1, NULL), AG_OK);
    assert_true(ag_chat_parser_next(p, &d));
    assert_int_equal(d.kind, AG_CHAT_DELTA_CALL);
    assert_string_equal(d.name, "add");
    assert_true(ag_chat_parser_next(p, &d));
    assert_int_equal(d.kind, AG_CHAT_DELTA_ARGUMENTS);
    assert_memory_equal(d.text, "{\"a\": \"long", d.len);
    assert_int_equal(d.len, 11);
    ag_chat_parser_destroy(p);
    json_decref(tools);
}

static void message_has_reasoning_content_and_calls(void **state) {
    (void)state;
    static const char text[] = "<think>hm</think>See.<tool_call>{\"name\": \"add\", \"arguments\": "
                               "{\"a\": 1}}</tool_call>";
    json_t *tools = parse_tools();
    ag_chat_parser *p = parser_for(&cases[0], tools);
    ag_text json = {0};
    assert_int_equal(ag_chat_parser_push(p, text, sizeof text - 1, NULL), AG_OK);
    assert_int_equal(ag_chat_parser_finish(p, NULL), AG_OK);
    assert_int_equal(ag_chat_parser_message(p, &json, NULL), AG_OK);
    json_t *m = json_loads(json.data, 0, NULL);
    const char *content, *reasoning, *name, *arguments;
    assert_int_equal(json_unpack(m, "{s:s, s:s, s:[{s:{s:s, s:s}}]}", "content", &content,
                                 "reasoning_content", &reasoning, "tool_calls", "function", "name",
                                 &name, "arguments", &arguments),
                     0);
    assert_string_equal(content, "See.");
    assert_string_equal(reasoning, "hm");
    assert_string_equal(name, "add");
    assert_string_equal(arguments, "{\"a\": 1}");
    assert_int_equal(ag_chat_parser_push(p, "x", 1, NULL), AG_INVALID);
    json_decref(m);
    ag_text_free(&json);
    ag_chat_parser_destroy(p);
    json_decref(tools);
}

/* A long answer in small pieces is scanned once, not again with every piece. */
static void parses_long_answers_in_linear_time(void **state) {
    (void)state;
    json_t *tools = parse_tools();
    ag_chat_parser *p = parser_for(&cases[0], tools);
    static const char call[] = "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \"";
    assert_int_equal(ag_chat_parser_push(p, call, sizeof call - 1, NULL), AG_OK);
    for (int i = 0; i < 1000000; i++) {
        assert_int_equal(ag_chat_parser_push(p, "text", 4, NULL), AG_OK);
    }
    assert_int_equal(ag_chat_parser_push(p, "\"}}</tool_call>", 15, NULL), AG_OK);
    assert_int_equal(ag_chat_parser_finish(p, NULL), AG_OK);
    assert_int_equal(p->calls[0].arguments.len, 4000000 + 9);
    assert_true(p->pending.cap < 4096);
    ag_chat_parser_destroy(p);
    json_decref(tools);
}

/* Arguments in a string are scanned once too, although they are emitted when they are complete. */
static void scans_string_arguments_in_linear_time(void **state) {
    (void)state;
    enum { N = 200000 };
    json_t *tools = parse_tools();
    ag_chat_parser *p = parser_for(&cases[0], tools);
    static const char call[] = "<tool_call>{\"name\": \"add\", \"arguments\": \"{\\\"a\\\": \\\"";
    static const char rest[] = "\\\"}\"}</tool_call>";
    const clock_t begin = clock();
    assert_int_equal(ag_chat_parser_push(p, call, sizeof call - 1, NULL), AG_OK);
    for (int i = 0; i < N; i++) assert_int_equal(ag_chat_parser_push(p, "x", 1, NULL), AG_OK);
    assert_int_equal(ag_chat_parser_push(p, rest, sizeof rest - 1, NULL), AG_OK);
    assert_int_equal(ag_chat_parser_finish(p, NULL), AG_OK);
    assert_int_equal(p->n_calls, 1);
    assert_int_equal(p->calls[0].arguments.len, N + sizeof "{'a': ''}" - 1);
    assert_true(clock() - begin < 10 * CLOCKS_PER_SEC); /* a scan with every piece takes a minute */
    ag_chat_parser_destroy(p);
    json_decref(tools);
}

static void reports_every_failed_allocation(void **state) {
    (void)state;
    json_t *tools = parse_tools();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const answer_case *c = &cases[i];
        bool failed = true;
        for (size_t nth = 0; failed; nth++) {
            failing_allocator f;
            failing_install(&f, nth);
            const ag_parser_params params = {.format = c->format,
                                             .headers = c->format->header_close ? c->format : NULL,
                                             .reasoning_open = "<think>",
                                             .reasoning_close = "</think>",
                                             .starts_in_reasoning = c->starts_in_reasoning,
                                             .tools = tools};
            ag_chat_parser *p = NULL;
            ag_error err = {0};
            ag_status st = ag_parser_create(&params, &p, &err);
            for (const char *t = c->text; st == AG_OK && *t; t++) {
                st = ag_chat_parser_push(p, t, 1, &err);
            }
            if (st == AG_OK) st = ag_chat_parser_finish(p, &err);
            failed = atomic_load(&f.failed);
            assert_int_equal(st, failed ? AG_NOMEM : AG_OK);
            ag_chat_parser_destroy(p);
            assert_int_equal(atomic_load(&f.in_use), 0);
            ag_set_allocator(NULL);
        }
    }
    json_decref(tools);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_split_of_an_answer_gives_the_same_result),
        cmocka_unit_test(single_bytes_give_the_same_result),
        cmocka_unit_test(emits_content_once_it_is_certain),
        cmocka_unit_test(message_has_reasoning_content_and_calls),
        cmocka_unit_test(parses_long_answers_in_linear_time),
        cmocka_unit_test(scans_string_arguments_in_linear_time),
        cmocka_unit_test(reports_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
