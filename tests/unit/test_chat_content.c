/* SPDX-License-Identifier: Apache-2.0 */
/* A constraint of the content of an answer leaves reasoning and calls free, for formats with
 * channels. */
#include "constrain/constraint.h"
#include "support/chat_formats.h"

#include <antigravity/constrain.h>

enum { N_VOCAB = 2048 };

static const char tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"list_files\", \"description\": "
    "\"Lists\", "
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"path\": {\"type\": \"string\", "
    "\"pattern\": \"^/[a-z/]*$\", \"description\": \"d\"}}, \"required\": [\"path\"], "
    "\"additionalProperties\": false}}}]";

/* Returns whether the constraint allows the text, which may end there. */
static bool matches(ag_constraint *c, const ag_tokenizer *t, const char *text) {
    ag_ids ids = {0};
    assert_int_equal(ag_constraint_reset(c, NULL), AG_OK);
    assert_int_equal(
        ag_tokenizer_encode(t, text, strlen(text), AG_ENCODE_PARSE_SPECIAL, &ids, NULL), AG_OK);
    bool ok = true;
    for (size_t i = 0; i < ids.n && ok; i++)
        ok = ag_constraint_accept(c, ids.data[i], NULL) == AG_OK;
    ag_ids_free(&ids);
    return ok && ag_constraint_may_end(c);
}

#define THOUGHT "<|channel|>analysis<|message|>So: 1 << 2 \n<|end|><|start|>assistant"
#define FINAL "<|channel|>final<|message|>"
#define CALL_OPEN "<|channel|>commentary to=functions.list_files <|constrain|>json<|message|>"

static const struct {
    const char *text;
    bool without_tools, with_tools; /* the text is allowed, and may end */
} contents[] = {
    {FINAL "{\"a\": 1}", true, true},
    {THOUGHT THOUGHT FINAL "{\"a\": 1}", true, true},
    {THOUGHT "<|channel|>final <|constrain|>json<|message|>{\"a\": 1}", true, true},
    {"{\"a\": 1}", false, false},
    {FINAL "{\"a\": \"1\"}", false, false},
    {FINAL "{\"a\": 1} ", false, false},
    {THOUGHT, false, false},
    {"<|channel|>commentary<|message|>{\"a\": 1}", false, false},
    {THOUGHT CALL_OPEN "{\"path\": \"/a\"}", false, true},
    {" to=functions.list_files<|channel|>commentary json<|message|>{\"path\": \"/a\"}", false,
     true},
    {CALL_OPEN "{\"path\": \"a\"}", false, false},
    {CALL_OPEN "{\"a\": 1}", false, false},
};

static void check_contents(const ag_chat_format *f, const ag_tokenizer *t,
                           const ag_constraint_vocab *vocab, bool with_tools) {
    static const char schema[] = "{\"properties\": {\"a\": {\"$ref\": \"#/$defs/n\"}}, "
                                 "\"required\": [\"a\"], \"type\": \"object\", "
                                 "\"$defs\": {\"n\": {\"type\": \"integer\"}}}";
    ag_constraint_params p = ag_constraint_defaults(AG_CONSTRAINT_JSON_SCHEMA);
    ag_chat *c = chat_of(f, "[{'role': 'user', 'content': 'a'}]", with_tools ? tools : NULL);
    ag_constraint *x;
    ag_ids ids = {0};
    ag_error err = {0};
    p.text = schema;
    p.len = strlen(schema);
    p.closed_objects = true;
    assert_int_equal(ag_chat_render(c, 0, &ids, NULL, NULL), AG_OK);
    if (ag_chat_constrain_content(c, vocab, &p, &x, &err) != AG_OK) fail_msg("%s", err.msg);
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
        const bool wanted = with_tools ? contents[i].with_tools : contents[i].without_tools;
        if (matches(x, t, contents[i].text) != wanted)
            fail_msg("%s is %s", contents[i].text, wanted ? "rejected" : "allowed");
    }
    ag_constraint_destroy(x);
    p.len--;
    assert_int_equal(ag_chat_constrain_content(c, vocab, &p, &x, &err), AG_FORMAT);
    ag_ids_free(&ids);
    ag_chat_destroy(c);
}

