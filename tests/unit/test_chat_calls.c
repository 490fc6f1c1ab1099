/* SPDX-License-Identifier: Apache-2.0 */
/* Required calls: random texts that a grammar admits are parsed as calls with valid arguments, for
 * each call format. */
#include "chat/calls/call_grammar.h"
#include "chat/calls/call_trigger.h"
#include "chat/detect/sentinels.h"
#include "chat/parse/parser.h"
#include "constrain/constraint.h"
#include "support/chat_formats.h"
#include "support/failing_allocator.h"

#include <antigravity/constrain.h>
#include <unistd.h>

enum { N_VOCAB = 2048, MAX_TOKENS = 6000, LONG = 150 };

static const char full_tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"description\": "
    "\"Weather\", \"parameters\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": "
    "\"string\", \"description\": \"d\"}, \"days\": {\"type\": \"integer\", \"minimum\": 1, "
    "\"maximum\": 9, \"description\": \"d\"}, \"unit\": {\"enum\": [\"C\", \"F\"], "
    "\"description\": \"d\"}, \"tags\": {\"type\": \"array\", \"items\": {\"type\": \"string\", "
    "\"maxLength\": 8}, \"maxItems\": 3, \"description\": \"d\"}, \"where\": {\"$ref\": "
    "\"#/$defs/place\", \"description\": \"d\"}, \"maybe\": {\"type\": [\"string\", \"null\"], "
    "\"description\": \"d\"}}, \"required\": [\"city\", \"days\", \"unit\"], \"$defs\": "
    "{\"place\": {\"type\": \"object\", \"properties\": {\"exact\": {\"type\": \"boolean\"}, "
    "\"lat\": {\"type\": \"number\", \"minimum\": -90, \"maximum\": 90}}, \"required\": "
    "[\"exact\"], \"additionalProperties\": false}}, \"additionalProperties\": false}}}, "
    "{\"type\": \"function\", \"function\": {\"name\": \"list_files\", \"description\": \"Lists\", "
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"path\": {\"type\": \"string\", "
    "\"pattern\": \"^/[a-z/]*$\", \"description\": \"d\"}, \"all\": {\"type\": \"boolean\", "
    "\"description\": \"d\"}}, \"required\": [\"path\"], \"additionalProperties\": false}}}]";

/* The same tools with a type for each argument: three templates need it. */
static const char simple_tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"description\": "
    "\"Weather\", \"parameters\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": "
    "\"string\", \"description\": \"d\"}, \"days\": {\"type\": \"integer\", \"minimum\": 1, "
    "\"maximum\": 9, \"description\": \"d\"}, \"unit\": {\"type\": \"string\", \"enum\": [\"C\", "
    "\"F\"], \"description\": \"d\"}}, \"required\": [\"city\", \"days\", \"unit\"], "
    "\"additionalProperties\": false}}}, "
    "{\"type\": \"function\", \"function\": {\"name\": \"list_files\", \"description\": \"Lists\", "
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"path\": {\"type\": \"string\", "
    "\"pattern\": \"^/[a-z/]*$\", \"description\": \"d\"}}, \"required\": [\"path\"], "
    "\"additionalProperties\": false}}}]";

static const char *tools_for(const char *name) {
    const bool is_simple =
        strstr(name, "command-r-plus") || strstr(name, "Hermes-3") || strstr(name, "brindlewick");
    return is_simple ? simple_tools : full_tools;
}

/* ---- validation ---- */

static bool has_type(const json_t *args, const char *key, json_type a, json_type b,
                     bool is_required) {
    const json_t *v = json_object_get(args, key);
    return v ? json_typeof(v) == a || json_typeof(v) == b : !is_required;
}

static bool is_valid_weather(const json_t *args) {
    const json_int_t days = json_integer_value(json_object_get(args, "days"));
    const json_t *where = json_object_get(args, "where"), *tags = json_object_get(args, "tags");
    const char *unit = json_string_value(json_object_get(args, "unit"));
    bool ok = has_type(args, "city", JSON_STRING, JSON_STRING, true);
    for (size_t i = 0; i < json_array_size(tags); i++) {
        ok = ok && json_is_string(json_array_get(tags, i));
    }
    if (where) ok = ok && has_type(where, "exact", JSON_TRUE, JSON_FALSE, true);
    return ok && has_type(args, "days", JSON_INTEGER, JSON_INTEGER, true) && days >= 1 &&
           days <= 9 && unit && (!strcmp(unit, "C") || !strcmp(unit, "F")) &&
           has_type(args, "tags", JSON_ARRAY, JSON_ARRAY, false) && json_array_size(tags) <= 3 &&
           has_type(args, "where", JSON_OBJECT, JSON_OBJECT, false) &&
           has_type(where, "lat", JSON_REAL, JSON_INTEGER, false) &&
           has_type(args, "maybe", JSON_STRING, JSON_NULL, false);
}

