/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations: what is made of messages, and their ids. */
#include "chat/conversation.h"
#include "core/alloc.h"
#include "formats/file.h"
#include "support/failing_allocator.h"
#include "text/byte_level.h"
#include "text/bytes.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DATA AG_SOURCE_DIR "/tests/data/chat/"
#define SHARED AG_SHARED_DIR "/golden/chat/templates/"

static char *read_template(const char *path, size_t *n) {
    char *text = NULL;
    ag_error err = {0};
    if (ag_file_read_all(path, 1 << 24, &text, n, &err) != AG_OK) fail_msg("%s", err.msg);
    return text;
}

static ag_chat_format *format_of(const char *path, const ag_tokenizer *t) {
    size_t n;
    char *jinja = read_template(path, &n);
    ag_chat_format *f;
    ag_error err = {0};
    if (ag_chat_format_create(jinja, n, "<BOS>", "<EOS>", t, &f, &err) != AG_OK) {
        fail_msg("%s: %s", path, err.msg);
    }
    ag_free(jinja);
    return f;
}

/* ---- what is made of messages ---- */

typedef struct rewriting {
    const char *file, *messages, *tools;
    const char *text;  /* what the template writes, from `from` on; NULL: it refuses */
    const char *error; /* what the refusal says */
} rewriting;

#define TOOLS "[{\"name\": \"f\", \"parameters\": {\"type\": \"object\"}}]"
#define CALL(id, args) \
    "{\"id\": \"" id   \
    "\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": " args "}}"

static const rewriting rewritings[] = {
    {"objects", "[{'role': 'user', 'content': 'a'}]", NULL,
     "<BOS><|open|>user\na<|close|>\n<|open|>assistant\n", NULL},
    /* parts are joined, null is no text, developer is the system */
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
    /* arguments become an object */
    {"objects",
     "[{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'tool_calls': [" CALL(
         "1", "\"{\\\"x\\\": 1}\"") "]}, {'role': 'tool', 'tool_call_id': '1', 'content': 'r'}]",
     NULL,
     "<BOS><|open|>user\na<|close|>\n<|open|>assistant\n<call>\n{\"name\": \"f\", \"arguments\": "
     "{\"x\": 1}}\n</call><|close|>\n<|open|>tool\nr<|close|>\n<|open|>assistant\n",
     NULL},
    /* what is no object is not lost */
    {"objects",
     "[{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'tool_calls': [" CALL(
         "1", "\"{\\\"x\\\": [1\"") "]}, {'role': 'tool', 'tool_call_id': '1', 'content': 'r'}]",
     NULL,
     "<BOS><|open|>user\na<|close|>\n<|open|>assistant\n<call>\n{\"name\": \"f\", \"arguments\": "
     "{\"arguments\": \"{\\\"x\\\": [1\"}}\n</call><|close|>\n<|open|>tool\nr<|close|>\n<|open|>"
     "assistant\n",
     NULL},
    /* arguments become text, ids become short, and those of results with them */
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
    /* the system speaks through the user */
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
    /* calls and results where a template has no words for them */
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
    /* true breaks of the rules */
    {"strict", "[{'role': 'user', 'content': 'a'}, {'role': 'user', 'content': 'b'}]", NULL, NULL,
     "Turns must alternate"},
    {"strict", "[{'role': 'wizard', 'content': 'a'}]", NULL, NULL, "No role wizard here"},
    /* strings become parts, several systems one */
    {"parts",
     "[{'role': 'system', 'content': 's'}, {'role': 'system', 'content': 't'}, {'role': 'user', "
     "'content': 'a'}]",
     NULL, "<|system|>s\n\nt<|end|><|user|>a<|end|><|assistant|>", NULL},
    {"parts", "[{'role': 'user', 'content': [{'type': 'text', 'text': 'a '}, 'b']}]", NULL,
     "<|user|>a b<|end|><|assistant|>", NULL},
};

/* JSON with ' for quotation marks where it has none of them. */
static void quoted(const char *s, char *out, size_t size) {
    const bool is_plain = strchr(s, '"') == NULL;
    size_t n = 0;
    for (; *s && n + 1 < size; s++) out[n++] = *s == '\'' ? '"' : *s;
    out[n] = '\0';
    (void)is_plain;
}

