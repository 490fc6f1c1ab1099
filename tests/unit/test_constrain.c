/* SPDX-License-Identifier: Apache-2.0 */
/* Constraints without schemas: regular expressions, choices, grammars, any JSON object; masks
 * against ag_constraint_accept(), clones, forced text, the sampler's filter. */
#include "constrain_texts.h"
#include "support/failing_allocator.h"
#include "support/stride.h"

#include <time.h>

static ag_constraint *regex_constraint(const char *regex) {
    const ag_constraint_params p = texts_params(AG_CONSTRAINT_REGEX, regex);
    return texts_create(&p);
}

typedef struct regex_case {
    const char *regex;
    const char *yes[6], *no[6];
} regex_case;

static const regex_case regex_cases[] = {
    {"abc", {"abc"}, {"", "ab", "abcd", "x"}},
    {"a|bc|", {"a", "bc", ""}, {"b", "abc"}},
    {"^a+b*$", {"a", "aab", "abbb"}, {"", "b", "aba"}},
    {"[a-c]{2,3}", {"ab", "cab"}, {"a", "abca", "ad"}},
    {"[^a-c\\d]", {"x", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "-"}, {"a", "5", "", "xx"}},
    {"(ab){2}|c{3,}", {"abab", "ccc", "ccccc"}, {"ab", "cc", "ababab"}},
    {"\\d{4}-\\d\\d", {"2026-11"}, {"202-11", "2026-1", "2026-111"}},
    {"(?=.*x)[a-z]{3}", {"xab", "abx"}, {"abc", "abxd"}},
    {"^(?!ab)[a-z]+$", {"ba", "a", "ac"}, {"ab", "abc"}},
    {"\\u00e9\\x41\\t",
     {"\xC3\xA9"
      "A\t"},
     {"eA\t"}},
    {"\\p{Lu}\\p{L}*", {"Abc", "\xC3\x89t\xC3\xA9"}, {"abc", "A1"}},
    {"a.c",
     {"abc", "a\xC3\xA9"
             "c"},
     {"a\nc", "ac"}},
    {"(?:a(?<name>b))?c", {"abc", "c"}, {"ac", "bc"}},
    {"[\\w-]+@[\\w.]+", {"a-b@c.d", "_@x"}, {"@x", "a@", "a b@c"}},
    {"x{,3}", {"x{,3}"}, {"xx"}},
    {"a{0}b", {"b"}, {"ab"}},
    {"(a*)*b", {"b", "aaab"}, {"a", "ba"}},
};

static void regex_accepts_only_matches(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof regex_cases / sizeof regex_cases[0]; i++) {
        const regex_case *r = &regex_cases[i];
        ag_constraint *c = regex_constraint(r->regex);
        for (size_t k = 0; k < 6 && r->yes[k]; k++) texts_expect(c, r->yes[k], true);
        for (size_t k = 0; k < 6 && r->no[k]; k++) texts_expect(c, r->no[k], false);
        ag_constraint_destroy(c);
    }
}

typedef struct bad_case {
    const char *text;
    ag_status status;
    const char *message;
} bad_case;