static bool is_valid_files(const json_t *args) {
    const char *path = json_string_value(json_object_get(args, "path"));
    return path && path[0] == '/' && strspn(path, "abcdefghijklmnopqrstuvwxyz/") == strlen(path) &&
           has_type(args, "all", JSON_TRUE, JSON_FALSE, false);
}

static bool is_valid(const ag_parsed_call *call) {
    json_t *args =
        json_loads(call->arguments.data ? call->arguments.data : "", JSON_ALLOW_NUL, NULL);
    const bool is_weather = !strcmp(call->name, "get_weather");
    const bool ok = call->is_complete && json_is_object(args) &&
                    (is_weather ? is_valid_weather(args)
                                : !strcmp(call->name, "list_files") && is_valid_files(args));
    json_decref(args);
    return ok;
}

/* ---- random texts of a constraint ---- */

static size_t n_failures;

static uint32_t next_random(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* Accepts all tokens of the text; returns false, and changes nothing, if the constraint does not
 * allow them. */
static bool try_text(ag_constraint *c, const ag_tokenizer *t, const char *text, ag_ids *ids) {
    ag_ids more = {0};
    ag_constraint *ahead;
    assert_int_equal(
        ag_tokenizer_encode(t, text, strlen(text), AG_ENCODE_PARSE_SPECIAL, &more, NULL), AG_OK);
    assert_int_equal(ag_constraint_clone(c, &ahead, NULL), AG_OK);
    bool ok = more.n > 0;
    for (size_t i = 0; i < more.n && ok; i++) {
        ok = ag_constraint_accept(ahead, more.data[i], NULL) == AG_OK;
    }
    for (size_t i = 0; i < more.n && ok; i++) {
        assert_int_equal(ag_constraint_accept(c, more.data[i], NULL), AG_OK);
        assert_int_equal(ag_ids_push(ids, more.data[i], NULL), AG_OK);
    }
    ag_constraint_destroy(ahead);
    ag_ids_free(&more);
    return ok;
}

/* Accepts what closes a string, a list or an object, which random letters seldom do. */
static bool try_closing(ag_constraint *c, const ag_tokenizer *t, const ag_call_format *f,
                        ag_ids *ids) {
    const char *const closings[] = {f->param_close, f->quote, "\"", "]", "}"};
    for (size_t i = 0; i < sizeof closings / sizeof *closings; i++) {
        if (closings[i] && try_text(c, t, closings[i], ids)) return true;
    }
    return false;
}

static bool random_step(ag_constraint *c, const char *name, uint32_t *seed, int32_t eos,
                        ag_ids *ids) {
    const uint32_t *mask;
    int32_t allowed[N_VOCAB], n = 0;
    ag_error err;
    if (ag_constraint_mask(c, &mask, &err) != AG_OK) fail_msg("%s: %s", name, err.msg);
    for (int32_t id = 0; id < N_VOCAB; id++) {
        if (mask[id / 32] >> (id % 32) & 1) allowed[n++] = id;
    }
    assert_true(n > 0);
    const bool ends = mask[eos / 32] >> (eos % 32) & 1 && next_random(seed) % 2;
    const int32_t id = ends ? eos : allowed[next_random(seed) % (uint32_t)n];
    assert_int_equal(ag_constraint_accept(c, id, &err), AG_OK);
    if (id == eos && ag_constraint_has_ended(c)) return false;
    assert_int_equal(ag_ids_push(ids, id, NULL), AG_OK);
    return true;
}

static void random_answer(ag_constraint *c, const ag_tokenizer *t, const ag_chat_format *f,
                          const char *name, uint32_t *seed, ag_ids *ids) {
    const int32_t eos = ag_tokenizer_id(t, "<EOS>", 5);
    for (size_t i = 0; i < MAX_TOKENS; i++) {
        const bool closes = i > LONG || next_random(seed) % 8 == 0;
        if (closes && try_closing(c, t, &f->calls, ids)) continue;
        if (!random_step(c, name, seed, eos, ids)) return;
    }
    print_message("%s: the answer does not end\n", name);
    n_failures++;
}

/* ---- one template ---- */

typedef struct subject {
    const char *name;
    const ag_tokenizer *t;
    const ag_chat_format *f;
    ag_constraint_vocab *vocab;
    uint32_t seed;
} subject;

/* texts: the answer may have content besides the calls. */
static void check_answer(subject *s, ag_chat *c, const ag_ids *ids, const char *only, bool several,
                         bool texts, const char *grammar) {
    ag_text text = {0};
    ag_chat_parser *p;
    ag_error err = {0};
    assert_int_equal(ag_tokenizer_decode(s->t, ids->data, ids->n, true, &text, NULL), AG_OK);
    assert_int_equal(ag_chat_parser_create(c, &p, &err), AG_OK);
    for (size_t at = 0; at < text.len;) {
        size_t n = 1 + next_random(&s->seed) % 12;
        if (n > text.len - at) n = text.len - at;
        assert_int_equal(ag_chat_parser_push(p, text.data + at, n, &err), AG_OK);
        at += n;
    }
    assert_int_equal(ag_chat_parser_finish(p, &err), AG_OK);
    bool ok = (texts || p->content.len == 0) && (several ? p->n_calls > 0 : p->n_calls == 1);
    for (size_t i = 0; i < p->n_calls && ok; i++) {
        ok = is_valid(&p->calls[i]) && (!only || !strcmp(p->calls[i].name, only));
    }
    if (!ok) {
        n_failures++;
        print_message("%s%s%s: %s\n%s\ngives %zu calls, content \"%s\", first %s %s\n", s->name,
                      only ? " of " : "", only ? only : "", grammar, text.data, p->n_calls,
                      p->content.data ? p->content.data : "", p->n_calls ? p->calls[0].name : "",
                      p->n_calls && p->calls[0].arguments.data ? p->calls[0].arguments.data : "");
    }
    ag_chat_parser_destroy(p);
    ag_text_free(&text);
}

static void check_required(subject *s, const char *only, bool several, size_t n_answers) {
    static const char question[] = "[{\"role\": \"user\", \"content\": \"What now?\"}]";
    ag_chat *c;
    ag_error err = {0};
    ag_ids ids = {0};
    ag_text grammar = {0};
    assert_int_equal(ag_chat_create(s->f, &c, &err), AG_OK);
    const char *tools = tools_for(s->name);
    assert_int_equal(ag_chat_set_tools(c, tools, strlen(tools), &err), AG_OK);
    assert_int_equal(ag_chat_set_messages(c, question, strlen(question), &err), AG_OK);
    if (ag_chat_render(c, 0, &ids, NULL, &err) != AG_OK ||
        ag_chat_require_call(c, only, several ? AG_CHAT_SEVERAL_CALLS : 0, &ids, &grammar, &err)) {
        n_failures++;
        print_message("%s: %s\n", s->name, err.msg);
        ag_ids_free(&ids);
        ag_text_free(&grammar);
        ag_chat_destroy(c);
        return;
    }
    ag_constraint_params params = ag_constraint_defaults(AG_CONSTRAINT_GRAMMAR);
    params.text = grammar.data;
    params.len = grammar.len;
    ag_constraint *constraint;
    if (ag_constraint_create(s->vocab, &params, &constraint, &err) != AG_OK) {
        fail_msg("%s: %s\n%s", s->name, err.msg, grammar.data);
    }
    const size_t before = n_failures;
    for (size_t i = 0; i < n_answers && n_failures == before; i++) {
        ag_ids answer = {0};
        assert_int_equal(ag_constraint_reset(constraint, &err), AG_OK);
        random_answer(constraint, s->t, s->f, s->name, &s->seed, &answer);
        check_answer(s, c, &answer, only, several, false, grammar.data);
        ag_ids_free(&answer);
    }
    ag_constraint_destroy(constraint);
    ag_text_free(&grammar);
    ag_ids_free(&ids);
    ag_chat_destroy(c);
}

/* ---- answers that need not call ---- */

static void put_text(subject *s, ag_constraint *c, const char *text, ag_ids *ids) {
    if (*text && !try_text(c, s->t, text, ids)) fail_msg("%s: \"%s\" is rejected", s->name, text);
}

/* Writes a call without delimiters as the template writes it, up to the name of a tool. */
static void bare_opening(const ag_call_format *f, const char *name, char *out, size_t size) {
    const char *at = strstr(f->object, AG_PROBE_TOOL);
    snprintf(out, size, "%.*s%s\"", (int)(at - f->object), f->object, name);
}

/* Appends what begins a call, the nth of the possible openings. Returns false if there are fewer.
 */
static bool put_opening(subject *s, ag_constraint *c, size_t nth, bool is_first, ag_ids *ids) {
    static const char *const headers[] = {
        " to=functions.list_files<|channel|>analysis<|message|>",
        "<|start|>assistant to=functions.list_files<|channel|>commentary <|constrain|>json",
        "<|channel|>analysis to=functions.list_files<|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.list_files json<|message|>",
    };
    enum { N_HEADERS = sizeof headers / sizeof *headers };
    const ag_call_format *f = &s->f->calls;
    char bare[256];
    size_t n_marks = 0;
    while (n_marks < AG_CALL_TRIGGERS && f->triggers[n_marks]) n_marks++;
    if (f->kind == AG_CALLS_HARMONY) {
        const char *const *opens;
        const size_t n = ag_call_harmony_opens(&opens);
        if (nth >= n + N_HEADERS) return false;
        put_text(s, c, nth < n ? opens[nth] : headers[nth - n], ids);
    } else if (nth < n_marks) {
        put_text(s, c, f->triggers[nth], ids);
    } else {
        static const char *const before[] = {"", "\n", "```json\n", "["};
        if (f->kind == AG_CALLS_PYTHON && f->is_bare && nth < 2 && is_first) {
            put_text(s, c, nth ? " [list_files(" : "[get_weather(", ids);
            return !ag_constraint_is_free(c);
        }
        if (f->kind != AG_CALLS_JSON || nth - n_marks > 3) return false;
        bare_opening(f, "list_files", bare, sizeof bare);
        put_text(s, c, before[nth - n_marks], ids);
        put_text(s, c, bare, ids);
    }
    if (ag_constraint_is_free(c)) fail_msg("%s: opening %zu does not fire", s->name, nth);
    return true;
}

static void put_rest_of_call(subject *s, ag_constraint *c, ag_ids *ids) {
    const int32_t eos = ag_tokenizer_id(s->t, "<EOS>", 5);
    for (size_t i = 0; !ag_constraint_is_free(c); i++) {
        if (i == MAX_TOKENS) fail_msg("%s: the call does not end", s->name);
        const bool closes = i > LONG || next_random(&s->seed) % 8 == 0;
        if (closes && try_closing(c, s->t, &s->f->calls, ids)) continue;
        if (!random_step(c, s->name, &s->seed, eos, ids)) return;
    }
}

/* Writes reasoning that mentions a call, if the prompt has opened it. */
static void put_reasoning(subject *s, ag_constraint *c, bool is_open, ag_ids *ids) {
    const char *trigger = s->f->calls.triggers[0];
    if (!is_open || s->f->calls.kind == AG_CALLS_HARMONY) return;
    put_text(s, c, "Maybe ", ids);
    if (trigger) put_text(s, c, trigger, ids);
    assert_true(ag_constraint_is_free(c));
    put_text(s, c, s->f->reasoning_close, ids);
    put_text(s, c, "\n\n", ids);
}

/* An answer: reasoning, text where `text`, a call in each possible way, text, and a second call. */
static bool free_answer(subject *s, ag_constraint *c, bool is_open, size_t nth, bool text,
                        ag_ids *ids) {
    const ag_call_format *f = &s->f->calls;
    const bool is_harmony = f->kind == AG_CALLS_HARMONY;
    assert_true(ag_constraint_is_free(c));
    put_reasoning(s, c, is_open, ids);
    /* Some models end reasoning that they have not begun. */
    if (!is_open && nth % 2 && !is_harmony && s->f->reasoning_close)
        put_text(s, c, s->f->reasoning_close, ids);
    if (text && (is_harmony || nth == AG_CALL_TRIGGERS || !f->triggers[nth])) return false;
    if (text) put_text(s, c, "Let me see. ", ids);
    if (!put_opening(s, c, nth, true, ids)) return false;
    put_rest_of_call(s, c, ids);
    if (!f->triggers[0] || is_harmony) return true;
    if (text) put_text(s, c, "\nAnd: ", ids);
    put_text(s, c, f->triggers[0], ids);
    put_rest_of_call(s, c, ids);
    return true;
}

static void check_free(subject *s, bool several) {
    static const char question[] = "[{\"role\": \"user\", \"content\": \"What now?\"}]";
    const char *tools = tools_for(s->name);
    ag_chat *c;
    ag_error err = {0};
    ag_ids ids = {0};
    const ag_constraint_params limits = ag_constraint_defaults(AG_CONSTRAINT_GRAMMAR);
    ag_constraint *constraint;
    assert_int_equal(ag_chat_create(s->f, &c, &err), AG_OK);
    assert_int_equal(ag_chat_set_tools(c, tools, strlen(tools), &err), AG_OK);
    assert_int_equal(ag_chat_set_messages(c, question, strlen(question), &err), AG_OK);
    assert_int_equal(ag_chat_render(c, 0, &ids, NULL, &err), AG_OK);
    assert_int_equal(ag_chat_constrain_calls(c, s->vocab, &limits,
                                             several ? AG_CHAT_SEVERAL_CALLS : 0, &constraint,
                                             &err),
                     AG_OK);
    if (!constraint) fail_msg("%s: its calls cannot be constrained", s->name);
    for (int text = 0; text < 2; text++) {
        bool more = true;
        for (size_t nth = 0; more; nth++) {
            ag_ids answer = {0};
            assert_int_equal(ag_constraint_reset(constraint, &err), AG_OK);
            more = free_answer(s, constraint, c->starts_in_reasoning, nth, text, &answer);
            if (more) check_answer(s, c, &answer, NULL, true, true, "");
            ag_ids_free(&answer);
        }
    }
    ag_constraint_destroy(constraint);
    ag_ids_free(&ids);
    ag_chat_destroy(c);
}

/* special: all delimiters of the template are special tokens; else two in three are. */
static void check_template(const char *path, const char *name, bool special) {
    size_t n;
    char *jinja = read_template(path, &n);
    spelling_list l = {0};
    add_spelling(&l, "<BOS>", 5);
    add_spelling(&l, "<EOS>", 5);
    collect_spellings(&l, jinja);
    static const char *const harmony[] = {"<|constrain|>", "<|message|>", "<|channel|>"};
    for (size_t i = 0; i < 3 && strstr(jinja, "<|channel|>"); i++) {
        add_spelling(&l, harmony[i], strlen(harmony[i]));
    }
    if (strstr(jinja, "<|\"|>")) add_spelling(&l, "<|\"|>", 5);
    ag_tokenizer *t = tokenizer_with(&l, special ? NULL : jinja);
    ag_chat_format *f = format_of(path, t);
    const int32_t eos = ag_tokenizer_id(t, "<EOS>", 5);
    subject s = {.name = name, .t = t, .f = f, .seed = 17};
    assert_int_equal(ag_constraint_vocab_create(t, N_VOCAB, &eos, 1, &s.vocab, NULL), AG_OK);
    check_required(&s, NULL, false, 6);
    check_required(&s, "get_weather", false, 4);
    check_required(&s, "list_files", true, 4);
    check_required(&s, NULL, true, 4);
    check_free(&s, false);
    check_free(&s, true);
    ag_constraint_vocab_destroy(s.vocab);
    ag_chat_format_destroy(f);
    ag_tokenizer_destroy(t);
    free_spellings(&l);
    ag_free(jinja);
}

static void check_both_ways(const char *path, const char *name) {
    check_template(path, name, true);
    check_template(path, name, false);
}

/* Calls are lists of code without delimiters. */
static const char bare_code[] =
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if m.tool_calls %}[{% for c in "
    "m.tool_calls %}{{ c.function.name }}({% for k, v in c.function.arguments.items() %}{{ k }}={{ "
    "v "
    "| tojson }}{{ ', ' if not loop.last else '' }}{% endfor %}){{ ', ' if not loop.last else '' }}"
    "{% endfor %}]{% endif %}<|end|>{% endfor %}{{ '<|assistant|>' if add_generation_prompt else "
    "'' }}";

static void grammars_of_bare_code_admit_only_valid_calls(void **state) {
    char path[] = "/tmp/ag-chat-calls-XXXXXX";
    (void)state;
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bare_code, sizeof bare_code - 1), sizeof bare_code - 1);
    close(fd);
    ag_chat_format *f = format_of(path, NULL);
    assert_int_equal(f->calls.kind, AG_CALLS_PYTHON);
    assert_true(f->calls.is_bare && f->has_detected_calls);
    ag_chat_format_destroy(f);
    check_template(path, "bare code", true);
    unlink(path);
    assert_int_equal(n_failures, 0);
}