static ag_chat *chat_of(const ag_chat_format *f, const char *messages, const char *offered) {
    ag_chat *c;
    char json[4096];
    ag_error err = {0};
    quoted(messages, json, sizeof json);
    assert_int_equal(ag_chat_create(f, &c, &err), AG_OK);
    if (ag_chat_set_messages(c, json, strlen(json), &err) != AG_OK)
        fail_msg("%s\n%s", err.msg, json);
    if (offered) assert_int_equal(ag_chat_set_tools(c, offered, strlen(offered), &err), AG_OK);
    return c;
}

static void messages_become_what_a_template_takes(void **state) {
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

static void what_is_no_message_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *json, *says;
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
         "content[1] is of type \"image_url\"", AG_UNSUPPORTED},
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
        if (!strstr(err.msg, bad[i].says)) fail_msg("%s: %s", bad[i].json, err.msg);
    }
    assert_int_equal(ag_chat_add(c, "user", "\xff", NULL), AG_FORMAT);
    assert_int_equal(ag_chat_set_variable(c, "messages", "1", 1, NULL), AG_INVALID);
    assert_int_equal(ag_chat_set_tools(c, "[{}]", 4, NULL), AG_INVALID);
    assert_int_equal(ag_chat_n_messages(c), 0);
    ag_chat_destroy(c);
    ag_chat_format_destroy(f);
}