static const bad_case bad_regexes[] = {
    {"a(b", AG_FORMAT, "byte 1: ( without )"},
    {"a)b", AG_FORMAT, "byte 1: ) without ("},
    {"[a", AG_FORMAT, "byte 0: [ without ]"},
    {"*a", AG_FORMAT, "nothing to repeat"},
    {"a{3,2}", AG_FORMAT, "the minimum 3 exceeds the maximum 2"},
    {"[z-a]", AG_FORMAT, "invalid character range"},
    {"a\\", AG_FORMAT, "nothing follows the backslash"},
    {"\\bab", AG_UNSUPPORTED, "\\b is not supported"},
    {"(a)\\1", AG_UNSUPPORTED, "references to groups"},
    {"(?<=a)b", AG_UNSUPPORTED, "lookbehind"},
    {"a(?=b)c", AG_UNSUPPORTED, "lookahead"},
    {"\\p{Klingon}", AG_UNSUPPORTED, "\\p{Klingon}"},
    {"\\xG0", AG_FORMAT, "two hexadecimal"},
    {"a\xFF", AG_FORMAT, "byte 1: invalid UTF-8"},
    {"a\\u12", AG_FORMAT, "four hexadecimal"},
    {"a{100001}", AG_LIMIT, "100000 repetitions"},
    {"(a{1000}){1000}", AG_LIMIT, "too large"},
    {"[a-z]{90000}", AG_LIMIT, ""},
    {"(a|b)*a(a|b){40}", AG_LIMIT, ""},
    {"(?!a)", AG_OK, ""},
    {"(){99999}{99999}{99999}", AG_LIMIT, "too expensive"},
    {"a????????", AG_OK, ""},
    {"((a*{2}*{2}*{2}*{2})+*+*+*+*+*)", AG_LIMIT, "more than 8 quantifiers"},
    {"[^\\d\\D]", AG_INVALID, "no text matches"},
};

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void rejects_bad_regexes_with_a_reason(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_regexes / sizeof bad_regexes[0]; i++) {
        const bad_case *b = &bad_regexes[i];
        const ag_constraint_params p = texts_params(AG_CONSTRAINT_REGEX, b->text);
        ag_constraint *c;
        ag_error err = {.msg = ""};
        const double start = seconds();
        const ag_status st = ag_constraint_create(texts_vocab, &p, &c, &err);
        if (st != b->status || !strstr(err.msg, b->message)) {
            fail_msg("%s: %s: %s", b->text, ag_status_name(st), err.msg);
        }
        assert_true(seconds() - start < 20); /* about 1 s on an idle machine */
        ag_constraint_destroy(c);
    }
}

static void choices_accept_only_listed_texts(void **state) {
    (void)state;
    const char *choices[] = {"yes", "no", "not sure", "\xC3\xA9t\xC3\xA9"};
    ag_constraint_params p = ag_constraint_defaults(AG_CONSTRAINT_CHOICES);
    p.choices = choices;
    p.n_choices = 4;
    ag_constraint *c = texts_create(&p);
    for (size_t i = 0; i < 4; i++) texts_expect(c, choices[i], true);
    texts_expect(c, "not", false);
    texts_expect(c, "yess", false);
    texts_expect(c, "", false);
    ag_error err;
    assert_int_equal(ag_constraint_reset(c, &err), AG_OK);
    texts_check_mask(c);
    ag_constraint_destroy(c);
    p.n_choices = 0;
    assert_int_equal(ag_constraint_create(texts_vocab, &p, &c, &err), AG_INVALID);
    choices[1] = "";
    p.n_choices = 4;
    assert_int_equal(ag_constraint_create(texts_vocab, &p, &c, &err), AG_INVALID);
    assert_non_null(strstr(err.msg, "choice 2 of 4"));
}

static const char *const objects[] = {
    "{}",
    "{\"a\":1}",
    "{\"a\": [1, 2.5e-3, -0, true, false, null, \"x\\n\\u00e9\\ud83d\\ude00\"]}",
    "{ \"a\": {\n\t\"b\": []\n }, \"c\": [{}, [[]]] }",
    "{\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\":\"\"}",
};
static const char *const no_objects[] = {
    "",    "[]",         "1",          "{\"a\":01}",          "{\"a\"}",        "{a:1}",
    "{,}", "{\"a\":1,}", "{\"a\":1.}", "{\"a\":\"\\x\"}",     "{\"a\":\"\n\"}", "{\"a\":1}}",
    " {}", "{\"a\" :1}", "{}\n",       "{\"a\":\"\\ud800\"}", "{\"a\":+1}",     "{\"a\":tru}",
};

static void json_object_accepts_any_object(void **state) {
    (void)state;
    const ag_constraint_params p = texts_params(AG_CONSTRAINT_JSON_OBJECT, NULL);
    ag_constraint *c = texts_create(&p);
    for (size_t i = 0; i < sizeof objects / sizeof objects[0]; i++) {
        texts_expect(c, objects[i], true);
    }
    for (size_t i = 0; i < sizeof no_objects / sizeof no_objects[0]; i++) {
        texts_expect(c, no_objects[i], false);
    }
    ag_constraint_destroy(c);
}

