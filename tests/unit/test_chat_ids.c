/* SPDX-License-Identifier: Apache-2.0 */
/* Ids of conversations: special tokens come from templates only, and sampled answers keep their
 * ids. */
#include "support/chat_formats.h"

/* Returns a chat whose messages of all roles, tools and document contain `text`. */
static ag_chat *chat_with_text(const ag_chat_format *f, const char *text, bool with_tools) {
    ag_chat *c;
    ag_error err = {0};
    assert_int_equal(ag_chat_create(f, &c, &err), AG_OK);
    json_t *tools =
        json_pack("[{s:s, s:{s:s, s:s, s:{s:s, s:{s:{s:s, s:s}}}}}]", "type", "function",
                  "function", "name", "f", "description", text, "parameters", "type", "object",
                  "properties", "p", "type", "string", "description", text);
    json_t *messages = json_pack(
        "[{s:s, s:s}, {s:s, s:s}, {s:s, s:s, s:[{s:s, s:s, s:{s:s, s:{s:s}}}]}, {s:s, s:s, s:s, "
        "s:s}, "
        "{s:s, s:s}, {s:s, s:s}]",
        "role", "system", "content", text, "role", "user", "content", text, "role", "assistant",
        "content", "ok", "tool_calls", "id", "abcdef123", "type", "function", "function", "name",
        "f", "arguments", "p", text, "role", "tool", "tool_call_id", "abcdef123", "name", "f",
        "content", text, "role", "assistant", "content", text, "role", "user", "content", text);
    if (!with_tools) {
        json_array_remove(messages, 2);
        json_array_remove(messages, 2);
    }
    char *m = json_dumps(messages, 0), *t = json_dumps(tools, 0);
    json_t *documents = json_pack("[{s:s, s:s}]", "title", text, "text", text);
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

/* Appends the special tokens of the rendered conversation, joined. */
static bool special_tokens_in(const ag_chat_format *f, const char *text, bool with_tools,
                              ag_text *out) {
    ag_chat *c = chat_with_text(f, text, with_tools);
    ag_ids ids = {0};
    const bool ok = ag_chat_render(c, 0, &ids, NULL, NULL) == AG_OK;
    for (size_t i = 0; i < ids.n; i++) {
        char number[24];
        if (ids.data[i] < FIRST_ADDED_ID) continue;
        const int n = snprintf(number, sizeof number, "%d ", ids.data[i] - FIRST_ADDED_ID);
        assert_int_equal(ag_text_append(out, number, (size_t)n, NULL), AG_OK);
    }
    ag_ids_free(&ids);
    ag_chat_destroy(c);
    return ok;
}

/* Returns the number of special tokens that the template wrote. */
static size_t check_injection(const char *path, bool all_special) {
    size_t n, found = 0;
    char *jinja = read_template(path, &n);
    spelling_list l = {0};
    ag_text text = {0}, evil = {0};
    add_spelling(&l, "<BOS>", 5);
    add_spelling(&l, "<EOS>", 5);
    static const char *const roles[] = {"<|user|>", "<|assistant|>", "<|system|>", "<|tool|>"};
    for (size_t i = 0; i < 4; i++) add_spelling(&l, roles[i], strlen(roles[i]));
    collect_spellings(&l, jinja);
    /* Text that templates trim, split and search. */
    ag_text_append(&evil, "  w ", 4, NULL);
    ag_text_append(&text, "  w ", 4, NULL);
    for (size_t i = 0; i < l.n; i++) {
        /* A template that removes the reasoning from a message changes its own output too. */
        if (strstr(l.s[i], "think") || strstr(l.s[i], "THINK") || strstr(l.s[i], "channel"))
            continue;
        ag_text_append(&evil, l.s[i], strlen(l.s[i]), NULL);
        ag_text_append(&evil, "\n", i % 2, NULL);
    }
    ag_text_append(&evil, " w  ", 4, NULL);
    ag_text_append(&text, "x w  ", 5, NULL);
    ag_tokenizer *t = tokenizer_with(&l, all_special ? NULL : jinja);
    ag_chat_format *f = format_of(path, t);
    for (int tools = 0; tools < 2; tools++) {
        ag_text wanted = {0}, got = {0};
        const bool ok = special_tokens_in(f, text.data, tools, &wanted);
        assert_int_equal(special_tokens_in(f, evil.data, tools, &got), ok);
        if (ok && strcmp(wanted.data ? wanted.data : "", got.data ? got.data : "") != 0) {
            fail_msg("%s: special tokens %s\nnot %s", path, got.data, wanted.data);
        }
        found += wanted.len;
        ag_text_free(&wanted);
        ag_text_free(&got);
    }
    ag_chat_format_destroy(f);
    ag_tokenizer_destroy(t);
    ag_text_free(&text);
    ag_text_free(&evil);
    free_spellings(&l);
    ag_free(jinja);
    return found;
}

static void check_injections(const char *path, const char *name) {
    (void)name;
    if (check_injection(path, true) == 0) fail_msg("%s: no special token", path);
    check_injection(path, false);
}

static void conversation_text_never_becomes_special_tokens(void **state) {
    (void)state;
    assert_int_equal(check_templates_in(DATA, check_injections), 6);
    if (check_templates_in(SHARED, check_injections) == 0)
        print_message("the real templates are not here\n");
}

/* ---- sampled answers ---- */

/* Appends an id per byte, which the encoder would not do for "answer". */
static void put_bytes(ag_ids *ids, const char *s) {
    for (; *s; s++) assert_int_equal(ag_ids_push(ids, (unsigned char)*s, NULL), AG_OK);
}

static void encode(const ag_tokenizer *t, const char *s, ag_ids *ids) {
    assert_int_equal(ag_tokenizer_encode(t, s, strlen(s), AG_ENCODE_PARSE_SPECIAL, ids, NULL),
                     AG_OK);
}

/* Appends the ids of the text, with "answer" letter by letter. */
static void letter_ids(const ag_tokenizer *t, const char *text, ag_ids *own) {
    ag_ids ids = {0};
    encode(t, text, &ids);
    for (size_t i = 0; i < ids.n; i++) {
        size_t n;
        const char *s = ag_tokenizer_token(t, ids.data[i], &n);
        if (n == 6 && !memcmp(s, "answer", 6)) put_bytes(own, "answer");
        else assert_int_equal(ag_ids_push(own, ids.data[i], NULL), AG_OK);
    }
    ag_ids_free(&ids);
}

static void parse_answer(ag_chat *c, const char *text, ag_chat_parser **p) {
    assert_int_equal(ag_chat_parser_create(c, p, NULL), AG_OK);
    assert_int_equal(ag_chat_parser_push(*p, text, strlen(text), NULL), AG_OK);
    assert_int_equal(ag_chat_parser_finish(*p, NULL), AG_OK);
}

static void answer_with(ag_chat *c, const char *text, const ag_ids *ids) {
    ag_chat_parser *p;
    parse_answer(c, text, &p);
    assert_int_equal(ag_chat_add_answer(c, p, ids->data, ids->n, NULL), AG_OK);
    ag_chat_parser_destroy(p);
}

/* Checks that the next prompt begins with the prompt and the sampled ids of its answer, without
 * n_skipped ids of reasoning that the template leaves out. */
static void check_kept_ids(const ag_tokenizer *t, const char *variable, const char *answer,
                           size_t n_skipped, bool with_tools) {
    ag_chat_format *f = format_of(DATA "objects.jinja", t);
    ag_chat *c =
        chat_of(f, "[{'role': 'user', 'content': 'a <call> b'}]", with_tools ? TOOLS : NULL);
    ag_ids first = {0}, own = {0}, second = {0};
    if (variable) assert_int_equal(ag_chat_set_variable(c, variable, "true", 4, NULL), AG_OK);
    assert_int_equal(ag_chat_render(c, 0, &first, NULL, NULL), AG_OK);
    letter_ids(t, answer, &own);
    answer_with(c, answer, &own);
    assert_int_equal(ag_chat_add(c, "user", "answer", NULL), AG_OK);
    assert_int_equal(ag_chat_render(c, 0, &second, NULL, NULL), AG_OK);
    /* The template leaves out the reasoning of earlier turns. */
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
    ag_ids_free(&second);
    ag_chat_destroy(c);
    ag_chat_format_destroy(f);
}

static void sampled_answers_keep_their_ids(void **state) {
    (void)state;
    ag_tokenizer *t = small_tokenizer();
    check_kept_ids(t, NULL, "an answer", 0, false);
    check_kept_ids(t, NULL, " an answer  ", 0, false);
    check_kept_ids(
        t, NULL, "see:\n<call>\n{\"name\":\"f\",  \"arguments\":{\"answer\":1}}\n</call>", 0, true);
    check_kept_ids(t, NULL, "<call>{\"arguments\":{},\"name\":\"f\"}</call>", 0, true);
    /* "<think>", "hm", "</think>", "\n\n" */
    check_kept_ids(t, NULL, "<think>hm</think>\n\nanswer", 5, false);
    ag_tokenizer_destroy(t);
}

static void check_text_and_answer(const ag_tokenizer *t, const char *tools) {
    ag_chat_format *f = format_of(DATA "objects.jinja", t);
    ag_chat *c = chat_of(f,
                         "[{'role': 'user', 'content': [{'type': 'text', 'text': 'Q7v0'}, {'type': "
                         "'text', 'text': 'wc0q'}]}]",
                         tools);
    ag_ids first = {0}, own = {0}, second = {0};
    assert_int_equal(ag_chat_render(c, 0, &first, NULL, NULL), AG_OK);
    encode(t, "answer", &own);
    assert_int_equal(own.n, 1); /* the whole answer is one token */
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

/* Messages and tools contain parts of sentinels. */
static void text_like_sentinels_is_rendered_as_text(void **state) {
    (void)state;
    ag_tokenizer *t = small_tokenizer();
    check_text_and_answer(t, NULL);
    check_text_and_answer(t, "[{\"name\": \"f\", \"description\": \"Q7v0wc0q, Q7v1wc0q\"}]");
    ag_tokenizer_destroy(t);
}

/* The text is so long that a search of all of it for each message would take minutes. */
static void finds_equal_answers_in_linear_time(void **state) {
    /* strstr() of a sanitizer reads the whole text each time. */
    const bool is_slow = getenv("AG_TEST_STRIDE") != NULL;
    const size_t n_equal = is_slow ? 500 : 150000, n_text = is_slow ? 1 << 16 : 8 << 20;
    static const char message[] = "{\"role\":\"assistant\",\"content\":\"answer\"},";
    const size_t len = sizeof message - 1;
    (void)state;
    ag_tokenizer *t = small_tokenizer();
    ag_chat_format *f = format_of(DATA "objects.jinja", t);
    ag_chat *c = chat_of(f, "[{'role': 'user', 'content': 'a'}]", NULL);
    char *text = malloc(n_text + 1), *messages = malloc(n_equal * len + 3);
    ag_ids own = {0}, ids = {0};
    assert_non_null(text);
    assert_non_null(messages);
    messages[0] = '[';
    for (size_t i = 0; i < n_equal; i++) memcpy(messages + 1 + i * len, message, len);
    memcpy(messages + n_equal * len, "]", 2); /* replaces the last comma */
    memset(text, 'Q', n_text);
    text[n_text] = '\0';
    encode(t, "answer", &own);
    answer_with(c, "answer", &own);
    assert_int_equal(ag_chat_set_messages(c, messages, strlen(messages), NULL), AG_OK);
    assert_int_equal(ag_chat_add(c, "user", text, NULL), AG_OK);
    assert_int_equal(ag_chat_render(c, 0, &ids, NULL, NULL), AG_OK);
    size_t n = 0;
    for (size_t i = 0; i < ids.n; i++) n += ids.data[i] == own.data[0];
    assert_int_equal(n, n_equal);
    free(text);
    free(messages);
    ag_ids_free(&own);
    ag_ids_free(&ids);
    ag_chat_destroy(c);
    ag_chat_format_destroy(f);
    ag_tokenizer_destroy(t);
}

/* Sends the answer again as a client would, and checks whether it gets the sampled ids. */
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

static void changed_answers_are_encoded_as_text(void **state) {
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

static void answers_of_clients_are_encoded_as_text(void **state) {
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

/* ---- answers of other conversations ---- */

/* Returns a tokenizer in which "answer" is an ordinary token and `last` has the largest id. */
static ag_tokenizer *tokenizer_with_last(const char *last) {
    static const char *const spellings[] = {"<BOS>",  "<|open|>", "<|close|>",
                                            "answer", "<think>",  "</think>",
                                            "<call>", "</call>",  "\n\n"};
    spelling_list l = {0};
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
        if (strcmp(spellings[i], last) != 0) add_spelling(&l, spellings[i], strlen(spellings[i]));
    add_spelling(&l, last, strlen(last));
    ag_tokenizer *t = tokenizer_with(&l, "answer");
    free_spellings(&l);
    return t;
}

static ag_tokenizer *tokenizer_with_word(void) { return tokenizer_with_last("\n\n"); }

static size_t find_ids(const ag_ids *in, const int32_t *ids, size_t n) {
    for (size_t i = 0; i + n <= in->n; i++) {
        if (!memcmp(in->data + i, ids, n * sizeof *ids)) return i;
    }
    return SIZE_MAX;
}

/* Saves the answer, restores it in another conversation that sends `message`, and checks whether
 * the ids after the first n_skipped are found there. */
static void check_restored(const ag_tokenizer *t, const char *answer, const char *message,
                           size_t n_skipped, bool is_found) {
    ag_chat_format *f = format_of(DATA "objects.jinja", t);
    ag_chat *first = chat_of(f, "[{'role': 'user', 'content': 'a'}]", TOOLS);
    ag_chat *next = chat_of(f, "[{'role': 'user', 'content': 'a'}]", TOOLS);
    ag_ids own = {0}, ids = {0};
    ag_text saved = {0};
    ag_chat_parser *p;
    assert_int_equal(ag_chat_render(first, 0, &ids, NULL, NULL), AG_OK);
    letter_ids(t, answer, &own);
    parse_answer(first, answer, &p);
    assert_int_equal(ag_chat_keep_answer(first, p, own.data, own.n, &saved, NULL), AG_OK);
    assert_int_equal(ag_chat_restore_answer(next, saved.data, saved.len, NULL), AG_OK);
    assert_int_equal(ag_chat_n_messages(next), 1);
    assert_int_equal(ag_chat_add_json(next, message, strlen(message), NULL), AG_OK);
    ids.n = 0;
    assert_int_equal(ag_chat_render(next, AG_CHAT_NO_PROMPT, &ids, NULL, NULL), AG_OK);
    const size_t at = find_ids(&ids, own.data + n_skipped, own.n - n_skipped);
    if ((at != SIZE_MAX) != is_found)
        fail_msg("%s: %s", message, is_found ? "is text" : "has ids of another answer");
    ag_chat_parser_destroy(p);
    ag_text_free(&saved);
    ag_ids_free(&own);
    ag_ids_free(&ids);
    ag_chat_destroy(first);
    ag_chat_destroy(next);
    ag_chat_format_destroy(f);
}

static void restores_answers_in_other_conversations(void **state) {
    (void)state;
    ag_tokenizer *t = tokenizer_with_word();
    static const char call[] =
        "<call>{\"name\":\"f\",\"id\":\"i\",\"arguments\":{\"answer\":1}}</call>";
    static const char reasoned[] = "<think>hm</think>\n\nan answer"; /* 5 ids of reasoning */
#define CONTENT(content) "{\"role\":\"assistant\",\"content\":" content "}"
#define REASONING(reasoning, content) \
    "{\"role\":\"assistant\",\"content\":" content ",\"reasoning_content\":" reasoning "}"
#define CALL_OF(id, arguments)                                                                     \
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"type\":\"function\",\"id\":\"" id \
    "\",\"function\":{\"name\":\"f\",\"arguments\":" arguments "}}]}"
    check_restored(t, "an answer", CONTENT("\"an answer\""), 0, true);
    check_restored(t, "an answer", CONTENT("\"an answer.\""), 0, false);
    check_restored(t, call, CALL_OF("i", "\"{ \\\"answer\\\" : 1 }\""), 0, true);
    check_restored(t, call, CALL_OF("i", "\"{\\\"answer\\\":2}\""), 0, false);
    check_restored(t, call, CALL_OF("k", "\"{\\\"answer\\\":1}\""), 0, false);
    /* Reasoning that is sent, that is left out, and that differs. */
    check_restored(t, reasoned, REASONING("\"hm\"", "\"an answer\""), 0, true);
    check_restored(t, reasoned, CONTENT("\"an answer\""), 5, true);
    check_restored(t, reasoned, REASONING("\"no\"", "\"an answer\""), 0, false);
    check_restored(t, reasoned, REASONING("\"no\"", "\"an answer\""), 5, false);
    check_restored(t, "an answer", REASONING("\"no\"", "\"an answer\""), 0, false);
    /* An empty reasoning, which the message does not have. */
    check_restored(t, "<think></think>\n\nan answer", CONTENT("\"an answer\""), 3, true);
    check_restored(t, "<think></think>\n\nan answer", CONTENT("\"an answer\""), 0, false);
#undef CONTENT
#undef REASONING
#undef CALL_OF
    ag_tokenizer_destroy(t);
}

/* ---- bodies of harmony messages ---- */

static ag_tokenizer *harmony_tokenizer(void) {
    static const char *const spellings[] = {"<|start|>", "<|channel|>",   "<|message|>",
                                            "<|end|>",   "<|constrain|>", "<|call|>",
                                            "answer"};
    spelling_list l = {0};
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
        add_spelling(&l, spellings[i], strlen(spellings[i]));
    ag_tokenizer *t = tokenizer_with(&l, "answer"); /* the last one is not special */
    free_spellings(&l);
    return t;
}

/* Saves a sampled answer and restores it in a conversation that sends the messages. Returns the
 * number of sampled letters in the prompt where the tokenizer has "answer"; the text is checked. */
static size_t count_sampled(const ag_tokenizer *t, const char *answer, const char *messages,
                            const char *text) {
    ag_chat_format *f = format_of(DATA "channels.jinja", t);
    ag_chat *first = chat_of(f, "[{'role': 'user', 'content': 'an answer'}]", TOOLS);
    ag_chat *next = chat_of(f, messages, NULL);
    ag_ids own = {0}, ids = {0};
    ag_text saved = {0}, got = {0}, decoded = {0};
    ag_chat_parser *p;
    assert_int_equal(ag_chat_render(first, 0, &ids, NULL, NULL), AG_OK);
    letter_ids(t, answer, &own);
    parse_answer(first, answer, &p);
    assert_int_equal(ag_chat_keep_answer(first, p, own.data, own.n, &saved, NULL), AG_OK);
    assert_int_equal(ag_chat_restore_answer(next, saved.data, saved.len, NULL), AG_OK);
    ids.n = 0;
    assert_int_equal(ag_chat_render(next, 0, &ids, &got, NULL), AG_OK);
    assert_string_equal(got.data, text);
    assert_int_equal(ag_tokenizer_decode(t, ids.data, ids.n, true, &decoded, NULL), AG_OK);
    assert_string_equal(decoded.data, text);
    size_t n = 0;
    for (size_t i = 0; i < ids.n; i++) n += ids.data[i] == 'w';
    ag_chat_parser_destroy(p);
    ag_text_free(&saved);
    ag_text_free(&got);
    ag_text_free(&decoded);
    ag_ids_free(&own);
    ag_ids_free(&ids);
    ag_chat_destroy(first);
    ag_chat_destroy(next);
    ag_chat_format_destroy(f);
    return n;
}

/* The prompt is what the template writes; bodies that it writes as the model did keep their ids. */
static void harmony_bodies_keep_their_ids(void **state) {
    (void)state;
    ag_tokenizer *t = harmony_tokenizer();
#define ASK "<|start|>user<|message|>an answer<|end|>"
#define THOUGHT "<|channel|>analysis<|message|>an answer"
#define CALLED(arguments)                                                                     \
    THOUGHT "<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json" \
            "<|message|>" arguments
#define HISTORY                                                                          \
    "[{'role': 'user', 'content': 'an answer'}, {'role': 'assistant', 'content': null, " \
    "'reasoning_content': 'an answer', 'tool_calls': [" CALL("1", "{\"answer\": 1}") "]}]"
#define PROMPT                                                                             \
    ASK "<|start|>assistant" THOUGHT "<|end|><|start|>assistant to=functions.f<|channel|>" \
        "commentary json<|message|>{\"answer\": 1}<|call|><|start|>assistant"
    assert_int_equal(count_sampled(t, CALLED("{\"answer\": 1}"), HISTORY, PROMPT), 2);
    assert_int_equal(count_sampled(t, CALLED("{\"answer\":1}"), HISTORY, PROMPT), 1);
    assert_int_equal(count_sampled(t, THOUGHT ".", HISTORY, PROMPT), 0);
    assert_int_equal(
        count_sampled(t, THOUGHT "<|end|><|start|>assistant<|channel|>final<|message|>the answer",
                      "[{'role': 'user', 'content': 'an answer'}, {'role': 'assistant', "
                      "'content': 'the answer', 'reasoning_content': 'an answer'}]",
                      ASK "<|start|>assistant<|channel|>final<|message|>the answer<|end|>"
                          "<|start|>assistant"),
        1);
#undef ASK
#undef THOUGHT
#undef CALLED
#undef HISTORY
#undef PROMPT
    ag_tokenizer_destroy(t);
}

/* A client that writes the same text must not get the special token. */
static void rejects_answers_with_special_tokens_in_text(void **state) {
    (void)state;
    ag_tokenizer *t = tokenizer_with_word();
    ag_chat_format *f = format_of(DATA "objects.jinja", t);
    ag_chat *c = chat_of(f, "[{'role': 'user', 'content': 'a'}]", TOOLS);
    ag_ids own = {0};
    ag_text saved = {0};
    ag_chat_parser *p;
    ag_error err;
    const int32_t special = ag_tokenizer_id(t, "<|close|>", 9);
    assert_true(ag_tokenizer_is_special(t, special));
    encode(t, "an answer", &own);
    const size_t n = own.n;
    assert_int_equal(ag_ids_push(&own, special, NULL), AG_OK);
    parse_answer(c, "an answer<|close|>", &p);
    assert_int_equal(ag_chat_keep_answer(c, p, own.data, own.n, &saved, &err), AG_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "special token"));
    /* An answer whose text was emitted in part. */
    assert_int_equal(ag_chat_keep_answer(c, p, own.data, n, &saved, &err), AG_UNSUPPORTED);
    assert_int_equal(saved.len, 0);
    assert_int_equal(ag_chat_restore_answer(c, "{}", 2, &err), AG_FORMAT);
    static const char outside[] =
        "{\"message\":{\"role\":\"assistant\",\"content\":\"a\"},\"ids\":[99999999]}";
    assert_int_equal(ag_chat_restore_answer(c, outside, strlen(outside), &err), AG_FORMAT);
    ag_chat_parser_destroy(p);
    ag_ids_free(&own);
    ag_text_free(&saved);
    ag_chat_destroy(c);
    ag_chat_format_destroy(f);
    ag_tokenizer_destroy(t);
}

static void save_answer(const ag_chat_format *f, const char *answer, ag_text *saved) {
    ag_chat *c = chat_of(f, "[{'role': 'user', 'content': 'a'}]", TOOLS);
    ag_ids own = {0};
    ag_chat_parser *p;
    letter_ids(f->tokenizer, answer, &own);
    parse_answer(c, answer, &p);
    assert_int_equal(ag_chat_keep_answer(c, p, own.data, own.n, saved, NULL), AG_OK);
    ag_chat_parser_destroy(p);
    ag_ids_free(&own);
    ag_chat_destroy(c);
}

/* message: part of the error; NULL: the answer is restored. */
static void check_restore(const ag_chat_format *f, const char *saved, const char *message) {
    ag_chat *c = chat_of(f, "[{'role': 'user', 'content': 'a'}]", TOOLS);
    ag_error err = {0};
    assert_int_equal(ag_chat_restore_answer(c, saved, strlen(saved), &err),
                     message ? AG_FORMAT : AG_OK);
    if (message && !strstr(err.msg, message)) fail_msg("%s", err.msg);
    ag_chat_destroy(c);
}

/* Answers with calls too, whose ids are not compared with the text. */
static void rejects_answers_of_other_tokenizers_or_templates(void **state) {
    (void)state;
    ag_tokenizer *t = tokenizer_with_word(), *other = tokenizer_with_last("<BOS>");
    assert_int_equal(ag_tokenizer_vocab_size(t), ag_tokenizer_vocab_size(other));
    ag_chat_format *f = format_of(DATA "objects.jinja", t);
    ag_chat_format *other_tokenizer = format_of(DATA "objects.jinja", other);
    ag_chat_format *other_template = format_of(DATA "parts.jinja", t);
    static const char *const answers[] = {
        "an answer", "<call>{\"name\":\"f\",\"id\":\"i\",\"arguments\":{\"b\":1}}</call>"};
    for (size_t i = 0; i < 2; i++) {
        ag_text saved = {0};
        save_answer(f, answers[i], &saved);
        check_restore(f, saved.data, NULL);
        check_restore(other_tokenizer, saved.data, "another tokenizer");
        check_restore(other_template, saved.data, "template");
        ag_text_free(&saved);
    }
    ag_chat_format_destroy(f);
    ag_chat_format_destroy(other_tokenizer);
    ag_chat_format_destroy(other_template);
    ag_tokenizer_destroy(t);
    ag_tokenizer_destroy(other);
}

static void rejects_ids_that_do_not_spell_the_message(void **state) {
    (void)state;
    ag_tokenizer *t = tokenizer_with_word();
    ag_chat_format *f = format_of(DATA "objects.jinja", t);
    ag_text saved = {0};
    save_answer(f, "an answer", &saved);
    json_t *value = json_loadb(saved.data, saved.len, 0, NULL);
    json_t *ids = json_object_get(value, "ids");
    check_restore(f, saved.data, NULL);
    assert_int_equal(json_array_set(ids, 0, json_array_get(ids, 1)), 0);
    char *changed = json_dumps(value, 0);
    check_restore(f, changed, "do not spell");
    free(changed);
    json_decref(value);
    ag_text_free(&saved);
    ag_chat_format_destroy(f);
    ag_tokenizer_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversation_text_never_becomes_special_tokens),
        cmocka_unit_test(sampled_answers_keep_their_ids),
        cmocka_unit_test(text_like_sentinels_is_rendered_as_text),
        cmocka_unit_test(finds_equal_answers_in_linear_time),
        cmocka_unit_test(changed_answers_are_encoded_as_text),
        cmocka_unit_test(answers_of_clients_are_encoded_as_text),
        cmocka_unit_test(restores_answers_in_other_conversations),
        cmocka_unit_test(harmony_bodies_keep_their_ids),
        cmocka_unit_test(rejects_answers_with_special_tokens_in_text),
        cmocka_unit_test(rejects_answers_of_other_tokenizers_or_templates),
        cmocka_unit_test(rejects_ids_that_do_not_spell_the_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