static void a_last_answer_can_be_gone_on_with(void **state) {
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

static void features_are_what_a_template_does(void **state) {
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

/* ---- ids ---- */

enum { MAX_MARKS = 400, FIRST_MARK = 1000 };

typedef struct mark_list {
    char *s[MAX_MARKS];
    size_t n;
} mark_list;

static void add_mark(mark_list *l, const char *s, size_t n) {
    for (size_t i = 0; i < l->n; i++) {
        if (strlen(l->s[i]) == n && !memcmp(l->s[i], s, n)) return;
    }
    if (l->n < MAX_MARKS) l->s[l->n++] = ag_strndup(s, n);
}

/* Everything in the text between < and >, or [ and ], that could be a token of its own. */
static void collect(mark_list *l, const char *s) {
    for (; *s; s++) {
        const char close = *s == '<' ? '>' : *s == '[' ? ']' : '\0';
        if (!close) continue;
        size_t n = 1;
        while (n < 48 && s[n] && s[n] != close && !strchr(" \n'\"\\<[{}", s[n])) n++;
        if (n > 2 && s[n] == close) add_mark(l, s, n + 1);
    }
}

static void free_marks(mark_list *l) {
    for (size_t i = 0; i < l->n; i++) ag_free(l->s[i]);
    l->n = 0;
}

/* A token for every byte, and one for every mark: special, but, of a template's, every third. */
static ag_tokenizer *tokenizer_with(const mark_list *l, const char *jinja) {
    json_t *vocab = json_object(), *added = json_array();
    for (unsigned b = 0; b < 256; b++) {
        char key[8];
        const uint32_t cp = ag_byte_level_char((unsigned char)b);
        const int n = cp < 0x80 ? 1 : 2;
        key[0] = n == 1 ? (char)cp : (char)(0xc0 | (cp >> 6));
        key[1] = n == 1 ? '\0' : (char)(0x80 | (cp & 63));
        key[2] = '\0';
        json_object_set_new(vocab, key, json_integer((json_int_t)b));
    }
    for (size_t i = 0; i < l->n; i++) {
        json_array_append_new(added, json_pack("{s:i, s:s, s:b, s:b}", "id", FIRST_MARK + (int)i,
                                               "content", l->s[i], "special",
                                               !jinja || !strstr(jinja, l->s[i]) || i % 3 != 0,
                                               "normalized", 0));
    }
    json_t *root =
        json_pack("{s:o, s:{s:s, s:b}, s:{s:s}, s:{s:s, s:o, s:[]}}", "added_tokens", added,
                  "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", 0, "decoder", "type",
                  "ByteLevel", "model", "type", "BPE", "vocab", vocab, "merges");
    char *text = json_dumps(root, 0);
    ag_tokenizer *t;
    ag_error err = {0};
    if (ag_tokenizer_parse(text, strlen(text), "built in", &t, &err) != AG_OK)
        fail_msg("%s", err.msg);
    free(text);
    json_decref(root);
    return t;
}

/* Messages of all roles, tools and a document that say `words`. */
static ag_chat *chat_saying(const ag_chat_format *f, const char *words, bool with_tools) {
    ag_chat *c;
    ag_error err = {0};
    assert_int_equal(ag_chat_create(f, &c, &err), AG_OK);
    json_t *tools =
        json_pack("[{s:s, s:{s:s, s:s, s:{s:s, s:{s:{s:s, s:s}}}}}]", "type", "function",
                  "function", "name", "f", "description", words, "parameters", "type", "object",
                  "properties", "p", "type", "string", "description", words);
    json_t *messages = json_pack(
        "[{s:s, s:s}, {s:s, s:s}, {s:s, s:s, s:[{s:s, s:s, s:{s:s, s:{s:s}}}]}, {s:s, s:s, s:s, "
        "s:s}, "
        "{s:s, s:s}, {s:s, s:s}]",
        "role", "system", "content", words, "role", "user", "content", words, "role", "assistant",
        "content", "ok", "tool_calls", "id", "abcdef123", "type", "function", "function", "name",
        "f", "arguments", "p", words, "role", "tool", "tool_call_id", "abcdef123", "name", "f",
        "content", words, "role", "assistant", "content", words, "role", "user", "content", words);
    if (!with_tools) {
        json_array_remove(messages, 2);
        json_array_remove(messages, 2);
    }
    char *m = json_dumps(messages, 0), *t = json_dumps(tools, 0);
    json_t *documents = json_pack("[{s:s, s:s}]", "title", words, "text", words);
    char *d = json_dumps(documents, 0);
    assert_int_equal(ag_chat_set_messages(c, m, strlen(m), &err), AG_OK);
    if (with_tools) assert_int_equal(ag_chat_set_tools(c, t, strlen(t), &err), AG_OK);
    assert_int_equal(ag_chat_set_variable(c, "documents", d, strlen(d), &err), AG_OK);
    free(m);
    free(t);
    free(d);
    json_decref(tools);
    json_decref(messages);
    json_decref(documents);
    return c;
}

/* The marks among the ids of a rendered conversation, joined. */
static bool marks_in(const ag_chat_format *f, const char *words, bool with_tools, ag_text *out) {
    ag_chat *c = chat_saying(f, words, with_tools);
    ag_ids ids = {0};
    const bool ok = ag_chat_render(c, 0, &ids, NULL, NULL) == AG_OK;
    for (size_t i = 0; i < ids.n; i++) {
        char text[24];
        if (ids.data[i] < FIRST_MARK) continue;
        const int n = snprintf(text, sizeof text, "%d ", ids.data[i] - FIRST_MARK);
        assert_int_equal(ag_text_append(out, text, (size_t)n, NULL), AG_OK);
    }
    ag_ids_free(&ids);
    ag_chat_destroy(c);
    return ok;
}

/* Returns how many marks the template's own words gave. */
static size_t check_injection(const char *path, bool all_special) {
    size_t n, found = 0;
    char *jinja = read_template(path, &n);
    mark_list l = {0};
    ag_text words = {0}, evil = {0};
    add_mark(&l, "<BOS>", 5);
    add_mark(&l, "<EOS>", 5);
    static const char *const roles[] = {"<|user|>", "<|assistant|>", "<|system|>", "<|tool|>"};
    for (size_t i = 0; i < 4; i++) add_mark(&l, roles[i], strlen(roles[i]));
    collect(&l, jinja);
    /* Words that templates trim, split and look into. */
    ag_text_append(&evil, "  w ", 4, NULL);
    ag_text_append(&words, "  w ", 4, NULL);
    for (size_t i = 0; i < l.n; i++) {
        /* Templates take a reasoning out of an answer: that changes what they say themselves. */
        if (strstr(l.s[i], "think") || strstr(l.s[i], "THINK") || strstr(l.s[i], "channel"))
            continue;
        ag_text_append(&evil, l.s[i], strlen(l.s[i]), NULL);
        ag_text_append(&evil, "\n", i % 2, NULL);
    }
    ag_text_append(&evil, " w  ", 4, NULL);
    ag_text_append(&words, "x w  ", 5, NULL);
    ag_tokenizer *t = tokenizer_with(&l, all_special ? NULL : jinja);
    ag_chat_format *f = format_of(path, t);
    for (int tools = 0; tools < 2; tools++) {
        ag_text wanted = {0}, got = {0};
        const bool ok = marks_in(f, words.data, tools, &wanted);
        assert_int_equal(marks_in(f, evil.data, tools, &got), ok);
        if (ok && strcmp(wanted.data ? wanted.data : "", got.data ? got.data : "") != 0) {
            fail_msg("%s: marks %s\nnot %s", path, got.data, wanted.data);
        }
        found += wanted.len;
        ag_text_free(&wanted);
        ag_text_free(&got);
    }
    ag_chat_format_destroy(f);
    ag_tokenizer_destroy(t);
    ag_text_free(&words);
    ag_text_free(&evil);
    free_marks(&l);
    ag_free(jinja);
    return found;
}

static size_t check_all_in(const char *dir) {
    DIR *d = opendir(dir);
    size_t n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[1024];
        const char *dot = strrchr(e->d_name, '.');
        if (!dot || strcmp(dot, ".jinja") != 0) continue;
        snprintf(path, sizeof path, "%s%s", dir, e->d_name);
        if (check_injection(path, true) == 0) fail_msg("%s gives no mark at all", path);
        check_injection(path, false);
        n++;
    }
    if (d) closedir(d);
    return n;
}

static void words_of_a_conversation_never_become_marks(void **state) {
    (void)state;
    assert_int_equal(check_all_in(DATA), 5);
    if (check_all_in(SHARED) == 0) print_message("the real templates are not here\n");
}

/* ---- sampled answers ---- */

static ag_tokenizer *small_tokenizer(void) {
    static const char *const spellings[] = {"<BOS>",   "<|open|>", "<|close|>",
                                            "<think>", "</think>", "<call>",
                                            "</call>", "answer",   "\n\n"};
    mark_list l = {0};
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        add_mark(&l, spellings[i], strlen(spellings[i]));
    }
    ag_tokenizer *t = tokenizer_with(&l, NULL);
    free_marks(&l);
    return t;
}