typedef struct grammar_case {
    const char *grammar;
    const char *yes[5], *no[5];
} grammar_case;

static const grammar_case grammars[] = {
    {"root ::= \"a\" root | \"b\"", {"b", "ab", "aaab"}, {"a", "", "ba"}},
    /* left recursion, and empty rules */
    {"root ::= root \"a\" | empty \"b\" empty\nempty ::= \"\"", {"b", "baa"}, {"a", "ab", ""}},
    /* each way to read a sum */
    {"root ::= root \"+\" root | [0-9]", {"1", "1+2", "1+2+3+4+5"}, {"+", "1+", "12"}},
    {"# of several lines\nroot ::= (\n  \"x\" | # a comment\n  num\n) ws\n\nnum ::= \"-\"? "
     "[1-9] [0-9]{0,2}\n  | \"0\"\nws ::= ([ \\t\\n] ws)?",
     {"x", "-120  ", "0\n", "7"},
     {"1234", "-0", "x x", "y"}},
    {"root ::= [^\"\\\\] \"\\\"\" \"\\x41\\u00e9\" .",
     {"z\"A\xC3\xA9\xE2\x82\xAC"},
     {"\"\"A", "z"}},
    {"root ::= item{2,3}\nitem ::= \"ab\" | \"c\"+",
     {"abab", "cc", "cccccc", "abcab"},
     {"ab", "", "abababab"}},
    {"root ::= \"(\" root \")\" root | \"\"", {"", "()", "(())()", "((()))"}, {"(", ")(", "(()"}},
};

static const struct {
    const char *grammar, *message;
} bad_grammars[] = {
    {"", "rule root is not defined"},
    {"a ::= \"x\"", "rule root is not defined"},
    {"root ::= other", "line 1: rule other is not defined"},
    {"root ::= \"a\"\nroot ::= \"b\"", "line 2: rule root is defined twice"},
    {"root ::= \"a", "line 1: the line ends"},
    {"root ::= (\"a\"", "( without )"},
    {"root = \"a\"", "expected ::="},
    {"root ::= \"a\"{3,1}", "the minimum exceeds the maximum"},
    {"root ::= \"\\q\"", "invalid escape"},
    {"root ::= [z-a]", "invalid character range"},
    {"root ::= \"a\"*********", "too many quantifiers"},
    {"root ::= \"a\" }", "unexpected text"},
};

static void grammar_accepts_only_its_texts(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof grammars / sizeof grammars[0]; i++) {
        const ag_constraint_params p = texts_params(AG_CONSTRAINT_GRAMMAR, grammars[i].grammar);
        ag_constraint *c = texts_create(&p);
        for (size_t k = 0; k < 5 && grammars[i].yes[k]; k++) {
            texts_expect(c, grammars[i].yes[k], true);
        }
        for (size_t k = 0; k < 5 && grammars[i].no[k]; k++) {
            texts_expect(c, grammars[i].no[k], false);
        }
        ag_error err;
        assert_int_equal(ag_constraint_reset(c, &err), AG_OK);
        texts_check_mask(c);
        ag_constraint_destroy(c);
    }
    for (size_t i = 0; i < sizeof bad_grammars / sizeof bad_grammars[0]; i++) {
        const ag_constraint_params p = texts_params(AG_CONSTRAINT_GRAMMAR, bad_grammars[i].grammar);
        ag_constraint *c;
        ag_error err;
        assert_int_equal(ag_constraint_create(texts_vocab, &p, &c, &err), AG_FORMAT);
        if (!strstr(err.msg, bad_grammars[i].message)) {
            fail_msg("%s: %s", bad_grammars[i].grammar, err.msg);
        }
    }
}

