/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations: conversion of messages, detected features, sampling parameters, replay requests.
 */
#include "support/chat_formats.h"
#include "support/failing_allocator.h"

/* ---- conversion of messages ---- */

typedef struct rewriting {
    const char *file, *messages, *tools;
    const char *text;  /* rendered text; NULL: the template refuses */
    const char *error; /* part of the refusal */
} rewriting;

static const rewriting rewritings[] = {
    {"objects", "[{'role': 'user', 'content': 'a'}]", NULL,
     "<BOS><|open|>user\na<|close|>\n<|open|>assistant\n", NULL},
    /* Parts are joined, null becomes empty text, developer becomes system. */
    {"objects",
     "[{'role': 'developer', 'content': 's'}, {'role': 'user', 'content': [{'type': 'text', "
     "'text': "
     "'a '}, {'type': 'input_text', 'text': 'b'}]}, {'role': 'assistant', 'content': null}, "
     "{'role': "
     "'user', 'content': ''}]",
     NULL,
     "<BOS><|open|>system\ns<|close|>\n<|open|>user\na b<|close|>\n<|open|>assistant\n<|close|>\n"
     "<|open|>user\n<|close|>\n<|open|>assistant\n",
     NULL},
    /* Text becomes an object. */
    {"objects",
     "[{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'tool_calls': [" CALL(
         "1", "\"{\\\"x\\\": 1}\"") "]}, {'role': 'tool', 'tool_call_id': '1', 'content': 'r'}]",
     NULL,
     "<BOS><|open|>user\na<|close|>\n<|open|>assistant\n<call>\n{\"name\": \"f\", \"arguments\": "
     "{\"x\": 1}}\n</call><|close|>\n<|open|>tool\nr<|close|>\n<|open|>assistant\n",
     NULL},
    /* Text that is not an object is kept. */
    {"objects",
     "[{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'tool_calls': [" CALL(
         "1", "\"{\\\"x\\\": [1\"") "]}, {'role': 'tool', 'tool_call_id': '1', 'content': 'r'}]",
     NULL,
     "<BOS><|open|>user\na<|close|>\n<|open|>assistant\n<call>\n{\"name\": \"f\", \"arguments\": "
     "{\"arguments\": \"{\\\"x\\\": [1\"}}\n</call><|close|>\n<|open|>tool\nr<|close|>\n<|open|>"
     "assistant\n",
     NULL},
    /* Objects become text, long ids become short, in results too. */
    {"text_arguments",
     "[{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'c', 'tool_calls': "
     "[" CALL("abcdefgh9",
              "{\"x\": [1, \"y\"]}") "]}, {'role': 'tool', 'tool_call_id': 'abcdefgh9', "
                                     "'content': 'r'}]",
     NULL,
     "<BOS>[INST]a[/INST]c[CALLS]f[ID]abcdefgh9[ARGS]{\"x\": [1, "
     "\"y\"]}<EOS>[RESULT]abcdefgh9[ARGS]"
     "r[/RESULT]",
     NULL},
    {"text_arguments",
     "[{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'c', 'tool_calls': "
     "[" CALL("call_1", "\"{}\"") "]}, {'role': 'tool', 'tool_call_id': 'call_1', 'content': 'r'}]",
     NULL,
     "<BOS>[INST]a[/INST]c[CALLS]f[ID]0ArUAkmct[ARGS]{}<EOS>[RESULT]0ArUAkmct[ARGS]r[/RESULT]",
     NULL},
    /* System text goes into user messages. */
    {"strict",
     "[{'role': 'system', 'content': 's'}, {'role': 'developer', 'content': 'd'}, {'role': 'user', "
     "'content': 'a'}, {'role': 'assistant', 'content': 'b'}, {'role': 'system', 'content': "
     "'late'}, "
     "{'role': 'user', 'content': 'c'}]",
     NULL,
     "<BOS><turn>user\ns\n\nd\n\na<end>\n<turn>assistant\nb<end>\n<turn>user\nlate\n\nc<end>\n"
     "<turn>assistant\n",
     NULL},
    {"strict", "[{'role': 'user', 'content': 'a'}, {'role': 'system', 'content': 's'}]", NULL,
     "<BOS><turn>user\na\n\ns<end>\n<turn>assistant\n", NULL},
    /* Calls and results become text. */
    {"strict",
     "[{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'b', 'tool_calls': "
     "[" CALL("1", "\"{\\\"x\\\": 1}\"") ", " CALL(
         "2", "{}") "]}, {'role': 'tool', 'tool_call_id': '1', "
                    "'content': 'r'}, {'role': 'tool', 'tool_call_id': '2', 'content': 's'}]",
     NULL,
     "<BOS><turn>user\na<end>\n<turn>assistant\nb\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
     "{\"x\": 1}}\n</tool_call>\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
     "{}}\n</tool_call><end>"
     "\n<turn>user\n<tool_response>\nr\n</tool_response>\n<tool_response>\ns\n</"
     "tool_response><end>\n"
     "<turn>assistant\n",
     NULL},
    {"strict", "[{'role': 'user', 'content': 'a'}]", TOOLS,
     "<BOS><turn>user\nYou may call functions to answer. These there are, one a line:\n<tools>\n"
     "{\"name\": \"f\", \"parameters\": {\"type\": \"object\"}}\n</tools>\nFor each call write a "
     "JSON "
     "object with the function's name and its arguments between these "
     "tags:\n<tool_call>\n{\"name\": "
     "NAME, \"arguments\": {...}}\n</tool_call>\n\na<end>\n<turn>assistant\n",
     NULL},
    /* Rules that the template enforces. */
    {"strict", "[{'role': 'user', 'content': 'a'}, {'role': 'user', 'content': 'b'}]", NULL, NULL,
     "Turns must alternate"},
    {"strict", "[{'role': 'wizard', 'content': 'a'}]", NULL, NULL, "No role wizard here"},
    /* Strings become parts, several system messages one. */
    {"parts",
     "[{'role': 'system', 'content': 's'}, {'role': 'system', 'content': 't'}, {'role': 'user', "
     "'content': 'a'}]",
     NULL, "<|system|>s\n\nt<|end|><|user|>a<|end|><|assistant|>", NULL},
    {"parts", "[{'role': 'user', 'content': [{'type': 'text', 'text': 'a '}, 'b']}]", NULL,
     "<|user|>a b<|end|><|assistant|>", NULL},
    /* Text before a call becomes a message of its own, with and without reasoning. */
    {"channels",
     "[{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'reasoning_content': 'r', "
     "'content': 'p<|end|>', 'tool_calls': [" CALL(
         "1", "\"{\\\"x\\\": 1}\"") "]}, "
                                    "{'role': 'tool', 'tool_call_id': '1', 'content': 't'}, "
                                    "{'role': 'assistant', 'content': 'q', "
                                    "'tool_calls': [" CALL("1", "\"{\\\"x\\\": 1}\"") "]}]",
     NULL,
     "<|start|>user<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>r<|end|>"
     "<|start|>assistant<|channel|>commentary<|message|>p<|end|><|end|>"
     "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{\"x\": 1}<|call|>"
     "<|start|>tool<|message|>t<|end|><|start|>assistant<|channel|>commentary<|message|>q<|end|>"
     "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{\"x\": 1}<|call|>"
     "<|start|>assistant",
     NULL},
    {"channels",
     "[{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'thinking': 'r', 'content': 'p', "
     "'tool_calls': [" CALL("1", "\"{\\\"x\\\": 1}\"") "]}, {'role': 'assistant', 'content': 'b'}]",
     NULL,
     "<|start|>user<|message|>a<|end|>"
     "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{\"x\": 1}<|call|>"
     "<|start|>assistant<|channel|>final<|message|>b<|end|><|start|>assistant",
     NULL},
    /* Each call becomes a message, and its results follow it. */
    {"channels",
     "[{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'reasoning_content': 'r', "
     "'content': 'p', 'tool_calls': [" CALL("1", "\"{\\\"x\\\": 1}\"") ", " CALL(
         "2", "\"{}\"") ", " CALL("3", "\"{\\\"x\\\": 3}\"") "]}, "
                                                             "{'role': 'tool', 'tool_call_id': "
                                                             "'2', 'content': 't'}, "
                                                             "{'role': 'tool', 'tool_call_id': "
                                                             "'1', 'content': 'o'}, "
                                                             "{'role': 'tool', 'tool_call_id': "
                                                             "'unknown', 'content': 'u'}, {'role': "
                                                             "'user', 'content': 'b'}]",
     NULL,
     "<|start|>user<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>r<|end|>"
     "<|start|>assistant<|channel|>commentary<|message|>p<|end|>"
     "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{\"x\": 1}<|call|>"
     "<|start|>tool<|message|>o<|end|>"
     "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>"
     "<|start|>tool<|message|>t<|end|>"
     "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{\"x\": 3}<|call|>"
     "<|start|>tool<|message|>u<|end|><|start|>user<|message|>b<|end|><|start|>assistant",
     NULL},
    {"channels",
     "[{'role': 'assistant', 'tool_calls': [{'name': 'f'}, {'name': 'g'}]}, {'role': 'tool', "
     "'content': 'o'}, {'role': 'tool', 'content': 't'}]",
     NULL,
     "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>"
     "<|start|>tool<|message|>o<|end|>"
     "<|start|>assistant to=functions.g<|channel|>commentary json<|message|>{}<|call|>"
     "<|start|>tool<|message|>t<|end|><|start|>assistant",
     NULL},
};
static void converts_messages_to_accepted_forms(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rewritings / sizeof *rewritings; i++) {
        const rewriting *r = &rewritings[i];
        char path[512];
        snprintf(path, sizeof path, DATA "%s.jinja", r->file);
        ag_chat_format *f = format_of(path, NULL);
        ag_chat *c = chat_of(f, r->messages, r->tools);
        ag_text text = {0};
        ag_error err = {0};
        const ag_status st = ag_chat_render(c, 0, NULL, &text, &err);
        if (r->text) {
            if (st != AG_OK) fail_msg("%zu: %s", i, err.msg);
            assert_string_equal(text.data, r->text);
        } else {
            assert_int_equal(st, AG_REFUSED);
            assert_non_null(strstr(err.msg, r->error));
        }
        ag_text_free(&text);
        ag_chat_destroy(c);
        ag_chat_format_destroy(f);
    }
}

