/* SPDX-License-Identifier: Apache-2.0 */
/* Round trip: random calls that a template renders are read back, whole and byte by byte. */
#include "chat/detect/detect.h"
#include "chat/json_scan.h"
#include "support/chat_formats.h"

/* No prompt of a template continues with its first character. */
#define CONTENT "~ Hello."

enum { N_ANSWERS = 200, MAX_CALLS = 4, LONG_TEXT = 4096 };

static const char tools[] =
    "[{'type': 'function', 'function': {'name': 'get_weather', 'description': 'w', 'parameters': "
    "{'type': 'object', 'properties': {'text': {'type': 'string', 'description': 'd'}, 'count': "
    "{'type': 'integer', 'description': 'd'}, 'ratio': {'type': 'number', 'description': 'd'}}, "
    "'required': ['text']}}}, "
    "{'type': 'function', 'function': {'name': 'files.list-all', 'description': 'f', 'parameters': "
    "{'type': 'object', 'properties': {'on': {'type': 'boolean', 'description': 'd'}, 'list': "
    "{'type': 'array', 'items': {'type': 'string'}, 'description': 'd'}, 'object': {'type': "
    "'object', 'additionalProperties': {'type': 'string'}, 'description': 'd'}, 'text': {'type': "
    "'string', 'description': 'd'}}, 'required': "
    "['on']}}}]";

/* Templates whose answers are not read back. */
static const struct {
    const char *name, *reason;
} exceptions[] = {
    {"CohereForAI-c4ai-command-r-plus-tool_use.jinja",
     "the newest question has instructions of its own"},
    {"GigaChat3-10B-A1.8B.jinja", "text ends with a mark that also precedes calls"},
};

/* Kinds of strings. Others are plain. */
enum { QUOTES, LINES, SPACE, LITERAL, THINK, END_MARK, LONG };

typedef struct subject {
    const char *name;
    ag_chat_format *f;
    uint32_t seed;
} subject;

static uint32_t next_random(subject *s, uint32_t n) {
    s->seed = s->seed * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(s->seed >> 8) * n >> 24);
}

static json_t *random_string(subject *s) {
    static const char *const literals[] = {"12", "true", "null", "[1]", "{\"a\": 1}", "-0.5"};
    const ag_call_format *c = &s->f->calls;
    /* Raw text cannot contain what ends it. */
    const char *const marks[] = {c->call_close, c->section_close, c->list_close,
                                 "}</a>",       "\"}]",           ")]"};
    char text[LONG_TEXT + 1];
    switch (next_random(s, 20)) {
    case QUOTES:
        return json_string("a \"b\" 'c' \\ \\n `d` \xc3\xa9");
    case LINES:
        return json_string("x\ny\n\n  z\tt");
    case SPACE:
        return json_string(" a ");
    case LITERAL:
        return json_string(literals[next_random(s, sizeof literals / sizeof *literals)]);
    case THINK:
        return json_string("a</think>b");
    case END_MARK: {
        const char *mark = marks[next_random(s, sizeof marks / sizeof *marks)];
        return json_sprintf("a%sb", mark ? mark : "");
    }
    case LONG:
        for (size_t i = 0; i < LONG_TEXT; i++) text[i] = (char)('a' + next_random(s, 26));
        text[LONG_TEXT] = '\0';
        return json_string(text);
    default:
        return json_string("K\xc3\xb6ln, 5");
    }
}

static json_t *random_arguments(subject *s, bool is_weather) {
    json_t *args = json_object();
    if (is_weather) {
        json_object_set_new(args, "text", random_string(s));
        if (next_random(s, 2)) json_object_set_new(args, "count", json_integer(next_random(s, 99)));
        if (next_random(s, 2)) json_object_set_new(args, "ratio", json_real(-1.25));
        return args;
    }
    json_object_set_new(args, "on", json_boolean(next_random(s, 2)));
    if (next_random(s, 2))
        json_object_set_new(args, "list", json_pack("[o, o]", random_string(s), random_string(s)));
    if (next_random(s, 2))
        json_object_set_new(args, "object",
                            json_pack("{s:o, s:{s:[i, n]}}", "a", random_string(s), "b", "c", 1));
    if (next_random(s, 2)) json_object_set_new(args, "text", random_string(s));
    return args;
}

static json_t *random_calls(subject *s) {
    json_t *calls = json_array();
    const bool several = s->f->features & AG_CHAT_PARALLEL_CALLS;
    const uint32_t n = several ? next_random(s, MAX_CALLS + 1) : next_random(s, 2);
    for (uint32_t i = 0; i < n; i++) {
        const bool is_weather = next_random(s, 2);
        char id[12];
        snprintf(id, sizeof id, "call%05u", (unsigned)i);
        json_array_append_new(calls, json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", id, "type",
                                               "function", "function", "name",
                                               is_weather ? "get_weather" : "files.list-all",
                                               "arguments", random_arguments(s, is_weather)));
    }
    return calls;
}

/* Renders a question and an answer with these calls; calls == NULL: with the start of the answer
 * instead. Returns false if the template fails. *chat: the conversation, owned by the caller. */
static bool render(const ag_chat_format *f, const json_t *calls, ag_text *text, ag_chat **chat) {
    char offered[sizeof tools];
    ag_error err = {0};
    quoted(tools, offered, sizeof offered);
    *chat = chat_of(f, "[{'role': 'user', 'content': 'Q'}]", offered);
    if (calls) {
        const bool has_calls = json_array_size(calls) > 0;
        json_t *m = json_pack("{s:s, s:s, s:O?}", "role", "assistant", "content",
                              has_calls ? "" : CONTENT, "tool_calls", has_calls ? calls : NULL);
        if (!has_calls) json_object_del(m, "tool_calls");
        char *json = json_dumps(m, 0);
        if (ag_chat_add_json(*chat, json, strlen(json), &err) != AG_OK) fail_msg("%s", err.msg);
        free(json);
        json_decref(m);
    }
    return ag_chat_render(*chat, calls ? AG_CHAT_NO_PROMPT : 0, NULL, text, &err) == AG_OK;
}