/* Stacked quantifiers, and repetitions of the empty text. */
static void rejects_stacked_quantifiers(void **state) {
    (void)state;
    enum { STARS = 200000 };
    char *text = malloc(STARS + 16);
    assert_non_null(text);
    for (int grammar = 0; grammar < 2; grammar++) {
        const size_t n = (size_t)sprintf(text, "%s", grammar ? "root ::= \"a\"" : "a");
        memset(text + n, '*', STARS);
        text[n + STARS] = '\0';
        const ag_constraint_params p =
            texts_params(grammar ? AG_CONSTRAINT_GRAMMAR : AG_CONSTRAINT_REGEX, text);
        ag_constraint *c;
        ag_error err;
        assert_int_equal(ag_constraint_create(texts_vocab, &p, &c, &err),
                         grammar ? AG_FORMAT : AG_LIMIT);
        assert_non_null(strstr(err.msg, "quantifiers"));
    }
    free(text);
    const ag_constraint_params p =
        texts_params(AG_CONSTRAINT_GRAMMAR, "root ::= \"\"{99999}{99999}{99999}");
    ag_constraint *c;
    ag_error err;
    assert_int_equal(ag_constraint_create(texts_vocab, &p, &c, &err), AG_LIMIT);
    assert_non_null(strstr(err.msg, "nodes to write"));
}

/* The time to find a rule does not depend on the number of rules, nor memory on the number of
 * classes. */
static void compiles_large_inputs_quickly(void **state) {
    (void)state;
    enum { RULES = 60000, CLASSES = 20000 };
    char *text = malloc((size_t)RULES * 40), *at = text;
    assert_non_null(text);
    at += sprintf(at, "root ::= \"a\"\n");
    for (int i = 1; i < RULES; i++) at += sprintf(at, "r%d ::= r%d\n", i, i + 1);
    sprintf(at, "r%d ::= \"a\"\n", RULES);
    const double start = seconds();
    ag_constraint_params p = texts_params(AG_CONSTRAINT_GRAMMAR, text);
    ag_constraint_destroy(texts_create(&p));
    assert_true(seconds() - start < 3);
    at = text;
    for (int i = 0; i < CLASSES; i++) at += sprintf(at, "%s", i ? "|\\p{L}" : "\\p{L}");
    p = texts_params(AG_CONSTRAINT_REGEX, text);
    ag_constraint *c;
    ag_error err;
    assert_int_equal(ag_constraint_create(texts_vocab, &p, &c, &err), AG_LIMIT);
    free(text);
}

/* Right recursion over a long text needs no stack per character. Ambiguity ends in an error. */
static void handles_long_and_ambiguous_texts(void **state) {
    (void)state;
    const ag_constraint_params p =
        texts_params(AG_CONSTRAINT_GRAMMAR, "root ::= \"a\" root | \"b\"");
    ag_constraint *c = texts_create(&p);
    ag_error err;
    for (int i = 0; i < 20000; i++) {
        assert_int_equal(ag_constraint_accept(c, texts_byte_id('a'), &err), AG_OK);
    }
    assert_int_equal(ag_constraint_accept(c, texts_byte_id('b'), &err), AG_OK);
    assert_true(ag_constraint_may_end(c));
    ag_constraint_destroy(c);
    const ag_constraint_params q =
        texts_params(AG_CONSTRAINT_GRAMMAR, "root ::= root root root | root root | \"a\" | \"\"");
    c = texts_create(&q);
    ag_status st = AG_OK;
    for (size_t i = 0; i < test_rounds(300) && st == AG_OK; i++) {
        st = ag_constraint_accept(c, texts_byte_id('a'), &err);
    }
    assert_true(st == AG_OK || st == AG_LIMIT);
    ag_constraint_destroy(c);
}

static void applies_the_requested_spacing(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool holds[3]; /* NEAT, COMPACT, ANY_SPACE */
    } cases[] = {
        {"{\"a\":[1,2]}", {true, true, true}},
        {"{\"a\": [1, 2]}", {true, false, true}},
        {"{\n  \"a\": [\n    1\n  ]\n}", {true, false, true}},
        {"{\"a\":  1}", {false, false, true}},
        {"{\n\n\"a\": 1}", {false, false, true}},
        {"{\"a\":\r\n\t 1}", {false, false, true}},
    };
    for (int spacing = 0; spacing < 3; spacing++) {
        ag_constraint_params p = texts_params(AG_CONSTRAINT_JSON_OBJECT, NULL);
        p.spacing = (ag_json_spacing)spacing;
        ag_constraint *c = texts_create(&p);
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            texts_expect(c, cases[i].text, cases[i].holds[spacing]);
        }
        ag_constraint_destroy(c);
    }
}

