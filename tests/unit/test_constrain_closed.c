/* SPDX-License-Identifier: Apache-2.0 */
/* Closed objects: which properties an object may have, and that no schema loses all its values. */
#include "constrain_texts.h"

typedef struct closed_case {
    const char *schema;
    const char *always[4];  /* texts that obey, closed or not */
    const char *if_open[4]; /* texts that obey if objects are open */
    const char *never[3];
} closed_case;

#define A "\"a\":{\"type\":\"integer\"}"
#define B "\"b\":{\"type\":\"integer\"}"

static const closed_case cases[] = {
    {"{\"properties\":{" A "}}",
     {"{}", "{\"a\":1}", "[2]"},
     {"{\"b\":1}", "{\"a\":1,\"b\":1}"},
     {"{\"a\":\"x\"}"}},
    {"{\"type\":\"object\",\"properties\":{}}", {"{}"}, {"{\"b\":1}"}, {"1"}},
    /* Nothing is declared, or others are spoken of. */
    {"{\"type\":\"object\"}", {"{}", "{\"b\":1}"}, {NULL}, {"1"}},
    {"{\"type\":\"object\",\"required\":[\"a\"]}", {"{\"a\":1,\"b\":1}"}, {NULL}, {"{}"}},
    {"{\"type\":\"object\",\"properties\":{" A "},\"additionalProperties\":true}",
     {"{\"a\":1,\"b\":1}"},
     {NULL},
     {"{\"a\":\"x\"}"}},
    {"{\"type\":\"object\",\"properties\":{" A "},\"unevaluatedProperties\":{\"type\":\"null\"}}",
     {"{\"a\":1,\"b\":null}"},
     {NULL},
     {"{\"b\":1}"}},
    {"{\"type\":\"object\",\"properties\":{" A "},\"patternProperties\":{\"^x\":{}}}",
     {"{\"a\":1,\"x1\":2}", "{\"b\":1}"},
     {NULL},
     {"{\"a\":\"x\"}"}},
    {"{\"allOf\":[{\"properties\":{" A "}},{\"additionalProperties\":{\"type\":\"integer\"}}]}",
     {"{\"a\":1,\"b\":2}", "{}"},
     {NULL},
     {"{\"b\":null}"}},
    /* Names in "required" are declared. */
    {"{\"type\":\"object\",\"properties\":{" A "},\"required\":[\"c\"]}",
     {"{\"c\":[]}", "{\"a\":1,\"c\":2}"},
     {"{\"c\":1,\"d\":1}"},
     {"{}", "{\"a\":1}"}},
    {"{\"type\":\"object\",\"properties\":{" A "},\"dependentRequired\":{\"a\":[\"c\"]}}",
     {"{}", "{\"a\":1,\"c\":2}"},
     {"{\"a\":1,\"c\":2,\"d\":1}"},
     {"{\"a\":1}"}},
    /* Closing comes after merging. */
    {"{\"type\":\"object\",\"allOf\":[{\"properties\":{" A "}},{\"properties\":{" B "}}]}",
     {"{\"a\":1,\"b\":2}", "{\"b\":2}"},
     {"{\"a\":1,\"c\":2}"},
     {"{\"a\":1,\"b\":\"x\"}"}},
    {"{\"$defs\":{\"d\":{\"type\":\"object\",\"properties\":{" A "}}},\"$ref\":\"#/$defs/d\","
     "\"properties\":{" B "}}",
     {"{\"a\":1,\"b\":2}"},
     {"{\"a\":1,\"c\":2}"},
     {"{\"a\":\"x\"}"}},
    {"{\"type\":\"object\",\"properties\":{" A
     "},\"required\":[\"a\"],\"anyOf\":[{\"properties\":{" B
     "},\"required\":[\"b\"]},{\"properties\":{\"c\":{\"type\":\"null\"}},\"required\":[\"c\"]}]}",
     {"{\"a\":1,\"b\":2}", "{\"a\":1,\"c\":null}"},
     {"{\"a\":1,\"b\":2,\"c\":3}", "{\"a\":1,\"b\":2,\"d\":3}"},
     {"{\"a\":1}"}},
    {"{\"type\":\"object\",\"oneOf\":[{\"properties\":{\"k\":{\"const\":\"x\"}," A
     "},\"required\":[\"k\"]},{\"properties\":{\"k\":{\"const\":\"y\"}," B
     "},\"required\":[\"k\"]}]}",
     {"{\"k\":\"x\",\"a\":1}", "{\"k\":\"y\",\"b\":1}"},
     {"{\"k\":\"x\",\"b\":1}", "{\"k\":\"y\",\"b\":1,\"c\":2}"},
     {"{\"k\":\"z\"}"}},
    {"{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":[\"x\",\"y\"]}},\"required\":[\"k\"],"
     "\"if\":{\"properties\":{\"k\":{\"const\":\"x\"}}},\"then\":{\"properties\":{" A
     "}},\"else\":{\"properties\":{" B "}}}",
     {"{\"k\":\"x\",\"a\":1}", "{\"k\":\"y\",\"b\":1}", "{\"k\":\"y\"}"},
     {"{\"k\":\"x\",\"b\":1}", "{\"k\":\"y\",\"a\":1}"},
     {"{\"k\":\"x\",\"a\":\"x\"}"}},
    {"{\"properties\":{\"o\":{\"properties\":{" A "}},\"p\":{\"type\":\"object\"}}}",
     {"{\"o\":{\"a\":1},\"p\":{\"z\":1}}"},
     {"{\"o\":{\"z\":1}}"},
     {"{\"o\":{\"a\":\"x\"}}"}},
    {"{\"type\":\"object\",\"properties\":{\"next\":{\"$ref\":\"#\"}}}",
     {"{\"next\":{\"next\":{}}}"},
     {"{\"next\":{\"z\":1}}"},
     {"{\"next\":1}"}},
    {"{\"type\":\"array\",\"items\":{\"properties\":{" A "}}}",
     {"[{},{\"a\":1}]"},
     {"[{\"b\":1}]"},
     {"[{\"a\":\"x\"}]"}},
    {"{\"properties\":{" A "},\"enum\":[{\"a\":1},{\"a\":1,\"z\":2}]}",
     {"{\"a\":1}", "{\"a\":1,\"z\":2}"},
     {NULL},
     {"{}"}},
    {"{\"type\":\"object\",\"properties\":{" A "," B "},\"propertyNames\":{\"maxLength\":1}}",
     {"{\"a\":1,\"b\":2}"},
     {"{\"c\":1}"},
     {"{\"cc\":1}"}},
    /* An object that needs undeclared properties stays open. */
    {"{\"type\":\"object\",\"properties\":{" A "},\"minProperties\":2}",
     {"{\"a\":1,\"b\":2}"},
     {NULL},
     {"{\"a\":1}"}},
    {"{\"type\":\"object\",\"properties\":{" A ",\"b\":{\"type\":\"string\",\"enum\":[1]}},"
     "\"minProperties\":2}",
     {"{\"a\":1,\"c\":2}"},
     {NULL},
     {"{\"a\":1}"}},
    {"{\"type\":\"object\",\"properties\":{" A "," B "},\"minProperties\":2}",
     {"{\"a\":1,\"b\":2}"},
     {"{\"a\":1,\"c\":2}"},
     {"{\"a\":1}"}},
    {"{\"type\":\"object\",\"properties\":{" A "},\"not\":{\"additionalProperties\":false}}",
     {"{\"b\":1}", "{\"a\":1}"},
     {NULL},
     {"{}"}},
};

static void expect_texts(const closed_case *x, ag_constraint *c, bool closed) {
    for (size_t i = 0; i < 4 && x->always[i]; i++) texts_expect(c, x->always[i], true);
    for (size_t i = 0; i < 4 && x->if_open[i]; i++) texts_expect(c, x->if_open[i], !closed);
    for (size_t i = 0; i < 3 && x->never[i]; i++) texts_expect(c, x->never[i], false);
}

static void allows_declared_properties_only(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int how = 0; how < 4; how++) {
            ag_constraint_params p = texts_params(AG_CONSTRAINT_JSON_SCHEMA, cases[i].schema);
            assert_false(p.closed_objects);
            p.closed_objects = how % 2;
            p.order = how / 2 ? AG_JSON_ANY_ORDER : AG_JSON_DECLARED_ORDER;
            ag_constraint *c = texts_create(&p);
            expect_texts(&cases[i], c, p.closed_objects);
            ag_constraint_destroy(c);
        }
    }
}

static void closes_objects_of_grammars(void **state) {
    static const char grammar[] =
        "root ::= \"call:\" %json {\"properties\":{" A "}} | \"f(\" %python "
        "{\"properties\":{\"o\":{\"type\":\"object\",\"properties\":{" A "}}}}";
    (void)state;
    ag_constraint_params p = texts_params(AG_CONSTRAINT_GRAMMAR, grammar);
    for (int closed = 0; closed < 2; closed++) {
        p.closed_objects = closed;
        ag_constraint *c = texts_create(&p);
        texts_expect(c, "call:{\"a\":1}", true);
        texts_expect(c, "call:{\"b\":1}", !closed);
        texts_expect(c, "f(o={\"a\":1}", true);
        texts_expect(c, "f(o={\"b\":1}", !closed);
        ag_constraint_destroy(c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allows_declared_properties_only),
        cmocka_unit_test(closes_objects_of_grammars),
    };
    return cmocka_run_group_tests(tests, texts_setup, texts_teardown);
}