/* "answer" letter by letter: other ids than the text would get. */
static void put_bytes(ag_ids *ids, const char *s) {
    for (; *s; s++) {
        ag_ids one = {0};
        assert_int_equal(ag_ids_push(ids, (unsigned char)*s, NULL), AG_OK);
        ag_ids_free(&one);
    }
}

static void encode(const ag_tokenizer *t, const char *s, ag_ids *ids) {
    assert_int_equal(ag_tokenizer_encode(t, s, strlen(s), AG_ENCODE_PARSE_SPECIAL, ids, NULL),
                     AG_OK);
}

static void answer_with(ag_chat *c, const char *text, const ag_ids *ids) {
    ag_chat_parser *p;
    assert_int_equal(ag_chat_parser_create(c, &p, NULL), AG_OK);
    assert_int_equal(ag_chat_parser_push(p, text, strlen(text), NULL), AG_OK);
    assert_int_equal(ag_chat_parser_finish(p, NULL), AG_OK);
    assert_int_equal(ag_chat_add_answer(c, p, ids->data, ids->n, NULL), AG_OK);
    ag_chat_parser_destroy(p);
}

/* The prompt, the answer as it was sampled, and the next prompt: which begins with both. */
static void check_kept(const ag_tokenizer *t, const char *variable, const char *answer,
                       size_t n_skipped, bool with_tools) {
    ag_chat_format *f = format_of(DATA "objects.jinja", t);
    ag_chat *c =
        chat_of(f, "[{'role': 'user', 'content': 'a <call> b'}]", with_tools ? TOOLS : NULL);
    ag_ids first = {0}, sampled = {0}, second = {0};
    if (variable) assert_int_equal(ag_chat_set_variable(c, variable, "true", 4, NULL), AG_OK);
    assert_int_equal(ag_chat_render(c, 0, &first, NULL, NULL), AG_OK);
    /* Marks are ids of their own, all else is a byte each: not as the encoder would have it. */
    encode(t, answer, &sampled);
    ag_ids own = {0};
    for (size_t i = 0; i < sampled.n; i++) {
        size_t n;
        const char *s = ag_tokenizer_token(t, sampled.data[i], &n);
        if (n == 6 && !memcmp(s, "answer", 6)) put_bytes(&own, "answer");
        else assert_int_equal(ag_ids_push(&own, sampled.data[i], NULL), AG_OK);
    }
    answer_with(c, answer, &own);
    assert_int_equal(ag_chat_add(c, "user", "answer", NULL), AG_OK);
    assert_int_equal(ag_chat_render(c, 0, &second, NULL, NULL), AG_OK);
    /* What the template leaves out, reasoning of earlier turns, is left out. */
    size_t at = first.n;
    if (n_skipped) {
        at = 0;
        while (at < first.n && first.data[at] == second.data[at]) at++;
    }
    assert_true(second.n > at + own.n - n_skipped);
    for (size_t i = n_skipped; i < own.n; i++) {
        assert_int_equal(second.data[at + i - n_skipped], own.data[i]);
    }
    assert_int_equal(second.data[at + own.n - n_skipped], ag_tokenizer_id(t, "<|close|>", 9));
    ag_ids_free(&own);
    ag_ids_free(&first);
    ag_ids_free(&sampled);
    ag_ids_free(&second);
    ag_chat_destroy(c);
    ag_chat_format_destroy(f);
}