static void masks_agree_with_accept(void **state) {
    (void)state;
    static const char *const regexes[] = {"[a-z ]{3,9}!?", "(the|them|then) [^,]+(,|;) end",
                                          "\\d+(\\.\\d+)?", "[\\x00-\\uFFFF]{2}"};
    for (size_t i = 0; i < 4; i++) {
        ag_constraint *c = regex_constraint(regexes[i]);
        texts_check_mask(c);
        ag_text text = {0};
        texts_walk(c, i + 1, 2, &text);
        if (!ag_constraint_has_ended(c)) texts_check_mask(c);
        ag_text_free(&text);
        ag_constraint_destroy(c);
    }
    const ag_constraint_params p = texts_params(AG_CONSTRAINT_JSON_OBJECT, NULL);
    ag_constraint *c = texts_create(&p);
    ag_error err;
    for (const char *s = "{\"a\": [\"b\\n\", 12, {\"\"}"; *s; s++) {
        texts_check_mask(c);
        if (ag_constraint_accept(c, texts_byte_id((unsigned char)*s), &err) != AG_OK) break;
    }
    ag_constraint_destroy(c);
}

static void finds_forced_text_and_tokens(void **state) {
    (void)state;
    ag_constraint *c = regex_constraint("The old (king|kingdom) was old\\.");
    ag_text text = {0};
    ag_ids ids = {0};
    ag_error err;
    assert_int_equal(ag_constraint_forced_text(c, 100, &text, &err), AG_OK);
    assert_string_equal(text.data, "The old king");
    text.len = 0;
    assert_int_equal(ag_constraint_forced_text(c, 5, &text, &err), AG_OK);
    assert_int_equal(text.len, 5);
    assert_int_equal(ag_constraint_forced(c, 20, &ids, &err), AG_OK);
    assert_true(ids.n >= 2);
    text.len = 0;
    assert_int_equal(ag_tokenizer_decode(texts_tokenizer, ids.data, ids.n, false, &text, &err),
                     AG_OK);
    assert_memory_equal(text.data, "The old king", text.len);
    for (size_t i = 0; i < ids.n; i++) {
        assert_int_equal(ag_constraint_accept(c, ids.data[i], &err), AG_OK);
    }
    ag_ids_free(&ids);
    ag_constraint_destroy(c);
    /* To the end of the text, where the last token has no continuation. */
    c = regex_constraint("king");
    text.len = 0;
    assert_int_equal(ag_constraint_forced(c, 20, &ids, &err), AG_OK);
    assert_true(ids.n > 0);
    assert_int_equal(ag_tokenizer_decode(texts_tokenizer, ids.data, ids.n, false, &text, &err),
                     AG_OK);
    assert_string_equal(text.data, "king");
    ag_ids_free(&ids);
    /* The text may end after either letter, but not yet. "fore" and "form" are tokens. */
    ag_constraint_destroy(c);
    c = regex_constraint("for(e|m)");
    assert_int_equal(ag_constraint_forced(c, 20, &ids, &err), AG_OK);
    assert_int_equal(ids.n, 0);
    ag_text_free(&text);
    ag_constraint_destroy(c);
}