/* Only the input stays input: delimiters around a preamble become special tokens. */
static void preamble_delimiters_are_no_input(void **state) {
    (void)state;
    static const char text[] = "X<|channel|>analysis<|message|>rSp<|end|><|channel|>analysis"
                               "<|message|>Sq<|end|>analysis<|message|>S";
    static const char want[] =
        "X<|channel|>analysis<|message|>r<|end|><|start|>assistant<|channel|>"
        "commentary<|message|>p<|end|><|channel|>commentary<|message|>q"
        "<|end|>analysis<|message|><|end|><|start|>assistant<|channel|>"
        "commentary<|message|>";
    static const struct {
        const char *at; /* in `text` */
        size_t n;
    } inputs[] = {{"X", 1}, {"rSp", 3}, {"Sq", 2}, {"analysis<|message|>S", 20}};
    static const char *const kept[] = {"X", "r", "p", "q", "analysis<|message|>"};
    ag_jinja_output out = {.text = ag_strndup(text, strlen(text)), .len = strlen(text)};
    out.spans = ag_calloc(4, sizeof *out.spans);
    const char *p = text;
    for (size_t i = 0; i < 4; i++) {
        p = i == 3 ? text + strlen(text) - inputs[i].n : strstr(p, inputs[i].at);
        out.spans[i] = (ag_jinja_span){(size_t)(p - text), (size_t)(p - text) + inputs[i].n};
    }
    out.n_spans = 4;
    assert_int_equal(ag_preamble_expand("S", &out, NULL), AG_OK);
    assert_string_equal(out.text, want);
    assert_int_equal(out.len, strlen(want));
    assert_int_equal(out.n_spans, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(out.spans[i].end - out.spans[i].begin, strlen(kept[i]));
        assert_memory_equal(out.text + out.spans[i].begin, kept[i], strlen(kept[i]));
    }
    ag_jinja_output_free(&out);
}

