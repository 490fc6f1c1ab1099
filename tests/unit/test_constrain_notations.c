/* SPDX-License-Identifier: Apache-2.0 */
/* Grammars that contain special tokens, other notations, and schemas, as JSON and as arguments of
 * calls. */
#include "constrain_texts.h"
#include "support/failing_allocator.h"

#define SCHEMA                                                                                   \
    "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}, \"days\": "       \
    "{\"type\": \"integer\"}, \"ok\": {\"type\": \"boolean\"}, \"unit\": {\"enum\": [\"C\", "    \
    "\"1\"]}, \"any\": {}, \"maybe\": {\"type\": [\"string\", \"null\"]}, \"list\": {\"type\": " \
    "\"array\", \"items\": {\"$ref\": \"#/$defs/point\"}}}, \"required\": [\"city\"], "          \
    "\"$defs\": {\"point\": {\"type\": \"object\", \"properties\": {\"x\": {\"type\": "          \
    "\"boolean\"}, \"s\": {\"type\": \"string\", \"maxLength\": 2}}, \"required\": [\"x\"], "    \
    "\"additionalProperties\": false}}}"
#define TAGS "%tags(\"<p=\", \">\", \"<p=\", \">\", \"</p>\\n\", \"\", \"</p>\") "
#define MARKS "%braces(\"'\", \"'\") "

static const struct {
    const char *grammar;
    const char *yes[8], *no[8];
} cases[] = {
    {"root ::= \"f(\" %python " SCHEMA " \")\"",
     {"f(city=\"K\xC3\xB6ln\")", "f(city=\"a\", days=3, ok=True)",
      "f(city=\"\", ok=False, list=[{\"x\": True, \"s\": \"ab\"}, {\"x\": False}])",
      "f(city=\"a\", unit=\"1\", any=[1, {\"a\": null}], maybe=None)"},
     {"f()", "f(days=3)", "f(city=\"a\" days=3)", "f(city=\"a\", ok=true)", "f(city=\"a\",)",
      "f(city=1)", "f(city=\"a\", list=[{\"x\": true}])", "f(days=3, city=\"a\")"}},
    {"root ::= \"f{\" " MARKS SCHEMA " \"}\"",
     {"f{city:'K\xC3\xB6ln \"x\"'}", "f{city:'',days:3,ok:true}",
      "f{city:'a',list:[{x:true,s:'ab'}, {x:false}]}", "f{city:'a',any:{a:['x',1,{}],b:null}}",
      "f{city:'a',maybe:null}", "f{city:'a',maybe:'null'}"},
     {"f{}", "f{city:\"a\"}", "f{city:'a''}", "f{city:'a',list:[{s:'ab'}]}",
      "f{city:'a',list:[{x:true,s:'abc'}]}", "f{city:'a',any:x}", "f{city:'a',other:1}"}},
    {"root ::= " TAGS SCHEMA " \"end\"",
     {"<p=city>K\xC3\xB6ln\n \"</p>\nend", "<p=city></p>\n<p=days>-3</p>\nend",
      "<p=city>1</p>\n<p=ok>true</p>\n<p=unit>1</p>\nend",
      "<p=city>a</p>\n<p=any>so</p>\n<p=maybe>Tom</p>\nend",
      "<p=city>a</p>\n<p=any>[1, \"x\"]</p>\n<p=maybe>null</p>\nend",
      "<p=city>a</p>\n<p=list>[{\"x\": true, \"s\": \"ab\"}]</p>\nend"},
     {"end", "<p=days>3</p>\nend", "<p=city>a</p> </p>\nend", "<p=city>a</p>\n<p=days>x</p>\nend",
      "<p=city>a</p>\n<p=maybe>12</p>\nend", "<p=city>a</p>\n<p=any>\"x\"</p>\nend",
      "<p=city>a</p>\n<p=unit>\"C\"</p>\nend", "<p=city>a</p>\n<p=maybe>True</p>\nend"}},
    {"root ::= \"a\" call+\ncall ::= \"<\" %json {\"type\": \"integer\"} \">\" | %json true",
     {"a<12>", "a<1>[true]", "a{}<3>"},
     {"a", "a<x>", "a<1.5>"}},
    {"root ::= %python {} \"!\" | %python true", {"!", ""}, {"a=1"}},
    {"root ::= \"id=\" %regex \"[a-f]\\\\d{2}|\\u00e9\" \".\"",
     {"id=a12.", "id=\xC3\xA9."},
     {"id=g12.", "id=a1.", "a12."}},
    {"root ::= a %grammar \"root ::= a+\\na ::= \\\"x\\\" | %json true\"  a\na ::= \"y\"",
     {"yxy", "yx{}xy"},
     {"yy", "xxx", "yyy"}},
    {"root ::= %tags(\"<\", \"=\", \"<\", \":\", \">\", \";\", \"\") {\"properties\": {\"a\": {}, "
     "\"b\": "
     "{\"type\": \"string\", \"pattern\": \"^x+$\"}}, \"required\": [\"b\"]}",
     {"<b=xx>", "<a=true>;<b=x>", "<a:true>;<b=x>", "<a:[1]>;<b=x>"},
     {"<b:x>", "<b=>", "<a=1>", "<a:so>;<b=x>"}},
    {"root ::= %tags(\"<s=\", \">\", \"<v=\", \">\", \".\", \"\", \"\") {\"properties\": {\"a\": "
     "{}, "
     "\"b\": {\"type\": \"string\"}}, \"required\": [\"b\"]}",
     {"<s=b>x.", "<s=a>x.<s=b>1.", "<v=a>1.<s=b>x.", "<s=a>1.<s=b>x."},
     {"<v=b>1.", "<v=a>x.<s=b>x.", "=b>x."}},
};