static void clones_are_independent(void **state) {
    (void)state;
    ag_constraint *c = regex_constraint("ab*c|ad"), *copy;
    ag_error err;
    assert_int_equal(ag_constraint_accept(c, texts_byte_id('a'), &err), AG_OK);
    assert_int_equal(ag_constraint_clone(c, &copy, &err), AG_OK);
    assert_int_equal(ag_constraint_accept(c, texts_byte_id('b'), &err), AG_OK);
    assert_int_equal(ag_constraint_accept(copy, texts_byte_id('d'), &err), AG_OK);
    assert_false(ag_constraint_may_end(c));
    ag_constraint_destroy(c);
    assert_true(ag_constraint_may_end(copy));
    assert_false(texts_allows(copy, texts_byte_id('d')));
    assert_int_equal(ag_constraint_accept(copy, texts_byte_id('d'), &err), AG_INVALID);
    assert_int_equal(ag_constraint_accept(copy, DEMO_EOS, &err), AG_OK);
    assert_true(ag_constraint_has_ended(copy));
    assert_true(texts_allows(copy, DEMO_EOS));
    assert_int_equal(ag_constraint_reset(copy, &err), AG_OK);
    assert_true(texts_allows(copy, texts_byte_id('a')));
    ag_constraint_destroy(copy);
}

static void masks_exclude_special_tokens(void **state) {
    (void)state;
    ag_constraint *c = regex_constraint("[^]*");
    for (int32_t id = 4090; id < 4096; id++) {
        assert_int_equal(texts_allows(c, id), id == DEMO_EOS);
    }
    assert_true(texts_allows(c, texts_byte_id('<')));
    ag_constraint_destroy(c);
}

static void sampler_chooses_allowed_tokens(void **state) {
    (void)state;
    ag_sampler_params params = ag_sampler_defaults();
    params.temperature = 1;
    params.top_k = 0;
    params.top_p = 1;
    params.seed = 3;
    ag_sampler *s, *other;
    ag_error err;
    assert_int_equal(ag_sampler_create(&params, 4096, &s, &err), AG_OK);
    ag_constraint *c = regex_constraint("k(ing|ey)s{4}");
    assert_int_equal(ag_sampler_constrain(s, c, &err), AG_OK);
    static float logits[4096];
    for (size_t i = 0; i < 4096; i++) logits[i] = (float)(i * 7919 % 101) / 50;
    for (int round = 0; round < 20; round++) {
        ag_ids ids = {0};
        ag_text text = {0};
        int32_t id;
        ag_sampler_accept_prompt(s, texts_byte_id('x')); /* the prompt is not constrained */
        for (;;) {
            assert_int_equal(ag_sampler_sample(s, logits, &id, &err), AG_OK);
            if (id == DEMO_EOS) break;
            ag_sampler_accept(s, id);
            ids.data = realloc(ids.data, (ids.n + 1) * sizeof *ids.data);
            ids.data[ids.n++] = id;
        }
        assert_int_equal(ag_tokenizer_decode(texts_tokenizer, ids.data, ids.n, false, &text, &err),
                         AG_OK);
        assert_true(!strcmp(text.data, "kingssss") || !strcmp(text.data, "keyssss"));
        ag_text_free(&text);
        ag_ids_free(&ids);
        assert_int_equal(ag_constraint_reset(c, &err), AG_OK);
    }
    /* After a token that is not allowed the next choice fails. A new text clears the failure. */
    int32_t id;
    ag_sampler_accept(s, texts_byte_id('x'));
    assert_int_equal(ag_sampler_sample(s, logits, &id, &err), AG_INVALID);
    assert_non_null(strstr(err.msg, "does not allow"));
    ag_sampler_reset(s);
    assert_int_equal(ag_sampler_sample(s, logits, &id, &err), AG_OK);
    assert_int_equal(ag_sampler_constrain(s, NULL, &err), AG_OK);
    assert_int_equal(ag_sampler_create(&params, 50, &other, &err), AG_OK);
    assert_int_equal(ag_sampler_constrain(other, c, &err), AG_INVALID);
    ag_sampler_destroy(other);
    ag_sampler_destroy(s);
    ag_constraint_destroy(c);
}

/* A small vocabulary has few tokens that end a string and continue after it. Their characters count
 * for the string's length. */