static void grammars_admit_only_valid_calls(void **state) {
    (void)state;
    assert_int_equal(check_templates_in(DATA, check_both_ways), 6);
    assert_int_equal(check_templates_in(DATA "invented/", check_both_ways), 10);
    if (check_templates_in(SHARED, check_both_ways) == 0)
        print_message("the real templates are not here\n");
    assert_int_equal(n_failures, 0);
}

/* ---- start of a call, and errors ---- */

static ag_chat *chat_with_question(const ag_chat_format *f, const char *tools) {
    ag_ids ids = {0};
    ag_chat *c = chat_of(f, "[{'role': 'user', 'content': 'a'}]", tools);
    assert_int_equal(ag_chat_render(c, 0, &ids, NULL, NULL), AG_OK);
    ag_ids_free(&ids);
    return c;
}

#define TWO_TOOLS                                                                             \
    "[{\"name\": \"f\", \"parameters\": {\"$ref\": \"#/$defs/x\", \"$defs\": {\"x\": {}}}}, " \
    "{\"name\": \"g\"}]"

static void check_start(const char *file, const char *name, bool repeats, const char *begins,
                        const char *grammar) {
    char path[512];
    snprintf(path, sizeof path, DATA "%s.jinja", file);
    ag_tokenizer *t = small_tokenizer();
    ag_chat_format *f = format_of(path, t);
    ag_chat *c = chat_with_question(f, TWO_TOOLS);
    ag_ids ids = {0};
    ag_text got = {0}, text = {0};
    assert_int_equal(ag_chat_require_call(c, "h", 0, &ids, &got, NULL), AG_NOT_FOUND);
    assert_int_equal(ids.n + got.len, 0);
    assert_int_equal(ag_chat_require_call(c, name, 0, &ids, &got, NULL), AG_OK);
    assert_string_equal(got.data, grammar);
    assert_int_equal(ag_tokenizer_decode(t, ids.data, ids.n, true, &text, NULL), AG_OK);
    assert_string_equal(text.data ? text.data : "", begins);
    assert_int_equal(ag_chat_format_repeats_calls(f), repeats);
    ag_text_free(&got);
    ag_text_free(&text);
    ag_ids_free(&ids);
    ag_chat_destroy(c);
    ag_chat_format_destroy(f);
    ag_tokenizer_destroy(t);
}