static void sampled_answers_keep_their_ids(void **state) {
    (void)state;
    ag_tokenizer *t = small_tokenizer();
    check_kept(t, NULL, "an answer", 0, false);
    check_kept(t, NULL, " an answer  ", 0, false);
    check_kept(t, NULL, "see:\n<call>\n{\"name\":\"f\",  \"arguments\":{\"answer\":1}}\n</call>", 0,
               true);
    check_kept(t, NULL, "<call>{\"arguments\":{},\"name\":\"f\"}</call>", 0, true);
    /* "<think>", "hm", "</think>", "\n\n" */
    check_kept(t, NULL, "<think>hm</think>\n\nanswer", 5, false);
    ag_tokenizer_destroy(t);
}

static void check_stands_alone(const ag_tokenizer *t, const char *tools) {
    ag_chat_format *f = format_of(DATA "objects.jinja", t);
    ag_chat *c = chat_of(f,
                         "[{'role': 'user', 'content': [{'type': 'text', 'text': 'Q7v0'}, {'type': "
                         "'text', 'text': 'wc0q'}]}]",
                         tools);
    ag_ids first = {0}, own = {0}, second = {0};
    assert_int_equal(ag_chat_render(c, 0, &first, NULL, NULL), AG_OK);
    encode(t, "answer", &own);
    assert_int_equal(own.n, 1); /* as text it is none */
    answer_with(c, "answer", &own);
    assert_int_equal(ag_chat_render(c, 0, &second, NULL, NULL), AG_OK);
    assert_true(second.n > first.n + own.n);
    assert_memory_equal(second.data, first.data, first.n * sizeof *first.data);
    assert_memory_equal(second.data + first.n, own.data, own.n * sizeof *own.data);
    ag_ids_free(&own);
    ag_ids_free(&first);
    ag_ids_free(&second);
    ag_chat_destroy(c);
    ag_chat_format_destroy(f);
}

/* What looks like words that stand in an answer's place, in the conversation and in tools. */
static void nothing_stands_in_by_accident(void **state) {
    (void)state;
    ag_tokenizer *t = small_tokenizer();
    check_stands_alone(t, NULL);
    check_stands_alone(t, "[{\"name\": \"f\", \"description\": \"Q7v0wc0q, Q7v1wc0q\"}]");
    ag_tokenizer_destroy(t);
}

/* The answer as its client sends it again: whether it has the ids that it was sampled with. */
static void send_again(ag_chat *c, const ag_ids *sampled, const char *message, bool is_same) {
    ag_ids ids = {0};
    ag_chat_truncate(c, 1);
    assert_int_equal(ag_chat_add_json(c, message, strlen(message), NULL), AG_OK);
    assert_int_equal(ag_chat_render(c, 0, &ids, NULL, NULL), AG_OK);
    const bool equal =
        ids.n == sampled->n && !memcmp(ids.data, sampled->data, ids.n * sizeof *ids.data);
    assert_int_equal(equal, is_same);
    ag_ids_free(&ids);
}

