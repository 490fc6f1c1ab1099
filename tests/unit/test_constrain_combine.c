/* SPDX-License-Identifier: Apache-2.0 */
/* JSON schemas that require existence: counted items, unique items, and negations of what all items
 * or properties match. */
#include "constrain_texts.h"

typedef struct combined_case {
    const char *schema;
    const char *yes[6], *no[6];
} combined_case;

static const combined_case combined_cases[] = {
    {"{\"type\":\"array\",\"contains\":{\"type\":\"integer\"}}",
     {"[1]", "[\"a\",2,\"b\"]", "[1,2]"},
     {"[]", "[\"a\"]", "[1.5]"}},
    {"{\"type\":\"array\",\"contains\":{\"const\":1},\"minContains\":2,\"maxContains\":3,"
     "\"maxItems\":5}",
     {"[1,1]", "[1,0,1,1]", "[\"x\",1,2,3,1]"},
     {"[1]", "[1,1,1,1]", "[1,0,0,0,0,1]"}},
    {"{\"type\":\"array\",\"contains\":{\"const\":1},\"maxContains\":1,\"minContains\":0}",
     {"[]", "[2]", "[2,1,3]"},
     {"[1,1]", "[1,2,1]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"string\"}],\"items\":{\"type\":\"integer\"},"
     "\"contains\":{\"type\":\"integer\",\"minimum\":5},\"minItems\":2}",
     {"[\"a\",5]", "[\"a\",1,7]"},
     {"[\"a\",1]", "[\"a\"]", "[5,5]"}},
    {"{\"type\":\"array\",\"allOf\":[{\"contains\":{\"const\":\"a\"}},{\"contains\":{\"const\":"
     "\"b\"}}]}",
     {"[\"a\",\"b\"]", "[\"b\",1,\"a\"]"},
     {"[\"a\"]", "[\"b\",\"b\"]", "[]"}},
    {"{\"type\":\"array\",\"contains\":true,\"minContains\":2}", {"[1,2]"}, {"[1]"}},
    {"{\"$schema\":\"http://json-schema.org/draft-07/"
     "schema#\",\"type\":\"array\",\"contains\":{\"const\":1},\"minContains\":2}",
     {"[1]"},
     {"[2]"}},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[\"a\",1,true,null]}}",
     {"[]", "[\"a\"]", "[null,1,true,\"a\"]"},
     {"[\"a\",\"a\"]", "[1,\"a\",1]", "[\"b\"]"}},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"minItems\":2,\"maxItems\":2,\"items\":{\"enum\":["
     "1,2,3]}}",
     {"[1,2]", "[3,1]"},
     {"[1]", "[1,1]", "[1,2,3]"}},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"anyOf\":[{\"type\":\"boolean\"},{"
     "\"enum\":[\"x\",1]},{\"const\":1.0}]}}",
     {"[true,false,1,\"x\"]"},
     {"[true,true]", "[1,1.0]"}},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"string\",\"pattern\":\"^[ab]$"
     "\"}}",
     {"[\"b\",\"a\"]"},
     {"[\"a\",\"b\",\"a\"]"}},
    {"{\"not\":{\"enum\":[0,2.5,\"a\"]}}",
     {"1", "2", "2.4", "-0.5", "\"b\"", "null"},
     {"0", "2.5", "\"a\"", "0.0"}},
    {"{\"type\":\"number\",\"not\":{\"type\":\"integer\"}}",
     {"0.5", "-1.25", "10.01"},
     {"0", "5", "1.0", "-3"}},
    {"{\"type\":\"integer\",\"not\":{\"multipleOf\":3}}",
     {"1", "-2", "10"},
     {"0", "3", "-9", "111"}},
    {"{\"type\":\"number\",\"allOf\":[{\"not\":{\"multipleOf\":2}},{\"not\":{\"multipleOf\":3}}]}",
     {"1", "5", "2.5", "35.0"},
     {"2", "9", "6.0", "0"}},
    {"{\"type\":\"array\",\"not\":{\"items\":{\"type\":\"integer\"}}}",
     {"[\"a\"]", "[1,null]", "[1,0.5,2]"},
     {"[]", "[1]", "[1,2]"}},
    {"{\"type\":\"array\",\"not\":{\"prefixItems\":[{\"const\":1},{\"const\":2}]}}",
     {"[2]", "[1,3]", "[1,1,2]"},
     {"[]", "[1]", "[1,2]", "[1,2,3]"}},
    {"{\"type\":\"array\",\"not\":{\"prefixItems\":[{}],\"items\":{\"type\":\"null\"}}}",
     {"[1,2]", "[1,null,3]"},
     {"[]", "[1]", "[1,null]"}},
    {"{\"type\":\"object\",\"not\":{\"additionalProperties\":{\"type\":\"null\"}}}",
     {"{\"a\":1}", "{\"b\":null,\"a\":1}"},
     {"{}", "{\"a\":null}"}},
    {"{\"type\":\"object\",\"not\":{\"properties\":{\"a\":{\"type\":\"null\"}},"
     "\"additionalProperties\":false}}",
     {"{\"a\":1}", "{\"b\":1}", "{\"a\":null,\"b\":1}"},
     {"{}", "{\"a\":null}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{}},"
     "\"additionalProperties\":false,\"not\":{\"patternProperties\":{\"^a\":{\"maximum\":5}}}}",
     {"{\"a\":6}", "{\"a\":7,\"b\":1}"},
     {"{}", "{\"a\":5}", "{\"b\":9}"}},
    {"{\"type\":\"object\",\"not\":{\"propertyNames\":{\"maxLength\":2}}}",
     {"{\"abc\":1}", "{\"a\":1,\"abc\":2}"},
     {"{}", "{\"ab\":1}"}},
    {"{\"type\":\"object\",\"not\":{\"additionalProperties\":{\"type\":\"null\"}}}",
     {"{\"b\":null,\"a\":1,\"a\":2}"},
     {"{\"a\":1,\"a\":null}"}},
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"},\"allOf\":[{\"not\":{"
     "\"patternProperties\":{\"^a\":{\"maximum\":5}}}},{\"not\":{\"patternProperties\":{\"^b\":{"
     "\"maximum\":5}}}}]}",
     {"{\"a\":6,\"b\":7}", "{\"b\":7,\"a\":6}", "{\"c\":1,\"ax\":6,\"b\":9}"},
     {"{\"a\":6}", "{\"b\":6}", "{\"a\":5,\"b\":6}", "{\"a\":6,\"b\":6,\"a\":1}"}},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\",\"minimum\":2}]}",
     {"1", "2.5", "-3"},
     {"2", "7", "1.5"}},
    {"{\"type\":\"number\",\"minimum\":2.5,\"exclusiveMaximum\":12,\"not\":{\"type\":\"integer\"}}",
     {"2.5", "2.50", "2.6", "11.99", "10.01", "3.001"},
     {"2.4", "3", "3.0", "12", "12.0", "12.5"}},
    {"{\"type\":\"number\",\"minimum\":-2,\"maximum\":1,\"not\":{\"type\":\"integer\"}}",
     {"-1.5", "-0.01", "0.5", "0.990"},
     {"-2", "-2.0", "-2.1", "0.0", "1", "1.01"}},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", {"1.5"}, {"1", "\"a\""}},
    {"{\"type\":\"object\",\"oneOf\":[{\"properties\":{\"a\":{\"type\":\"string\"}},"
     "\"additionalProperties\":false},{\"properties\":{\"b\":{\"type\":\"string\"}},"
     "\"additionalProperties\":false}]}",
     {"{\"a\":\"x\"}", "{\"b\":\"x\"}"},
     {"{}", "{\"a\":\"x\",\"b\":\"x\"}", "{\"a\":1}"}},
    {"{\"type\":\"array\",\"oneOf\":[{\"items\":{\"type\":\"string\"}},{\"items\":{\"type\":"
     "\"integer\"}}]}",
     {"[\"a\"]", "[1,2]"},
     {"[]", "[\"a\",1]", "[null]"}},
    {"{\"type\":\"array\",\"if\":{\"items\":{\"type\":\"integer\"}},\"then\":{\"minItems\":2},"
     "\"else\":{\"maxItems\":1}}",
     {"[1,2]", "[\"a\"]"},
     {"[]", "[1]", "[\"a\",1]"}},
};