static void begins_calls_as_the_template_does(void **state) {
    (void)state;
    check_start("objects", "f", true, "<call>\n",
                "root ::= call \ncall ::= tool \"\\n\" <[1006]> \ntool ::= %json "
                "{\"type\":\"object\",\"properties\":{\"name\":{"
                "\"const\":\"f\"},\"arguments\":{\"$ref\":\"#/properties/arguments/$defs/x\","
                "\"$defs\":{\"x\":{}},\"type\":\"object\"}},\"required\":[\"name\",\"arguments\"],"
                "\"additionalProperties\":false} \n");
    check_start("text_arguments", NULL, true, "[CALLS]",
                "root ::= call \ncall ::= tool \ntool ::= \"f\" \"[ID]\" [a-zA-Z0-9]{9} \"[ARGS]\" "
                "%json {\"$ref\":"
                "\"#/$defs/x\",\"$defs\":{\"x\":{}},\"type\":\"object\"} | \"g\" \"[ID]\" "
                "[a-zA-Z0-9]{9} \"[ARGS]\" %json {\"type\":\"object\"} \n");
    check_start("tags", "g", true, "</think>\n\n\n<fn=",
                "root ::= call \ncall ::= tool \"</fn>\" \ntool ::= \"g\" \">\\n\" %tags(\"<arg=\" "
                ", \">\\n\" , \"<arg=\" , \">\\n\" , "
                "\"\\n</arg>\\n\" , , \"^<!\\\\[CDATA\\\\[|\\\\<\\\\/arg\\\\>\" ) "
                "{\"type\":\"object\"} \n");
}