static void answers_that_were_changed_are_text(void **state) {
    (void)state;
    ag_tokenizer *t = small_tokenizer();
    ag_chat_format *f = format_of(DATA "objects.jinja", t);
    ag_chat *c = chat_of(f, "[{'role': 'user', 'content': 'a'}]", TOOLS);
    static const char call[] =
        "so:<call>{\"name\":\"f\",\"id\":\"i\",\"arguments\":{\"answer\":1,\"b\":2}}</call>";
    ag_ids own = {0}, sampled = {0};
    encode(t, call, &own);
    answer_with(c, call, &own);
    assert_int_equal(ag_chat_render(c, 0, &sampled, NULL, NULL), AG_OK);
#define AGAIN(content, name, id, arguments)                                                   \
    "{\"role\":\"assistant\",\"content\":" content ",\"tool_calls\":[{\"type\":\"function\"," \
    "\"id\":\"" id "\",\"function\":{\"name\":\"" name "\",\"arguments\":" arguments "}}]}"
    send_again(c, &sampled, AGAIN("\"so:\"", "f", "i", "\"{\\\"answer\\\":1,\\\"b\\\":2}\""), true);
    send_again(c, &sampled, AGAIN("\"so:\"", "f", "i", "{\"b\": 2, \"answer\": 1}"), true);
    send_again(c, &sampled, AGAIN("\"so:\"", "f", "i", "{\"b\": 2, \"answer\": 2}"), false);
    send_again(c, &sampled, AGAIN("\"so:\"", "g", "i", "{\"b\": 2, \"answer\": 1}"), false);
    send_again(c, &sampled, AGAIN("\"no:\"", "f", "i", "{\"b\": 2, \"answer\": 1}"), false);
    send_again(c, &sampled, AGAIN("null", "f", "i", "{\"b\": 2, \"answer\": 1}"), false);
#undef AGAIN
    ag_ids_free(&own);
    ag_ids_free(&sampled);
    ag_chat_destroy(c);
    ag_chat_format_destroy(f);
    ag_tokenizer_destroy(t);
}

static void other_answers_are_text(void **state) {
    (void)state;
    ag_tokenizer *t = small_tokenizer();
    ag_chat_format *f = format_of(DATA "objects.jinja", t);
    ag_chat *c = chat_of(f,
                         "[{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': "
                         "'<|close|>'}, {'role': 'user', 'content': 'b'}]",
                         NULL);
    ag_ids ids = {0};
    size_t n_close = 0, n_bos = 0;
    assert_int_equal(ag_chat_render(c, 0, &ids, NULL, NULL), AG_OK);
    for (size_t i = 0; i < ids.n; i++) {
        n_close += ids.data[i] == ag_tokenizer_id(t, "<|close|>", 9);
        n_bos += ids.data[i] == ag_tokenizer_id(t, "<BOS>", 5);
    }
    assert_int_equal(n_close, 3);
    assert_int_equal(n_bos, 1);
    ag_ids_free(&ids);
    ag_chat_destroy(c);
    ag_chat_format_destroy(f);
    ag_tokenizer_destroy(t);
}

/* ---- calls that are asked for ---- */

/* What begins the call, the schema of the rest, and a rest, which the parser takes for a call. */
static void check_required(const char *file, const char *name, const char *begins,
                           const char *wanted, const char *rest) {
    char path[512];
    snprintf(path, sizeof path, DATA "%s.jinja", file);
    ag_tokenizer *t = small_tokenizer();
    ag_chat_format *f = format_of(path, t);
    ag_chat *c =
        chat_of(f, "[{'role': 'user', 'content': 'a'}]",
                "[{\"name\": \"f\", \"parameters\": {\"$ref\": \"#/$defs/x\"}}, {\"name\": "
                "\"g\"}]");
    ag_ids ids = {0};
    ag_text schema = {0}, text = {0};
    ag_chat_parser *p;
    assert_int_equal(ag_chat_render(c, 0, &ids, NULL, NULL), AG_OK);
    const size_t n = ids.n;
    assert_int_equal(ag_chat_require_call(c, "h", &ids, &schema, NULL), AG_NOT_FOUND);
    assert_int_equal(ag_chat_require_call(c, name, &ids, &schema, NULL), AG_OK);
    assert_string_equal(schema.data, wanted);
    assert_int_equal(ag_tokenizer_decode(t, ids.data + n, ids.n - n, true, &text, NULL), AG_OK);
    assert_string_equal(text.data ? text.data : "", begins);
    assert_int_equal(ag_chat_parser_create(c, &p, NULL), AG_OK);
    assert_int_equal(ag_chat_parser_push(p, rest, strlen(rest), NULL), AG_OK);
    assert_int_equal(ag_chat_parser_finish(p, NULL), AG_OK);
    assert_int_equal(ag_chat_parser_n_calls(p), 1);
    ag_chat_delta d;
    assert_true(ag_chat_parser_next(p, &d));
    assert_string_equal(d.name, "f");
    assert_true(ag_chat_parser_next(p, &d));
    assert_memory_equal(d.text, "{\"a\":1}", d.len);
    assert_false(ag_chat_parser_next(p, &d));
    ag_chat_parser_destroy(p);
    ag_text_free(&schema);
    ag_text_free(&text);
    ag_ids_free(&ids);
    ag_chat_destroy(c);
    ag_chat_format_destroy(f);
    ag_tokenizer_destroy(t);
}