static void string_length_counts_tokens_past_the_quote(void **state) {
    static const char schema[] = "{\"type\":\"object\",\"properties\":{\"s\":{\"type\":"
                                 "\"string\",\"maxLength\":3}},\"required\":[\"s\"]}";
    static const char *const begins[] = {"{\"s\":\"", "a", "b", "c", "\","};
    const ag_constraint_params p = texts_params(AG_CONSTRAINT_JSON_SCHEMA, schema);
    ag_constraint *c = texts_create(&p);
    ag_error err;
    (void)state;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        for (const char *s = begins[i]; *s; s++) {
            const int32_t id = texts_byte_id((unsigned char)*s);
            if (ag_constraint_accept(c, id, &err) != AG_OK) fail_msg("%s", err.msg);
        }
        texts_check_mask(c);
    }
    ag_constraint_destroy(c);
}

/* Makes a vocabulary and a constraint and generates a text. Returns false if an allocation
 * failed. */
static bool compile_and_generate(ag_constraint_kind kind, const char *text) {
    const int32_t eos = DEMO_EOS;
    ag_constraint_vocab *v = NULL;
    ag_constraint *c = NULL, *copy = NULL;
    ag_ids ids = {0};
    ag_error err;
    const ag_constraint_params p = texts_params(kind, text);
    ag_status st = ag_constraint_vocab_create(texts_tokenizer, 4096, &eos, 1, &v, &err);
    if (st == AG_OK) st = ag_constraint_create(v, &p, &c, &err);
    for (size_t i = 0; st == AG_OK && i < 12; i++) {
        const uint32_t *mask;
        st = ag_constraint_mask(c, &mask, &err);
        int32_t id = 0;
        while (st == AG_OK && !(mask[id / 32] >> (id % 32) & 1)) id++;
        if (st == AG_OK) st = ag_constraint_accept(c, id, &err);
    }
    if (st == AG_OK) st = ag_constraint_clone(c, &copy, &err);
    if (st == AG_OK) st = ag_constraint_reset(copy, &err);
    if (st == AG_OK) st = ag_constraint_forced(copy, 4, &ids, &err);
    ag_ids_free(&ids);
    ag_constraint_destroy(copy);
    ag_constraint_destroy(c);
    ag_constraint_vocab_destroy(v);
    assert_true(st == AG_OK || st == AG_NOMEM);
    return st == AG_OK;
}

/* There are many allocations: after the first hundred every 23rd is tried. */
static void survives_failed_allocations(void **state) {
    (void)state;
    static const struct {
        ag_constraint_kind kind;
        const char *text;
    } cases[] = {{AG_CONSTRAINT_JSON_OBJECT, NULL},
                 {AG_CONSTRAINT_REGEX, "(ab|c)+[^d]{2,5}"},
                 {AG_CONSTRAINT_GRAMMAR, "root ::= root x? | \"ab\"\nx ::= [^a-z]{2}"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool done = false;
        size_t n_failed = 0;
        for (size_t nth = 0; !done; nth += nth < 100 ? 1 : 23) {
            failing_allocator f;
            failing_install(&f, nth);
            done = compile_and_generate(cases[i].kind, cases[i].text);
            ag_set_allocator(NULL);
            assert_int_equal(atomic_load(&f.in_use), 0);
            n_failed += !done;
        }
        assert_true(n_failed > 50);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regex_accepts_only_matches),
        cmocka_unit_test(rejects_bad_regexes_with_a_reason),
        cmocka_unit_test(choices_accept_only_listed_texts),
        cmocka_unit_test(json_object_accepts_any_object),
        cmocka_unit_test(grammar_accepts_only_its_texts),
        cmocka_unit_test(rejects_stacked_quantifiers),
        cmocka_unit_test(compiles_large_inputs_quickly),
        cmocka_unit_test(handles_long_and_ambiguous_texts),
        cmocka_unit_test(applies_the_requested_spacing),
        cmocka_unit_test(masks_agree_with_accept),
        cmocka_unit_test(finds_forced_text_and_tokens),
        cmocka_unit_test(clones_are_independent),
        cmocka_unit_test(masks_exclude_special_tokens),
        cmocka_unit_test(sampler_chooses_allowed_tokens),
        cmocka_unit_test(survives_failed_allocations),
        cmocka_unit_test(string_length_counts_tokens_past_the_quote),
    };
    return cmocka_run_group_tests(tests, texts_setup, texts_teardown);
}