static void rejects_calls_that_cannot_be_constrained(void **state) {
    (void)state;
    static const struct {
        const char *file, *tools;
        ag_status status;
        const char *message;
    } bad[] = {
        {"objects", NULL, AG_NOT_FOUND, "there are no tools"},
        {"objects", "[{\"name\": \"f\", \"parameters\": {\"type\": \"array\"}}]", AG_INVALID,
         "tool \"f\": its parameters have type array"},
        {"tags", "[{\"name\": \"f g\"}]", AG_UNSUPPORTED,
         "tool \"f g\": cannot constrain a call: the name needs quotes"},
    };
    ag_tokenizer *t = small_tokenizer();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char path[512];
        snprintf(path, sizeof path, DATA "%s.jinja", bad[i].file);
        ag_chat_format *f = format_of(path, t);
        ag_chat *c = chat_with_question(f, bad[i].tools);
        ag_ids ids = {0};
        ag_text grammar = {0};
        ag_error err = {.msg = ""};
        assert_int_equal(ag_chat_require_call(c, NULL, 0, &ids, &grammar, &err), bad[i].status);
        if (!strstr(err.msg, bad[i].message)) fail_msg("%s", err.msg);
        assert_int_equal(ids.n + grammar.len, 0);
        ag_text_free(&grammar);
        ag_ids_free(&ids);
        ag_chat_destroy(c);
        ag_chat_format_destroy(f);
    }
    ag_tokenizer_destroy(t);
}