static void rejects_invalid_messages(void **state) {
    (void)state;
    static const struct {
        const char *json, *message;
        ag_status status;
    } bad[] = {
        {"{", "the message", AG_FORMAT},
        {"1", "not an object", AG_INVALID},
        {"{}} , {\"x\": 1", "the message", AG_FORMAT},
        {"{\"content\": \"a\"}", "no \"role\"", AG_INVALID},
        {"{\"role\": \"user\", \"content\": 1}", "\"content\"", AG_INVALID},
        {"{\"role\": \"user\", \"content\": [{\"text\": \"a\"}]}", "content[0]", AG_INVALID},
        {"{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": "
         "\"image_url\"}]}",
         "content[1] has type \"image_url\"", AG_UNSUPPORTED},
        {"{\"role\": \"assistant\", \"tool_calls\": [{}]}", "tool_calls[0]", AG_INVALID},
        {"{\"role\": \"assistant\", \"tool_calls\": 1}", "tool_calls", AG_INVALID},
    };
    ag_chat_format *f = format_of(DATA "objects.jinja", NULL);
    ag_chat *c;
    assert_int_equal(ag_chat_create(f, &c, NULL), AG_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ag_error err = {0};
        assert_int_equal(ag_chat_add_json(c, bad[i].json, strlen(bad[i].json), &err),
                         bad[i].status);
        if (!strstr(err.msg, bad[i].message)) fail_msg("%s: %s", bad[i].json, err.msg);
    }
    assert_int_equal(ag_chat_add(c, "user", "\xff", NULL), AG_FORMAT);
    assert_int_equal(ag_chat_set_variable(c, "messages", "1", 1, NULL), AG_INVALID);
    assert_int_equal(ag_chat_set_tools(c, "[{}]", 4, NULL), AG_INVALID);
    assert_int_equal(ag_chat_n_messages(c), 0);
    ag_chat_destroy(c);
    ag_chat_format_destroy(f);
}