static json_t *parse(ag_chat *c, const char *text, size_t n, size_t piece) {
    ag_chat_parser *p;
    ag_text json = {0};
    assert_int_equal(ag_chat_parser_create(c, &p, NULL), AG_OK);
    for (size_t i = 0; i < n; i += piece)
        assert_int_equal(ag_chat_parser_push(p, text + i, n - i < piece ? n - i : piece, NULL),
                         AG_OK);
    assert_int_equal(ag_chat_parser_finish(p, NULL), AG_OK);
    assert_int_equal(ag_chat_parser_message(p, &json, NULL), AG_OK);
    json_t *m = json_loadb(json.data, json.len, JSON_ALLOW_NUL, NULL);
    ag_text_free(&json);
    ag_chat_parser_destroy(p);
    return m;
}

static bool is_equal(const json_t *calls, const json_t *message) {
    const json_t *got = json_object_get(message, "tool_calls");
    const char *content = json_string_value(json_object_get(message, "content"));
    if (json_array_size(got) != json_array_size(calls)) return false;
    while (content && ag_is_json_space(*content)) content++;
    if (strcmp(content ? content : "", json_array_size(calls) ? "" : CONTENT) != 0) return false;
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *a = json_object_get(json_array_get(calls, i), "function"),
                     *b = json_object_get(json_array_get(got, i), "function");
        json_t *args = json_loads(json_string_value(json_object_get(b, "arguments")), 0, NULL);
        const bool same = json_equal(json_object_get(a, "name"), json_object_get(b, "name")) &&
                          json_equal(json_object_get(a, "arguments"), args);
        json_decref(args);
        if (!same) return false;
    }
    return true;
}

/* Returns the length of the answer up to the first text that stops it, without white space. */
static size_t answer_len(const ag_chat_format *f, const char *s) {
    size_t n = strlen(s);
    for (size_t i = 0; i < f->n_stops; i++) {
        const char *at = strstr(s, f->stops[i]);
        if (at && (size_t)(at - s) < n) n = (size_t)(at - s);
    }
    while (n && ag_is_json_space(s[n - 1])) n--;
    return n;
}

/* Appends what a model writes after `prompt` so that the conversation becomes `full`. A model that
 * is in its reasoning ends it first. */
static void answer_of(const ag_chat_format *f, const char *prompt, const char *full, ag_text *out) {
    const char *rest = full + ag_detect_common_prefix(prompt, full), *close = f->reasoning_close;
    const size_t space = ag_json_space_len(rest, strlen(rest));
    if (ag_chat_format_ends_in_reasoning(f, prompt, strlen(prompt)) &&
        strncmp(rest + space, close, strlen(close)) != 0) {
        assert_int_equal(ag_text_append_string(out, close, NULL), AG_OK);
    }
    assert_int_equal(ag_text_append(out, rest, answer_len(f, rest), NULL), AG_OK);
}

static void check_pieces(subject *s, ag_chat *c, const json_t *calls, const ag_text *answer) {
    for (int i = 0; i < 2; i++) {
        json_t *m = parse(c, answer->data, answer->len, i ? 1 : answer->len);
        if (!is_equal(calls, m)) {
            char *wanted = json_dumps(calls, 0), *got = json_dumps(m, 0);
            fail_msg("%s: %s\n%s\ngives %s", s->name, wanted, answer->data, got);
        }
        json_decref(m);
    }
}

/* Returns whether the template accepts the calls. */
static bool check_answer(subject *s) {
    ag_chat *c, *question, *again;
    json_t *calls = random_calls(s);
    ag_text full = {0}, prompt = {0}, later = {0}, answer = {0};
    render(s->f, NULL, &prompt, &question);
    const bool ok = render(s->f, calls, &full, &c);
    render(s->f, NULL, &later, &again);
    /* Some templates write the time, which may have changed between the first two. */
    if (ok && !strcmp(prompt.data, later.data)) {
        answer_of(s->f, prompt.data, full.data, &answer);
        check_pieces(s, question, calls, &answer);
    }
    ag_text_free(&answer);
    ag_text_free(&full);
    ag_text_free(&prompt);
    ag_text_free(&later);
    ag_chat_destroy(c);
    ag_chat_destroy(question);
    ag_chat_destroy(again);
    json_decref(calls);
    return ok;
}

static void check_template(const char *path, const char *name) {
    subject s = {.name = name, .f = format_of(path, NULL), .seed = 17};
    const char *reason = NULL;
    unsigned n = 0;
    for (size_t i = 0; i < sizeof exceptions / sizeof exceptions[0]; i++)
        if (!strcmp(exceptions[i].name, name)) reason = exceptions[i].reason;
    if (!(s.f->features & AG_CHAT_CALLS)) reason = "writes no calls";
    for (int i = 0; i < N_ANSWERS && !reason; i++) n += check_answer(&s);
    if (reason) print_message("%s: not checked: %s\n", name, reason);
    else if (n < N_ANSWERS) print_message("%s: accepts %u of %d answers\n", name, n, N_ANSWERS);
    ag_chat_format_destroy(s.f);
}

static void reads_rendered_calls_back(void **state) {
    (void)state;
    assert_int_equal(check_templates_in(DATA, check_template), 6);
    assert_int_equal(check_templates_in(DATA "invented/", check_template), 10);
    if (check_templates_in(SHARED, check_template) == 0)
        print_message("the real templates are not here\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(reads_rendered_calls_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