/* Tools are in the prompt, but tool_choice is "none". */
static void finds_no_calls_when_tool_choice_is_none(void **state) {
    (void)state;
    static const char answer[] = "So:\n<call>\n{\"name\": \"f\", \"arguments\": {}}\n</call>";
    ag_chat_format *f = format_of(DATA "objects.jinja", NULL);
    ag_chat *c = chat_of(f, "[{'role': 'user', 'content': 'a'}]", TWO_TOOLS);
    for (int with_calls = 0; with_calls < 2; with_calls++) {
        ag_chat_parser *p;
        ag_text prompt = {0};
        assert_int_equal(ag_chat_render(c, with_calls ? 0 : AG_CHAT_NO_CALLS, NULL, &prompt, NULL),
                         AG_OK);
        assert_non_null(strstr(prompt.data, "\"g\""));
        assert_int_equal(ag_chat_parser_create(c, &p, NULL), AG_OK);
        assert_int_equal(ag_chat_parser_push(p, answer, sizeof answer - 1, NULL), AG_OK);
        assert_int_equal(ag_chat_parser_finish(p, NULL), AG_OK);
        assert_int_equal(ag_chat_parser_n_calls(p), with_calls);
        if (!with_calls) assert_string_equal(p->content.data, answer);
        ag_chat_parser_destroy(p);
        ag_text_free(&prompt);
    }
    ag_chat_destroy(c);
    ag_chat_format_destroy(f);
}