static void writes_arguments_in_each_notation(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const ag_constraint_params p = texts_params(AG_CONSTRAINT_GRAMMAR, cases[i].grammar);
        ag_constraint *c = texts_create(&p);
        for (size_t k = 0; k < 8 && cases[i].yes[k]; k++) texts_expect(c, cases[i].yes[k], true);
        for (size_t k = 0; k < 8 && cases[i].no[k]; k++) texts_expect(c, cases[i].no[k], false);
        ag_error err;
        assert_int_equal(ag_constraint_reset(c, &err), AG_OK);
        texts_check_mask(c);
        ag_constraint_destroy(c);
    }
}

static const struct {
    const char *grammar;
    ag_status status;
    const char *message;
} bad[] = {
    {"root ::= <[", AG_FORMAT, "line 1: invalid token"},
    {"root ::= <[]>", AG_FORMAT, "invalid token"},
    {"root ::= <x>", AG_FORMAT, "invalid token"},
    {"root ::= <[5]>", AG_INVALID, "token 5: not a special token"},
    {"root ::= <[123456]>", AG_INVALID, "token 123456: not a special token"},
    {"root ::= \"a\"\n  \n| %xml {}", AG_FORMAT, "line 3: unknown notation %xml"},
    {"root ::= %json {", AG_FORMAT, "expected a JSON schema"},
    {"root ::= %json", AG_FORMAT, "expected a JSON schema"},
    {"root ::= %regex 1", AG_FORMAT, "line 1: expected a JSON string after"},
    {"root ::= %regex \"(\"", AG_FORMAT, "regular expression: "},
    {"root ::= %grammar \"rot ::= \\\"x\\\"\"", AG_FORMAT, "rule root is not defined"},
    {"root ::= %grammar \"root ::= %grammar \\\"\\\"\"", AG_FORMAT, "only one level is allowed"},
    {"root ::= %grammar \"%trigger {\\\"anywhere\\\": [\\\"\\\\\\\"x\\\\\\\"\\\"]}\\nroot ::= "
     "\\\"x\\\"\"",
     AG_FORMAT, "%trigger in a %grammar"},
    {"root ::= %json {\"type\": 1}", AG_FORMAT, "#/type"},
    {"root ::= %braces {}", AG_FORMAT, "delimiters"},
    {"root ::= %braces(\"a\") {}", AG_FORMAT, "2 delimiters"},
    {"root ::= %braces(\"a\", \"b\", \"c\") {}", AG_FORMAT, "2 delimiters"},
    {"root ::= %braces(\"a\", \"(\") {\"properties\": {\"a\": {}}}", AG_FORMAT, "( without )"},
    {"root ::= %python {\"required\": [\"a b\"]}", AG_UNSUPPORTED,
     "\"a b\": the name needs quotes"},
    {"root ::= %python {\"minProperties\": 1}", AG_UNSUPPORTED, "minProperties"},
    {"root ::= %python {\"type\": \"array\"}", AG_INVALID, "no text matches"},
};

static void rejects_bad_grammars_with_a_reason(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const ag_constraint_params p = texts_params(AG_CONSTRAINT_GRAMMAR, bad[i].grammar);
        ag_constraint *c;
        ag_error err = {.msg = ""};
        const ag_status st = ag_constraint_create(texts_vocab, &p, &c, &err);
        if (st != bad[i].status || !strstr(err.msg, bad[i].message)) {
            fail_msg("%s: %s: %s", bad[i].grammar, ag_status_name(st), err.msg);
        }
        ag_constraint_destroy(c);
    }
}