static void expect_all(const combined_case *s, ag_constraint *c) {
    for (size_t k = 0; k < 6 && s->yes[k]; k++) {
        if (!texts_accepts(c, s->yes[k], strlen(s->yes[k]))) {
            fail_msg("%s refuses %s", s->schema, s->yes[k]);
        }
    }
    for (size_t k = 0; k < 6 && s->no[k]; k++) {
        if (texts_accepts(c, s->no[k], strlen(s->no[k]))) {
            fail_msg("%s accepts %s", s->schema, s->no[k]);
        }
    }
}

static void enforces_contains_and_unique_items(void **state) {
    (void)state;
    const size_t n = sizeof combined_cases / sizeof combined_cases[0];
    for (size_t i = 0; i < n; i++) {
        ag_constraint_params p = texts_params(AG_CONSTRAINT_JSON_SCHEMA, combined_cases[i].schema);
        for (int any_order = 0; any_order < 2; any_order++) {
            p.order = any_order ? AG_JSON_ANY_ORDER : AG_JSON_DECLARED_ORDER;
            ag_constraint *c = texts_create(&p);
            expect_all(&combined_cases[i], c);
            texts_check_mask(c);
            ag_constraint_destroy(c);
        }
    }
}

static void limits_counted_items(void **state) {
    (void)state;
    static const struct {
        const char *schema;
        ag_status status;
        const char *message;
    } cases[] = {
        {"{\"items\":{\"contains\":{\"const\":1},\"minContains\":1000}}", AG_UNSUPPORTED,
         "#/items/contains: too many items to count"},
        {"{\"type\":\"array\",\"contains\":{\"const\":1},\"minContains\":200,\"minItems\":8000}",
         AG_UNSUPPORTED, "#/contains: the array has too many items"},
        {"{\"type\":\"array\",\"allOf\":[{\"contains\":{\"const\":1}},{\"contains\":{\"const\":2}},"
         "{\"contains\":{\"const\":3}},{\"contains\":{\"const\":4}}]}",
         AG_LIMIT, "too many kinds of counted items; the maximum is 3"},
        {"{\"type\":\"array\",\"contains\":{\"const\":1},\"minContains\":2,\"maxContains\":1}",
         AG_INVALID, "no text matches"},
        {"{\"type\":\"array\",\"uniqueItems\":true,\"minItems\":3,\"items\":{\"type\":\"boolean\"}"
         "}",
         AG_INVALID, "no text matches"},
        {"{\"type\":\"array\",\"uniqueItems\":true,\"minItems\":2,\"items\":{\"pattern\":\"^[a-z]{"
         "2}$\","
         "\"type\":\"string\"}}",
         AG_UNSUPPORTED, "#/uniqueItems: the items must be listed values"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const ag_constraint_params p = texts_params(AG_CONSTRAINT_JSON_SCHEMA, cases[i].schema);
        ag_constraint *c;
        ag_error err = {.msg = ""};
        const ag_status st = ag_constraint_create(texts_vocab, &p, &c, &err);
        if (st != cases[i].status || !strstr(err.msg, cases[i].message)) {
            fail_msg("%s: %s: %s", cases[i].schema, ag_status_name(st), err.msg);
        }
        assert_null(c);
    }
}

/* Each of many properties can satisfy each of many required matches. */
static void limits_choices_of_required_properties(void **state) {
    (void)state;
    char text[20000], *at = text;
    at += sprintf(at, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < 60; i++) at += sprintf(at, "%s\"p%d\":{}", i ? "," : "", i);
    at += sprintf(at, "},\"additionalProperties\":false,\"allOf\":[");
    for (int i = 0; i < 12; i++) {
        at += sprintf(at, "%s{\"not\":{\"additionalProperties\":{\"const\":%d}}}", i ? "," : "", i);
    }
    strcpy(at, "]}");
    const ag_constraint_params p = texts_params(AG_CONSTRAINT_JSON_SCHEMA, text);
    ag_constraint *c;
    ag_error err;
    assert_int_equal(ag_constraint_create(texts_vocab, &p, &c, &err), AG_LIMIT);
    assert_non_null(strstr(err.msg, "too many ways to satisfy an object"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(enforces_contains_and_unique_items),
        cmocka_unit_test(limits_counted_items),
        cmocka_unit_test(limits_choices_of_required_properties),
    };
    return cmocka_run_group_tests(tests, texts_setup, texts_teardown);
}