static void reports_every_failed_allocation(void **state) {
    (void)state;
    static const char *const files[] = {"objects", "text_arguments", "tags"};
    ag_tokenizer *t = small_tokenizer();
    for (size_t i = 0; i < 3; i++) {
        char path[512];
        snprintf(path, sizeof path, DATA "%s.jinja", files[i]);
        ag_chat_format *f = format_of(path, t);
        ag_chat *c = chat_with_question(f, TWO_TOOLS);
        bool failed = true;
        for (size_t nth = 0; failed; nth++) {
            failing_allocator failing;
            ag_ids ids = {0};
            ag_text grammar = {0};
            ag_text_free(&c->call_prefix);
            failing_install(&failing, nth);
            const ag_status st =
                ag_chat_require_call(c, NULL, AG_CHAT_SEVERAL_CALLS, &ids, &grammar, NULL);
            failed = atomic_load(&failing.failed);
            assert_int_equal(st, failed ? AG_NOMEM : AG_OK);
            if (failed) assert_int_equal(ids.n + grammar.len, 0);
            ag_ids_free(&ids);
            ag_text_free(&grammar);
            ag_text_free(&c->call_prefix);
            assert_int_equal(atomic_load(&failing.in_use), 0);
            ag_set_allocator(NULL);
        }
        ag_chat_destroy(c);
        ag_chat_format_destroy(f);
    }
    ag_tokenizer_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grammars_admit_only_valid_calls),
        cmocka_unit_test(grammars_of_bare_code_admit_only_valid_calls),
        cmocka_unit_test(begins_calls_as_the_template_does),
        cmocka_unit_test(rejects_calls_that_cannot_be_constrained),
        cmocka_unit_test(finds_no_calls_when_tool_choice_is_none),
        cmocka_unit_test(reports_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