/* Parts of inner grammars count too: 3 * 86 of them exceed 256. */
static void counts_parts_of_all_grammars(void **state) {
    char text[8192] = "root ::= ";
    (void)state;
    for (int g = 0; g < 3; g++) {
        strcat(text, "%grammar \"root ::= ");
        for (int i = 0; i < 85; i++) strcat(text, "%json true ");
        strcat(text, "\" ");
    }
    const ag_constraint_params p = texts_params(AG_CONSTRAINT_GRAMMAR, text);
    ag_constraint *c;
    ag_error err;
    assert_int_equal(ag_constraint_create(texts_vocab, &p, &c, &err), AG_LIMIT);
    assert_non_null(strstr(err.msg, "too many parts"));
}

/* A special token is allowed only where the grammar names it, never by its text. */
static void allows_special_tokens_only_where_named(void **state) {
    (void)state;
    size_t n;
    int32_t mark = -1;
    for (int32_t id = 4090; id < 4096; id++) {
        if (id != DEMO_EOS && ag_tokenizer_is_special(texts_tokenizer, id)) mark = id;
    }
    assert_true(mark >= 0);
    char grammar[200];
    snprintf(grammar, sizeof grammar,
             "root ::= \"ab\" <[%d]> %%braces(<[%d]>, \"x\") {\"properties\": {\"k\": {\"type\": "
             "\"string\", \"minLength\": 1}}, \"required\": [\"k\"]} <[%d]>",
             (int)mark, (int)mark, DEMO_EOS);
    const ag_constraint_params p = texts_params(AG_CONSTRAINT_GRAMMAR, grammar);
    ag_constraint *c = texts_create(&p);
    ag_error err;
    ag_text text = {0};
    ag_ids ids = {0};
    assert_false(texts_allows(c, mark));
    assert_int_equal(ag_constraint_forced_text(c, 100, &text, &err), AG_OK);
    assert_string_equal(text.data, "ab");
    assert_int_equal(ag_constraint_forced(c, 100, &ids, &err), AG_OK);
    for (size_t i = n = 0; i < ids.n; i++) n += ids.data[i] == mark;
    assert_int_equal(n, 2);
    for (size_t i = 0; i < ids.n; i++) {
        texts_check_mask(c);
        assert_int_equal(ag_constraint_accept(c, ids.data[i], &err), AG_OK);
    }
    texts_check_mask(c);
    assert_false(texts_allows(c, mark));
    assert_false(texts_allows(c, texts_byte_id('x')));
    assert_int_equal(ag_constraint_accept(c, texts_byte_id('a'), &err), AG_OK);
    texts_check_mask(c);
    assert_true(texts_allows(c, mark));
    assert_false(texts_allows(c, DEMO_EOS));
    assert_int_equal(ag_constraint_accept(c, mark, &err), AG_OK);
    assert_true(texts_allows(c, DEMO_EOS));
    assert_int_equal(ag_constraint_accept(c, DEMO_EOS, &err), AG_OK);
    assert_true(ag_constraint_may_end(c));
    ag_text_free(&text);
    ag_ids_free(&ids);
    ag_constraint_destroy(c);
}

static void reports_failed_allocations(void **state) {
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        const ag_constraint_params p = texts_params(AG_CONSTRAINT_GRAMMAR, cases[i].grammar);
        ag_constraint_destroy(texts_create(&p));
        bool failed = true;
        for (size_t nth = 0; failed; nth += 1 + nth / 20) {
            failing_allocator f;
            ag_constraint *c;
            failing_install(&f, nth);
            const ag_status st = ag_constraint_create(texts_vocab, &p, &c, NULL);
            failed = atomic_load(&f.failed);
            assert_int_equal(st, failed ? AG_NOMEM : AG_OK);
            ag_constraint_destroy(c);
            assert_int_equal(atomic_load(&f.in_use), 0);
            ag_set_allocator(NULL);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_arguments_in_each_notation),
        cmocka_unit_test(rejects_bad_grammars_with_a_reason),
        cmocka_unit_test(counts_parts_of_all_grammars),
        cmocka_unit_test(allows_special_tokens_only_where_named),
        cmocka_unit_test(reports_failed_allocations),
    };
    return cmocka_run_group_tests(tests, texts_setup, texts_teardown);
}