static void continues_the_last_answer(void **state) {
    (void)state;
    ag_chat_format *f = format_of(DATA "objects.jinja", NULL);
    ag_chat *c = chat_of(
        f, "[{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'Roses'}]", NULL);
    ag_text text = {0};
    assert_int_equal(ag_chat_render(c, AG_CHAT_CONTINUE, NULL, &text, NULL), AG_OK);
    assert_string_equal(text.data, "<BOS><|open|>user\na<|close|>\n<|open|>assistant\nRoses");
    ag_text_free(&text);
    ag_chat_destroy(c);
    ag_chat_format_destroy(f);
}

static void detects_features_of_templates(void **state) {
    (void)state;
    ag_chat_format *f = format_of(DATA "objects.jinja", NULL);
    const uint32_t has = ag_chat_format_features(f);
    assert_true(has & AG_CHAT_SYSTEM);
    assert_false(has & AG_CHAT_DEVELOPER);
    assert_true(has & AG_CHAT_THINKING_SWITCH);
    assert_false(has & AG_CHAT_OPENS_REASONING);
    assert_false(has & AG_CHAT_ARGUMENT_TEXT);
    assert_string_equal(ag_chat_feature_name(AG_CHAT_SYSTEM), "system");
    assert_null(ag_chat_feature_name(1u << 31));
    ag_chat_format_destroy(f);
    f = format_of(DATA "tags.jinja", NULL);
    assert_true(ag_chat_format_features(f) & AG_CHAT_OPENS_REASONING);
    ag_chat_format_destroy(f);
    f = format_of(DATA "strict.jinja", NULL);
    assert_int_equal(ag_chat_format_features(f), AG_CHAT_TEXT);
    ag_chat_format_destroy(f);
}

/* ---- files ---- */

static void write_file(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void loads_sampling_parameters_of_a_model(void **state) {
    (void)state;
    char dir[] = "/tmp/ag_chat_XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/generation_config.json", dir);
    write_file(path, "{\"temperature\": 0.6, \"top_k\": 20, \"top_p\": 0.95, \"do_sample\": true}");
    ag_sampler_params p = ag_sampler_defaults();
    const float penalty = p.repetition_penalty;
    ag_text names = {0};
    assert_int_equal(ag_chat_sampling_load(dir, &p, &names, NULL), AG_OK);
    assert_string_equal(names.data, "temperature 0.6, top_k 20, top_p 0.95");
    assert_true(p.temperature == 0.6f && p.top_k == 20 && p.top_p == 0.95f);
    assert_true(p.repetition_penalty == penalty);
    write_file(path, "{\"temperature\": -1}");
    ag_error err = {0};
    assert_int_equal(ag_chat_sampling_load(dir, &p, &names, &err), AG_FORMAT);
    assert_non_null(strstr(err.msg, "\"temperature\""));
    assert_true(p.temperature == 0.6f);
    remove(path);
    assert_int_equal(ag_chat_sampling_load(dir, &p, &names, NULL), AG_OK);
    assert_int_equal(names.len, 0);
    remove(dir);
    ag_text_free(&names);
}

/* ---- replay requests ---- */

static void assert_ids_of_text(const ag_tokenizer *t, const ag_ids *ids, const char *text,
                               unsigned flags) {
    ag_ids want = {0};
    assert_int_equal(ag_tokenizer_encode(t, text, strlen(text), flags, &want, NULL), AG_OK);
    assert_int_equal(ids->n, want.n);
    assert_memory_equal(ids->data, want.data, want.n * sizeof *want.data);
    ag_ids_free(&want);
}