static void a_call_can_be_required(void **state) {
    (void)state;
    check_required(
        "objects", "f", "<call>\n",
        "{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"f\"},\"arguments\":{"
        "\"$ref\":\"#/properties/arguments/$defs/x\",\"type\":\"object\"}},\"required\":["
        "\"name\",\"arguments\"],\"additionalProperties\":false}",
        "{\"name\":\"f\",\"arguments\":{\"a\":1}}");
    check_required("text_arguments", "f", "[CALLS]f[ARGS]",
                   "{\"$ref\":\"#/$defs/x\",\"type\":\"object\"}", "{\"a\":1}");
    check_required(
        "tags", NULL, "</think>\n\n",
        "{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"f\"},"
        "\"arguments\":{\"$ref\":\"#/anyOf/0/properties/arguments/$defs/x\",\"type\":"
        "\"object\"}},\"required\":[\"name\",\"arguments\"],\"additionalProperties\":false},{"
        "\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"g\"},\"arguments\":{"
        "\"type\":\"object\"}},\"required\":[\"name\",\"arguments\"],"
        "\"additionalProperties\":false}]}",
        "{\"name\":\"f\",\"arguments\":{\"a\":1}}");
}

/* ---- files ---- */

static void write_file(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void a_model_says_how_it_is_sampled(void **state) {
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

/* ---- memory ---- */

static ag_status whole_conversation(const char *jinja, size_t n, const ag_tokenizer *t) {
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
    ag_chat_parser_destroy(p);
    ag_ids_free(&ids);
    ag_text_free(&text);
    ag_chat_destroy(c);
    ag_chat_format_destroy(f);
    return st;
}

static void running_out_of_memory_is_an_error(void **state) {
    (void)state;
    size_t n;
    char *jinja = read_template(DATA "tags.jinja", &n);
    ag_tokenizer *t = small_tokenizer();
    const size_t before = ag_allocation_count();
    assert_int_equal(whole_conversation(jinja, n, t), AG_OK);
    const size_t made = ag_allocation_count() - before;
    for (size_t nth = 0; nth<made; nth += nth + 300> made ? 1 : 1 + made / 300) {
        failing_allocator f;
        failing_install(&f, nth);
        const ag_status st = whole_conversation(jinja, n, t);
        if (st != (atomic_load(&f.failed) ? AG_NOMEM : AG_OK)) {
            fail_msg("allocation %zu of %zu: %s", nth, made, ag_status_name(st));
        }
        assert_int_equal(atomic_load(&f.in_use), 0);
        ag_set_allocator(NULL);
    }
    ag_tokenizer_destroy(t);
    ag_free(jinja);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_become_what_a_template_takes),
        cmocka_unit_test(what_is_no_message_is_refused),
        cmocka_unit_test(a_last_answer_can_be_gone_on_with),
        cmocka_unit_test(features_are_what_a_template_does),
        cmocka_unit_test(words_of_a_conversation_never_become_marks),
        cmocka_unit_test(sampled_answers_keep_their_ids),
        cmocka_unit_test(nothing_stands_in_by_accident),
        cmocka_unit_test(answers_that_were_changed_are_text),
        cmocka_unit_test(other_answers_are_text),
        cmocka_unit_test(a_call_can_be_required),
        cmocka_unit_test(a_model_says_how_it_is_sampled),
        cmocka_unit_test(running_out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