/* A regular expression, and a grammar whose rules are named as those of the format. */
static void check_other_notations(const ag_chat_format *f, const ag_tokenizer *t,
                                  const ag_constraint_vocab *vocab) {
    static const struct {
        ag_constraint_kind kind;
        const char *text;
    } notations[] = {
        {AG_CONSTRAINT_REGEX, "\\d{2}"},
        {AG_CONSTRAINT_GRAMMAR, "root ::= thought final\nthought ::= [0-9]\nfinal ::= [0-9]"}};
    static const struct {
        const char *text;
        bool allowed;
    } answers[] = {{FINAL "12", true},
                   {THOUGHT FINAL "12", true},
                   {THOUGHT CALL_OPEN "{\"path\": \"/a\"}", true},
                   {FINAL "1", false},
                   {FINAL "1a", false},
                   {"12", false}};
    ag_chat *c = chat_of(f, "[{'role': 'user', 'content': 'a'}]", tools);
    ag_ids ids = {0};
    assert_int_equal(ag_chat_render(c, 0, &ids, NULL, NULL), AG_OK);
    for (size_t n = 0; n < sizeof notations / sizeof *notations; n++) {
        ag_constraint_params p = ag_constraint_defaults(notations[n].kind);
        ag_constraint *x;
        ag_error err = {0};
        p.text = notations[n].text;
        p.len = strlen(p.text);
        if (ag_chat_constrain_content(c, vocab, &p, &x, &err) != AG_OK) fail_msg("%s", err.msg);
        for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
            const bool allowed = matches(x, t, answers[i].text);
            if (allowed != answers[i].allowed)
                fail_msg("%s: %s is %s", p.text, answers[i].text, allowed ? "allowed" : "rejected");
        }
        ag_constraint_destroy(x);
    }
    ag_ids_free(&ids);
    ag_chat_destroy(c);
}

/* A text that does not compile fails with its own message, with tools and without. */
static void check_wrong_texts(const ag_chat_format *f, const ag_constraint_vocab *vocab) {
    static const struct {
        ag_constraint_kind kind;
        const char *text;
    } wrong[] = {{AG_CONSTRAINT_REGEX, "a(b"}, {AG_CONSTRAINT_GRAMMAR, "root ::= absent"}};
    for (size_t i = 0; i < 2 * sizeof wrong / sizeof *wrong; i++) {
        ag_chat *c = chat_of(f, "[{'role': 'user', 'content': 'a'}]", i % 2 ? tools : NULL);
        ag_constraint_params p = ag_constraint_defaults(wrong[i / 2].kind);
        ag_constraint *x;
        ag_error own = {0}, err = {0};
        p.text = wrong[i / 2].text;
        p.len = strlen(p.text);
        const ag_status st = ag_constraint_create(vocab, &p, &x, &own);
        assert_int_not_equal(st, AG_OK);
        assert_int_equal(ag_chat_constrain_content(c, vocab, &p, &x, &err), st);
        assert_null(x);
        assert_string_equal(err.msg, own.msg);
        ag_chat_destroy(c);
    }
}

static void only_the_final_message_is_constrained(void **state) {
    static const char *const spellings[] = {"<EOS>",       "<|start|>", "<|channel|>",
                                            "<|message|>", "<|end|>",   "<|constrain|>"};
    (void)state;
    spelling_list l = {0};
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
        add_spelling(&l, spellings[i], strlen(spellings[i]));
    ag_tokenizer *t = tokenizer_with(&l, NULL);
    ag_chat_format *f = format_of(DATA "channels.jinja", t),
                   *other = format_of(DATA "objects.jinja", t);
    const int32_t eos = ag_tokenizer_id(t, "<EOS>", 5);
    ag_constraint_vocab *vocab;
    ag_constraint *none;
    assert_int_equal(ag_constraint_vocab_create(t, N_VOCAB, &eos, 1, &vocab, NULL), AG_OK);
    check_contents(f, t, vocab, false);
    check_contents(f, t, vocab, true);
    check_other_notations(f, t, vocab);
    check_wrong_texts(f, vocab);
    const ag_constraint_params p = ag_constraint_defaults(AG_CONSTRAINT_JSON_OBJECT);
    ag_chat *c = chat_of(other, "[{'role': 'user', 'content': 'a'}]", NULL);
    assert_int_equal(ag_chat_constrain_content(c, vocab, &p, &none, NULL), AG_OK);
    assert_null(none);
    ag_chat_destroy(c);
    /* A tool that no grammar can name does not reject the constraint of the content. */
    c = chat_of(
        f, "[{'role': 'user', 'content': 'a'}]",
        "[{\"type\": \"function\", \"function\": {\"name\": \"my tool\", \"parameters\": {}}}]");
    ag_constraint *x;
    assert_int_equal(ag_chat_constrain_content(c, vocab, &p, &x, NULL), AG_OK);
    assert_non_null(x);
    ag_constraint_destroy(x);
    ag_chat_destroy(c);
    ag_constraint_vocab_destroy(vocab);
    ag_chat_format_destroy(f);
    ag_chat_format_destroy(other);
    ag_tokenizer_destroy(t);
    free_spellings(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(only_the_final_message_is_constrained)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