static void replay_suffix_is_what_follows_a_message(void **state) {
    (void)state;
    size_t n;
    char *jinja = read_template(DATA "tags.jinja", &n);
    ag_tokenizer *t = small_tokenizer();
    ag_chat_format *f = NULL;
    ag_replay_request r;
    assert_int_equal(ag_chat_format_create(jinja, n, "<BOS>", "<EOS>", t, &f, NULL), AG_OK);
    assert_int_equal(ag_replay_request_make(t, f, &r, NULL), AG_OK);
    assert_ids_of_text(t, &r.instruction, "\n\nRepeat the previous context exactly.", 0);
    assert_ids_of_text(t, &r.suffix, "<|done|><|assistant|><think>\n", AG_ENCODE_PARSE_SPECIAL);
    const ag_compress_params p = ag_replay_request_params(&r), defaults = ag_compress_defaults();
    assert_true(p.replay == defaults.replay && p.chunk == defaults.chunk);
    assert_ptr_equal(p.instruction, r.instruction.data);
    assert_int_equal(p.n_instruction, r.instruction.n);
    assert_ptr_equal(p.instruction_next, r.instruction_next.data);
    assert_int_equal(p.n_instruction_next, r.instruction_next.n);
    assert_ptr_equal(p.suffix, r.suffix.data);
    assert_int_equal(p.n_suffix, r.suffix.n);
    ag_replay_request_free(&r);
    assert_int_equal(ag_replay_request_make(t, NULL, &r, NULL), AG_OK);
    assert_ids_of_text(t, &r.suffix, "\n", 0);
    ag_replay_request_free(&r);
    ag_chat_format_destroy(f);
    ag_tokenizer_destroy(t);
    ag_free(jinja);
}

/* ---- memory ---- */

static ag_status run_conversation(const char *jinja, size_t n, const ag_tokenizer *t) {
    static const char messages[] =
        "[{\"role\": \"developer\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": "
        "[{\"type\": "
        "\"text\", \"text\": \"a\"}]}, {\"role\": \"assistant\", \"tool_calls\": [" CALL(
            "1", "\"{}\"") "]}, {\"role\": \"tool\", \"tool_call_id\": \"1\", \"content\": \"r\"}]";
    ag_chat_format *f = NULL;
    ag_chat *c = NULL;
    ag_chat_parser *p = NULL;
    ag_ids ids = {0};
    ag_text text = {0};
    ag_status st = ag_chat_format_create(jinja, n, "<BOS>", "<EOS>", t, &f, NULL);
    if (st == AG_OK) st = ag_chat_create(f, &c, NULL);
    if (st == AG_OK) st = ag_chat_set_messages(c, messages, strlen(messages), NULL);
    if (st == AG_OK) st = ag_chat_set_tools(c, TOOLS, strlen(TOOLS), NULL);
    if (st == AG_OK) st = ag_chat_render(c, 0, &ids, NULL, NULL);
    if (st == AG_OK) st = ag_chat_parser_create(c, &p, NULL);
    if (st == AG_OK) st = ag_chat_parser_push(p, "answer", 6, NULL);
    if (st == AG_OK) st = ag_chat_parser_finish(p, NULL);
    if (st == AG_OK) st = ag_chat_add_answer(c, p, ids.data, 3, NULL);
    if (st == AG_OK) st = ag_chat_render(c, 0, &ids, &text, NULL);
    ag_replay_request replay = {.suffix = {0}};
    if (st == AG_OK) st = ag_replay_request_make(t, f, &replay, NULL);
    ag_replay_request_free(&replay);
    ag_chat_parser_destroy(p);
    ag_ids_free(&ids);
    ag_text_free(&text);
    ag_chat_destroy(c);
    ag_chat_format_destroy(f);
    return st;
}

static void reports_every_failed_allocation(void **state) {
    (void)state;
    size_t n;
    char *jinja = read_template(DATA "tags.jinja", &n);
    ag_tokenizer *t = small_tokenizer();
    const size_t before = ag_allocation_count();
    assert_int_equal(run_conversation(jinja, n, t), AG_OK);
    const size_t n_allocations = ag_allocation_count() - before;
    for (size_t nth = 0;
         nth<n_allocations; nth += nth + 300> n_allocations ? 1 : 1 + n_allocations / 300) {
        failing_allocator f;
        failing_install(&f, nth);
        const ag_status st = run_conversation(jinja, n, t);
        if (st != (atomic_load(&f.failed) ? AG_NOMEM : AG_OK)) {
            fail_msg("allocation %zu of %zu: %s", nth, n_allocations, ag_status_name(st));
        }
        assert_int_equal(atomic_load(&f.in_use), 0);
        ag_set_allocator(NULL);
    }
    ag_tokenizer_destroy(t);
    ag_free(jinja);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(converts_messages_to_accepted_forms),
        cmocka_unit_test(preamble_delimiters_are_no_input),
        cmocka_unit_test(rejects_invalid_messages),
        cmocka_unit_test(continues_the_last_answer),
        cmocka_unit_test(detects_features_of_templates),
        cmocka_unit_test(loads_sampling_parameters_of_a_model),
        cmocka_unit_test(replay_suffix_is_what_follows_a_message),
        cmocka_unit_test(reports_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
