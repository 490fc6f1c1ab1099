/* SPDX-License-Identifier: Apache-2.0 */
/* JSON schemas: values that match, values that do not, and unsupported keywords with their
 * paths. */
#include "constrain_texts.h"
#include "support/failing_allocator.h"

#include <time.h>

typedef struct schema_case {
    const char *schema;
    const char *yes[8], *no[8];
} schema_case;

static const schema_case cases[] = {
    {"true", {"1", "null", "{\"a\":[]}", "\"x\""}, {"", "x"}},
    {"{\"type\":\"string\"}", {"\"\"", "\"a\\n\""}, {"1", "null", "\"", "'a'"}},
    {"{\"type\":[\"integer\",\"null\"]}", {"0", "-12", "null"}, {"1.5", "01", "true", "-"}},
    {"{\"type\":\"number\"}", {"0", "-1.5e+3", "2E9"}, {"\"1\"", "1.", ".5"}},
    {"{\"type\":\"boolean\"}", {"true", "false"}, {"1", "null"}},
    {"{\"enum\":[\"a\",1,null,true,[1,{\"b\":2}],2.5]}",
     {"\"a\"", "1", "null", "true", "[1,{\"b\":2}]", "[1, {\"b\": 2}]", "2.5"},
     {"\"b\"", "false", "[1]", "[1,{\"b\":3}]", "2"}},
    {"{\"const\":\"\\u00e9\\\"\\u0001\"}", {"\"\xC3\xA9\\\"\\u0001\""}, {"\"\xC3\xA9\""}},
    {"{\"const\":1.0}", {"1", "1.0"}, {"2", "1.5"}},
    /* numbers */
    {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":127}",
     {"3", "9", "10", "99", "100", "119", "127"},
     {"2", "128", "0", "-5", "1000", "200", "03", "3.0"}},
    {"{\"type\":\"integer\",\"minimum\":-15,\"exclusiveMaximum\":3}",
     {"-15", "-9", "0", "2", "-1"},
     {"3", "-16", "-20", "10", "-100"}},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":99}",
     {"100", "999", "12345"},
     {"99", "9", "-100"}},
    {"{\"type\":\"integer\",\"maximum\":-5}", {"-5", "-10", "-999"}, {"-4", "5", "0"}},
    {"{\"type\":\"number\",\"minimum\":0.5,\"maximum\":12.25}",
     {"0.5", "0.50", "1", "12.25", "12.2", "12.1999", "9.99", "10"},
     {"0.4", "0", "12.26", "12.251", "13", "0.49", "100", "1e0"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":1}",
     {"0.1", "0.999", "0.0001"},
     {"0", "1", "0.0", "1.0", "-0.5"}},
    {"{\"type\":\"number\",\"minimum\":-2.5,\"maximum\":-0.25}",
     {"-2.5", "-1", "-0.25", "-0.3"},
     {"-2.6", "0", "-0.2", "-0.2499", "1"}},
    {"{\"type\":\"integer\",\"multipleOf\":7}",
     {"0", "7", "-14", "7000", "994"},
     {"1", "8", "70001"}},
    {"{\"type\":\"integer\",\"multipleOf\":4,\"minimum\":10,\"maximum\":40}",
     {"12", "16", "40"},
     {"8", "10", "14", "44"}},
    {"{\"type\":\"number\",\"multipleOf\":0.25}", {"0.25", "1", "2.5", "-3.75"}, {"0.3", "0.125"}},
    {"{\"minimum\":5}", {"5", "\"x\"", "null", "[]"}, {"4"}},
    {"{\"type\":\"number\",\"minimum\":1,\"exclusiveMinimum\":true}", {"1.5", "2"}, {"1", "1.0"}},
    {"{\"type\":\"integer\",\"maximum\":9223372036854775807,\"minimum\":0}",
     {"0", "123456789012345678"},
     {"-1", "99999999999999999999"}},
    /* numbers without a limit */
    {"{\"type\":\"integer\"}",
     {"18446744073709551615", "-9223372036854775808", "9999999999999999999999"},
     {"10000000000000000000000", "-10000000000000000000000", "007"}},
    {"{\"type\":\"number\"}",
     {"18446744073709551615", "-9223372036854775808", "1.7976931348623157e308", "5e-324",
      "4.9406564584124654e-324", "0.0000012345678901234567", "123456789012345680000",
      "9999999999999999999999"},
     {"10000000000000000000000", "0.00000000000000000000000", "1e0001", "007"}},
    {"{}",
     {"18446744073709551615", "-9223372036854775808", "1.7976931348623157e308", "5e-324",
      "4.9406564584124654e-324", "0.0000012345678901234567", "123456789012345680000", "[1e-300]"},
     {"10000000000000000000000", "[0.00000000000000000000000]", "1e0001"}},
    {"{\"type\":\"integer\",\"minimum\":0}",
     {"18446744073709551615", "9999999999999999999999"},
     {"10000000000000000000000", "-1"}},
    {"{\"type\":\"number\",\"maximum\":0.5}",
     {"-9999999999999999999999", "-0.1111111111111111111111", "0.5000000000000000000000"},
     {"-10000000000000000000000", "-0.11111111111111111111111", "0.50000000000000000000000"}},
    {"{\"type\":\"number\",\"minimum\":0.5}",
     {"0.5000000000000000000000"},
     {"0.50000000000000000000000", "0.50000000000000000000001"}},
    {"{\"type\":\"integer\",\"minimum\":1e25}",
     {"10000000000000000000000000", "99999999999999999999999999", "999999999999999999999999999"},
     {"9999999999999999999999999", "1000000000000000000000000000"}},
    {"{\"type\":\"number\",\"multipleOf\":0.01}",
     {"0", "100.25", "9999999999999999999999.99"},
     {"0.001", "10000000000000000000000"}},
    {"{\"type\":\"number\",\"not\":{\"type\":\"integer\"}}",
     {"0.0000000000000000000001"},
     {"0.00000000000000000000001", "1.0"}},
    /* strings */
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"", "\"abc\"", "\"\xC3\xA9\\n\"", "\"\\ud83d\\ude00x\""},
     {"\"a\"", "\"abcd\"", "\"\"", "\"\\ud83d\\ude00\""}},
    {"{\"type\":\"string\",\"maxLength\":0}", {"\"\""}, {"\"a\""}},
    {"{\"type\":\"string\",\"pattern\":\"^a+$\",\"maxLength\":3}",
     {"\"a\"", "\"aaa\""},
     {"\"aaaa\"", "\"b\"", "\"\""}},
    {"{\"type\":\"string\",\"pattern\":\"b\"}", {"\"abc\"", "\"b\"", "\"\\nb\""}, {"\"ac\""}},
    {"{\"type\":\"string\",\"pattern\":\"^\\\\W$\"}",
     {"\"\\\"\"", "\"\\\\\"", "\"\\n\""},
     {"\"a\""}},
    {"{\"type\":\"string\",\"format\":\"date\"}",
     {"\"2026-11-22\"", "\"2024-02-29\"", "\"2000-02-29\""},
     {"\"2026-02-29\"", "\"2026-13-01\"", "\"2026-11-31\"", "\"1900-02-29\"", "\"0000-01-01\""}},
    {"{\"format\":\"date-time\"}",
     {"\"2026-11-22T13:05:59.25Z\"", "\"2026-11-22T13:05:59+02:00\"", "7"},
     {"\"2026-11-22\"", "\"2026-11-22T24:00:00Z\"", "\"2026-11-22T13:05:59\""}},
    {"{\"format\":\"uuid\"}", {"\"123e4567-e89b-12d3-A456-426614174000\""}, {"\"123e4567\""}},
    {"{\"format\":\"ipv4\"}",
     {"\"192.168.0.255\""},
     {"\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\""}},
    {"{\"format\":\"ipv6\"}",
     {"\"::1\"", "\"2001:db8::a:0\"", "\"::ffff:1.2.3.4\""},
     {"\"1:2:3\"", "\"::g\"", "\"1::2::3\""}},
    {"{\"format\":\"email\"}", {"\"a.b+c@d-e.org\""}, {"\"a\"", "\"a@\"", "\"@b\"", "\"a b@c\""}},
    {"{\"format\":\"uri\"}",
     {"\"https://a.b:80/c?d=e#f\"", "\"mailto:x@y\"", "\"urn:a:b\""},
     {"\"/a\"", "\"a b\"", "\"\"", "\"http://[::1\""}},
    {"{\"format\":\"uri-reference\"}", {"\"/a/b\"", "\"\"", "\"#x\"", "\"http://a\""}, {"\"a b\""}},
    {"{\"format\":\"time\"}", {"\"23:59:59Z\""}, {"\"24:00:00Z\"", "\"12:00:00\""}},
    {"{\"format\":\"hostname\"}", {"\"a-b.example\""}, {"\"-a\"", "\"a..b\"", "\"\""}},
    {"{\"format\":\"duration\"}",
     {"\"P1DT12H\"", "\"P3W\"", "\"PT1S\""},
     {"\"P\"", "\"PT\"", "\"1D\""}},
    {"{\"format\":\"nobody-knows\"}", {"\"x\"", "1"}, {"x"}},
    /* arrays */
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}",
     {"[]", "[1]", "[1, 2]"},
     {"[\"a\"]", "[1,]"}},
    {"{\"type\":\"array\",\"minItems\":2,\"maxItems\":3}",
     {"[1,2]", "[1,\"a\",null]"},
     {"[]", "[1]", "[1,2,3,4]"}},
    {"{\"type\":\"array\",\"maxItems\":0}", {"[]", "[ ]"}, {"[1]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"string\"},{\"type\":\"integer\"}],\"items\":"
     "false}",
     {"[]", "[\"a\"]", "[\"a\", 1]"},
     {"[1]", "[\"a\",1,2]", "[\"a\",\"b\"]"}},
    {"{\"items\":[{\"const\":1}],\"additionalItems\":{\"const\":2}}",
     {"[]", "[1]", "[1,2,2]", "\"x\""},
     {"[2]", "[1,1]"}},
    {"{\"type\":\"array\",\"items\":{\"const\":1},\"minItems\":20,\"maxItems\":21}",
     {"[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"},
     {"[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"}},
    /* objects */
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"string\"}"
     "},"
     "\"required\":[\"b\"],\"additionalProperties\":false}",
     {"{\"b\":\"\"}", "{\"a\": 1, \"b\": \"x\"}"},
     {"{}", "{\"a\":1}", "{\"b\":\"\",\"a\":1}", "{\"b\":1}", "{\"b\":\"\",\"c\":1}",
      "{\"b\":\"\",\"b\":\"\"}"}},
    {"{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"integer\"}}}",
     {"{}", "{\"ab\":1}", "{\"ab\":1,\"abc\":\"x\"}", "{\"a\":\"x\"}", "{\"\":0,\"b\":0}"},
     {"{\"ab\":\"x\"}", "{\"a\":1,\"ab\":\"x\"}", "{\"\\u0061b\":\"x\"}"}},
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"boolean\"},\"required\":[\"z\"]}",
     {"{\"z\":true}", "{\"z\":true,\"y\":false}"},
     {"{}", "{\"y\":true}", "{\"z\":1}"}},
    {"{\"type\":\"object\",\"patternProperties\":{\"^n_\":{\"type\":\"number\"},\"_s$\":{"
     "\"minimum\":5}},"
     "\"additionalProperties\":false}",
     {"{}", "{\"n_a\":1}", "{\"n_s\":6}", "{\"x_s\":\"t\"}"},
     {"{\"n_a\":\"x\"}", "{\"n_s\":4}", "{\"y\":1}", "{\"x_s\":4}"}},
    {"{\"type\":\"object\",\"properties\":{\"n_b\":{}},\"patternProperties\":{\"^n_\":{\"type\":"
     "\"number\"}}}",
     {"{\"n_b\":1}", "{\"n_c\":1,\"q\":\"x\"}"},
     {"{\"n_b\":\"x\"}", "{\"n_c\":\"x\"}"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[a-c]+$\"},\"properties\":{\"a\":{},"
     "\"d\":{}}}",
     {"{\"a\":1}", "{\"a\":1,\"bb\":2}", "{\"cc\":0}"},
     {"{\"d\":1}", "{\"x\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"additionalProperties\":"
     "false,"
     "\"minProperties\":2}",
     {"{\"a\":1,\"b\":1}", "{\"b\":1,\"c\":1}", "{\"a\":1,\"b\":1,\"c\":1}"},
     {"{}", "{\"a\":1}", "{\"c\":1}"}},
    {"{\"type\":\"object\",\"minProperties\":1,\"maxProperties\":2}",
     {"{\"a\":1}", "{\"a\":1,\"b\":2}"},
     {"{}", "{\"a\":1,\"b\":2,\"c\":3}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"maxProperties\":1}",
     {"{}", "{\"a\":1}", "{\"b\":1}", "{\"c\":1}"},
     {"{\"a\":1,\"b\":1}", "{\"a\":1,\"c\":1}"}},
    {"{\"properties\":{\"a\":false}}", {"{}", "{\"b\":1}", "3"}, {"{\"a\":1}"}},
    /* combinations */
    {"{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"integer\",\"minimum\":5}]}",
     {"\"x\"", "5", "12"},
     {"4", "null"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{}},"
     "\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}],\"additionalProperties\":false}",
     {"{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"b\":2}"},
     {"{}", "{\"a\":\"x\"}", "{\"c\":1}"}},
    {"{\"oneOf\":[{\"type\":\"string\",\"maxLength\":3},{\"type\":\"string\",\"minLength\":2}]}",
     {"\"a\"", "\"abcd\""},
     {"\"ab\"", "\"abc\"", "1"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"additionalProperties\":false,"
     "\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
     {"{\"a\":1}", "{\"b\":1}"},
     {"{}", "{\"a\":1,\"b\":1}"}},
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"x\"},\"v\":{\"type\":"
     "\"integer\"}},"
     "\"required\":[\"k\",\"v\"]},{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"y\"}},"
     "\"required\":[\"k\"]}]}",
     {"{\"k\":\"x\",\"v\":1}", "{\"k\":\"y\"}", "{\"k\":\"y\",\"v\":\"t\"}"},
     {"{\"k\":\"x\"}", "{\"k\":\"z\"}", "{}"}},
    {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"minimum\":3}},\"required\":[\"a\"]}"
     ","
     "{\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"string\"}}}]}",
     {"{\"a\":3}", "{\"a\":4,\"b\":\"x\"}"},
     {"{\"a\":2}", "{\"a\":3.5}", "{\"a\":3,\"b\":1}", "{}"}},
    {"{\"type\":\"string\",\"not\":{\"enum\":[\"a\",\"bc\"]}}",
     {"\"b\"", "\"ab\"", "\"\""},
     {"\"a\"", "\"bc\"", "1"}},
    {"{\"type\":\"object\",\"not\":{\"required\":[\"a\"]}}", {"{}", "{\"b\":1}"}, {"{\"a\":1}"}},
    {"{\"not\":{\"type\":[\"object\",\"array\"]}}", {"1", "\"x\"", "null"}, {"{}", "[]"}},
    {"{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":[\"x\",\"y\"]},\"v\":{}},\"required\":["
     "\"k\",\"v\"],"
     "\"additionalProperties\":false,\"if\":{\"properties\":{\"k\":{\"const\":\"x\"}}},"
     "\"then\":{\"properties\":{\"v\":{\"type\":\"integer\"}}},"
     "\"else\":{\"properties\":{\"v\":{\"type\":\"string\"}}}}",
     {"{\"k\":\"x\",\"v\":1}", "{\"k\":\"y\",\"v\":\"s\"}"},
     {"{\"k\":\"x\",\"v\":\"s\"}", "{\"k\":\"y\",\"v\":1}", "{\"k\":\"x\"}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"dependentRequired\":{\"a\":[\"b\"]}"
     "}",
     {"{}", "{\"b\":1}", "{\"a\":1,\"b\":1}"},
     {"{\"a\":1}", "{\"a\":1,\"c\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"dependencies\":{\"a\":{"
     "\"properties\":"
     "{\"b\":{\"type\":\"integer\"}}}}}",
     {"{\"b\":\"x\"}", "{\"a\":1,\"b\":1}", "{\"a\":1}"},
     {"{\"a\":1,\"b\":\"x\"}"}},
    /* references */
    {"{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"next\":{\"$ref\":\"#/$defs/n\"}},"
     "\"additionalProperties\":false}},\"$ref\":\"#/$defs/n\"}",
     {"{}", "{\"next\":{\"next\":{}}}"},
     {"{\"next\":1}", "{\"next\":{\"x\":{}}}"}},
    {"{\"type\":\"array\",\"items\":{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}}",
     {"[]", "[[],[[null]]]"},
     {"[1]", "null"}},
    {"{\"definitions\":{\"x\":{\"$id\":\"#named\",\"type\":\"integer\"},\"y~/"
     "z\":{\"$anchor\":\"other\",\"const\":2}},"
     "\"anyOf\":[{\"$ref\":\"#named\"},{\"$ref\":\"#/definitions/y~0~1z\"},{\"$ref\":\"#other\"}]}",
     {"1", "2"},
     {"\"x\""}},
    {"{\"$schema\":\"http://json-schema.org/draft-07/"
     "schema#\",\"definitions\":{\"i\":{\"type\":\"integer\"}},"
     "\"$ref\":\"#/definitions/i\",\"minimum\":5}",
     {"1", "7"},
     {"\"x\""}},
    {"{\"$defs\":{\"i\":{\"type\":\"integer\"}},\"$ref\":\"#/$defs/i\",\"minimum\":5}",
     {"7"},
     {"1", "\"x\""}},
    {"{\"$id\":\"https://e.org/"
     "a.json\",\"$defs\":{\"b\":{\"$id\":\"b.json\",\"$defs\":{\"c\":{\"const\":1}},"
     "\"type\":\"string\"}},\"anyOf\":[{\"$ref\":\"b.json\"},{\"$ref\":\"b.json#/$defs/c\"}]}",
     {"\"x\"", "1"},
     {"2"}},
};

static void accepts_only_valid_json(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const schema_case *s = &cases[i];
        const ag_constraint_params p = texts_params(AG_CONSTRAINT_JSON_SCHEMA, s->schema);
        ag_constraint *c = texts_create(&p);
        for (size_t k = 0; k < 8 && s->yes[k]; k++) {
            if (!texts_accepts(c, s->yes[k], strlen(s->yes[k]))) {
                fail_msg("%s refuses %s", s->schema, s->yes[k]);
            }
        }
        for (size_t k = 0; k < 8 && s->no[k]; k++) {
            if (texts_accepts(c, s->no[k], strlen(s->no[k]))) {
                fail_msg("%s accepts %s", s->schema, s->no[k]);
            }
        }
        ag_constraint_destroy(c);
    }
}

static void masks_agree_with_accept(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i += 3) {
        const ag_constraint_params p = texts_params(AG_CONSTRAINT_JSON_SCHEMA, cases[i].schema);
        ag_constraint *c = texts_create(&p);
        ag_error err;
        const char *text = cases[i].yes[1] ? cases[i].yes[1] : cases[i].yes[0];
        for (size_t k = 0; text[k]; k++) {
            if (k % 4 == i % 4) texts_check_mask(c);
            assert_int_equal(ag_constraint_accept(c, texts_byte_id((unsigned char)text[k]), &err),
                             AG_OK);
        }
        ag_constraint_destroy(c);
    }
}

/* {"a": ..., "b": ..., "c": ...}; b and c are required. */
static void any_order_accepts_permuted_properties(void **state) {
    (void)state;
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"$ref\":\"#\"},"
        "\"c\":{\"const\":1}},\"required\":[\"c\"],\"additionalProperties\":{\"type\":\"null\"}}";
    ag_constraint_params p = texts_params(AG_CONSTRAINT_JSON_SCHEMA, schema);
    for (int any = 0; any < 2; any++) {
        p.order = any ? AG_JSON_ANY_ORDER : AG_JSON_DECLARED_ORDER;
        ag_constraint *c = texts_create(&p);
        texts_expect(c, "{\"a\":1,\"c\":1}", true);
        texts_expect(c, "{\"c\":1,\"d\":null}", true);
        texts_expect(c, "{\"c\": 1, \"a\": 2}", any);
        texts_expect(c, "{\"x\":null,\"c\":1,\"y\":null,\"b\":{\"c\":1,\"a\":3},\"a\":0}", any);
        texts_expect(c, "{}", false);
        texts_expect(c, "{\"a\":1}", false);
        texts_expect(c, "{\"x\":null}", false);
        texts_expect(c, "{\"c\":1,\"c\":1}", false);
        texts_expect(c, "{\"c\":1,\"a\":1,\"a\":2}", false);
        texts_expect(c, "{\"c\":1,\"b\":{\"a\":1}}", false);
        texts_expect(c, "{\"c\":2}", false);
        texts_expect(c, "{\"c\":1,}", false);
        ag_error err;
        assert_int_equal(ag_constraint_reset(c, &err), AG_OK);
        for (const char *s = "{\"b\":{\"c\":1"; *s; s++) {
            texts_check_mask(c);
            assert_int_equal(ag_constraint_accept(c, texts_byte_id((unsigned char)*s), &err),
                             AG_OK);
        }
        ag_constraint_destroy(c);
    }
    /* Not writable: a required property that never ends. Left out: an optional one. */
    p = texts_params(
        AG_CONSTRAINT_JSON_SCHEMA,
        "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}");
    p.order = AG_JSON_ANY_ORDER;
    ag_constraint *c;
    ag_error err;
    assert_int_equal(ag_constraint_create(texts_vocab, &p, &c, &err), AG_INVALID);
    p = texts_params(
        AG_CONSTRAINT_JSON_SCHEMA,
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"minItems\":1,\"items\":"
        "{\"$ref\":\"#/properties/a\"}},\"b\":{}},\"additionalProperties\":false}");
    p.order = AG_JSON_ANY_ORDER;
    c = texts_create(&p);
    texts_expect(c, "{\"b\":1}", true);
    texts_expect(c, "{}", true);
    texts_expect(c, "{\"a\":[]}", false);
    ag_constraint_destroy(c);
}

/* Accepts {"a": 1, ...} in an order given by the seed. */
static ag_status accept_shuffled(ag_constraint *c, uint64_t *seed, ag_error *err) {
    char names[] = "abcdefghijkl", text[256], *at = text;
    for (size_t n = sizeof names - 1; n; n--) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        const size_t k = (*seed >> 33) % n;
        at += sprintf(at, "%c\"%c\":1", at == text ? '{' : ',', names[k]);
        names[k] = names[n - 1];
    }
    memcpy(at, "}", 2);
    for (const char *s = text; *s; s++) {
        ag_status st = ag_constraint_accept(c, texts_byte_id((unsigned char)*s), err);
        if (st != AG_OK) return st;
    }
    assert_true(ag_constraint_may_end(c));
    return AG_OK;
}

/* Sets of members that texts open do not accumulate. */
static void any_order_reuses_memory_over_many_texts(void **state) {
    (void)state;
    char schema[1024], *at = schema;
    at += sprintf(at, "{\"additionalProperties\":false,\"type\":\"object\",\"properties\":{");
    for (char name = 'a'; name <= 'l'; name++) {
        at += sprintf(at, "%s\"%c\":{\"const\":1}", name == 'a' ? "" : ",", name);
    }
    memcpy(at, "}}", 3);
    ag_constraint_params p = texts_params(AG_CONSTRAINT_JSON_SCHEMA, schema);
    p.order = AG_JSON_ANY_ORDER;
    p.max_instructions = 2000;
    ag_constraint *c = texts_create(&p), *copy, *inside;
    ag_error err = {.msg = ""};
    uint64_t seed = 1;
    for (int i = 0; i < 100; i++) {
        if (accept_shuffled(c, &seed, &err) != AG_OK) fail_msg("text %d: %s", i, err.msg);
        assert_int_equal(ag_constraint_reset(c, &err), AG_OK);
    }
    /* Clones make the shared DFA need a rebuild. A text that continues is not disturbed. */
    assert_int_equal(ag_constraint_clone(c, &inside, &err), AG_OK);
    for (const char *s = "{\"c\":1,"; *s; s++) {
        assert_int_equal(ag_constraint_accept(inside, texts_byte_id((unsigned char)*s), &err),
                         AG_OK);
    }
    for (int i = 0; i < 100; i++) {
        assert_int_equal(ag_constraint_clone(c, &copy, &err), AG_OK);
        if (accept_shuffled(copy, &seed, &err) != AG_OK) fail_msg("clone %d: %s", i, err.msg);
        ag_constraint_destroy(copy);
    }
    ag_constraint_destroy(c);
    for (const char *s = "\"a\":1}"; *s; s++) {
        assert_int_equal(ag_constraint_accept(inside, texts_byte_id((unsigned char)*s), &err),
                         AG_OK);
    }
    assert_true(ag_constraint_may_end(inside));
    texts_expect(inside, "{\"a\":1,\"b\":1}", true);
    texts_expect(inside, "{\"a\":1,\"a\":1}", false);
    ag_constraint_destroy(inside);
}

typedef struct rejection {
    const char *schema;
    ag_status status;
    const char *message;
} rejection;

static const rejection rejections[] = {
    {"[1]", AG_FORMAT, ""},
    {"{\"type\":\"strin\"}", AG_UNSUPPORTED, "#/type: \"strin\" is not supported"},
    {"{\"items\":{\"uniqueItems\":true}}", AG_UNSUPPORTED, "#/items/uniqueItems"},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"string\"}}", AG_UNSUPPORTED,
     "#/uniqueItems"},
    {"{\"uniqueItems\":true,\"prefixItems\":[{\"const\":1}],\"items\":{\"const\":2}}",
     AG_UNSUPPORTED, "#/uniqueItems: not supported together with prefixItems"},
    {"{\"properties\":{\"a\":{\"unevaluatedItems\":false}}}", AG_UNSUPPORTED,
     "#/properties/a/unevaluatedItems: not supported"},
    {"{\"oneOf\":[{\"contains\":{\"const\":1}},{\"contains\":{\"const\":2}}]}", AG_UNSUPPORTED,
     "#/oneOf: schemas 0 and 1"},
    {"{\"not\":{\"contains\":{\"const\":1}}}", AG_UNSUPPORTED, "#/not"},
    {"{\"if\":{\"contains\":{\"const\":1}},\"then\":{\"minItems\":2}}", AG_UNSUPPORTED, "#/if"},
    {"{\"type\":\"number\",\"minimum\":3,\"not\":{\"multipleOf\":7}}", AG_UNSUPPORTED,
     "#/multipleOf"},
    {"{\"properties\":{\"a/b\":{\"pattern\":\"(\"}}}", AG_FORMAT,
     "#/properties/a~1b/pattern: byte 0"},
    {"{\"pattern\":\"\\\\bx\"}", AG_UNSUPPORTED, "#/pattern: byte 0: \\b"},
    {"{\"anyOf\":[{},{\"format\":\"regex\"}],\"type\":\"string\"}", AG_UNSUPPORTED,
     "#/anyOf/1/format"},
    {"{\"$ref\":\"http://example.org/x\"}", AG_UNSUPPORTED, "#/$ref: \"http://example.org/x\""},
    {"{\"$ref\":\"#/definitions/none\"}", AG_UNSUPPORTED, "is not in the document"},
    {"{\"minLength\":-1}", AG_FORMAT, "#/minLength: not a non-negative integer"},
    {"{\"anyOf\":[]}", AG_FORMAT, "#/anyOf"},
    {"{\"properties\":{\"a\":3}}", AG_FORMAT, "#/properties: not a schema"},
    {"{\"type\":\"object\",\"minProperties\":2}", AG_UNSUPPORTED, "#/minProperties"},
    {"{\"allOf\":[{\"properties\":{\"a\":{}}}],\"unevaluatedProperties\":false}", AG_UNSUPPORTED,
     "#/unevaluatedProperties"},
    {"{\"allOf\":[{\"$ref\":\"#\"}],\"type\":\"string\"}", AG_UNSUPPORTED, "infinite recursion"},
    {"{\"type\":\"number\",\"multipleOf\":0.0001234}", AG_UNSUPPORTED, "multipleOf"},
    {"false", AG_INVALID, "no text matches"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
     AG_INVALID, "no text matches"},
    {"{\"type\":\"array\",\"minItems\":100000}", AG_LIMIT, "#/minItems"},
    {"{\"type\":\"string\",\"pattern\":\"^(a|b)*a(a|b){30}$\"}", AG_LIMIT, "#/pattern"},
};

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void refuse(const char *schema, ag_status status, const char *message) {
    const ag_constraint_params p = texts_params(AG_CONSTRAINT_JSON_SCHEMA, schema);
    ag_constraint *c;
    ag_error err = {.msg = ""};
    const double start = seconds();
    const ag_status st = ag_constraint_create(texts_vocab, &p, &c, &err);
    if (st != status || !strstr(err.msg, message)) {
        fail_msg("%.200s: %s: %s", schema, ag_status_name(st), err.msg);
    }
    assert_null(c);
    assert_true(seconds() - start < 20); /* about 1 s on an idle machine */
}

static void names_the_path_of_unsupported_keywords(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rejections / sizeof rejections[0]; i++) {
        refuse(rejections[i].schema, rejections[i].status, rejections[i].message);
    }
}

/* Returns n copies of a text between two others, with their number for %d. */
static char *repeated(const char *before, const char *format, size_t n, const char *after) {
    const size_t room = strlen(before) + n * (strlen(format) + 24) + strlen(after) + 1;
    char *text = malloc(room), *p = text + sprintf(text, "%s", before);
    for (size_t i = 0; i < n; i++) {
        if (i) *p++ = ',';
        const char *hole = strstr(format, "%d");
        p += sprintf(p, "%.*s%zu%s", (int)(hole - format), format, i, hole + 2);
    }
    strcpy(p, after);
    return text;
}

static void rejects_hostile_schemas_quickly(void **state) {
    (void)state;
    static const struct {
        const char *before, *format;
        size_t n;
        const char *after;
        ag_status status;
    } hostile[] = {
        /* alternatives that multiply */
        {"{\"allOf\":[",
         "{\"anyOf\":[{\"required\":[\"a%d\"]},{\"required\":[\"b\"]},{\"minimum\":7}]}", 200, "]}",
         AG_LIMIT},
        /* each one a separate state */
        {"{\"type\":\"object\",\"minProperties\":900,\"additionalProperties\":false,\"properties\":"
         "{",
         "\"property number %d\":{}", 1000, "}}", AG_LIMIT},
        /* overlapping patterns of names */
        {"{\"patternProperties\":{", "\"x%d\":{\"type\":\"string\"}", 100, "}}", AG_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        char *text = repeated(hostile[i].before, hostile[i].format, hostile[i].n, hostile[i].after);
        refuse(text, hostile[i].status, "");
        free(text);
    }
    /* Nested references are fine: each is one rule. */
    char *chain = repeated("{\"$ref\":\"#/$defs/r0\",\"$defs\":{",
                           "\"r%d\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/last\"}}",
                           5000, ",\"last\":{\"type\":\"null\"}}}");
    const ag_constraint_params p = texts_params(AG_CONSTRAINT_JSON_SCHEMA, chain);
    ag_constraint *c = texts_create(&p);
    texts_expect(c, "[null,null]", true);
    ag_constraint_destroy(c);
    free(chain);
}

static void counts_long_strings_and_lists(void **state) {
    (void)state;
    const ag_constraint_params p =
        texts_params(AG_CONSTRAINT_JSON_SCHEMA,
                     "{\"type\":\"string\",\"minLength\":1000000000000,\"maxLength\":4e18}");
    ag_constraint *c = texts_create(&p);
    texts_expect(c, "\"abc\"", false);
    ag_constraint_destroy(c);
    const ag_constraint_params q = texts_params(
        AG_CONSTRAINT_JSON_SCHEMA, "{\"type\":\"array\",\"maxItems\":1000000,\"items\":{\"type\":"
                                   "\"array\",\"maxItems\":1000000}}");
    c = texts_create(&q);
    texts_expect(c, "[[1,2],[],[[]]]", true);
    ag_constraint_destroy(c);
}

/* A random walk over allowed tokens ends in a text that matches the schema, or is cut off. */
static void random_walks_end_in_valid_json(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i += 4) {
        const ag_constraint_params p = texts_params(AG_CONSTRAINT_JSON_SCHEMA, cases[i].schema);
        ag_constraint *c = texts_create(&p);
        ag_text text = {0};
        texts_walk(c, 7 * i + 1, 40, &text);
        const bool ended = ag_constraint_has_ended(c);
        if (ended) assert_true(texts_accepts(c, text.data, text.len));
        ag_text_free(&text);
        ag_constraint_destroy(c);
    }
}

static bool create_once(const char *schema, ag_json_order order) {
    ag_constraint_params p = texts_params(AG_CONSTRAINT_JSON_SCHEMA, schema);
    p.order = order;
    ag_constraint *c;
    ag_error err;
    ag_ids ids = {0};
    ag_status st = ag_constraint_create(texts_vocab, &p, &c, &err);
    for (const char *s = "{\"a\":\"x\""; *s && st == AG_OK; s++) {
        const uint32_t *mask;
        st = ag_constraint_mask(c, &mask, &err);
        if (st == AG_OK) st = ag_constraint_accept(c, texts_byte_id((unsigned char)*s), &err);
    }
    if (st == AG_OK) st = ag_constraint_forced(c, 3, &ids, &err);
    ag_ids_free(&ids);
    ag_constraint_destroy(c);
    if (st != AG_OK && st != AG_NOMEM) fail_msg("%s: %s", schema, err.msg);
    return st == AG_OK;
}

static void survives_failed_allocations(void **state) {
    (void)state;
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[\"x\",[1]]},\"b\":{\"$ref\":\"#/"
        "$defs/d\"}},"
        "\"patternProperties\":{\"^c\":{\"minLength\":2}},\"propertyNames\":{\"pattern\":\"[a-z]\"}"
        ","
        "\"required\":[\"a\"],\"oneOf\":[{\"required\":[\"b\"]},{\"required\":[\"cc\"]}],"
        "\"$defs\":{\"d\":{\"type\":\"number\",\"multipleOf\":3,\"minimum\":4}}}";
    for (int any = 0; any < 2; any++) {
        const ag_json_order order = any ? AG_JSON_ANY_ORDER : AG_JSON_DECLARED_ORDER;
        assert_true(create_once(schema, order)); /* the vocabulary has made its JSON rules now */
        bool done = false;
        size_t n_failed = 0;
        for (size_t nth = 0; !done; nth += nth < 150 ? 1 : 7) {
            failing_allocator f;
            failing_install(&f, nth);
            done = create_once(schema, order);
            ag_set_allocator(NULL);
            assert_int_equal(atomic_load(&f.in_use), 0);
            n_failed += !done;
        }
        assert_true(n_failed > 100);
    }
}

static void creation_reports_each_failed_allocation(void **state) {
    (void)state;
    const ag_constraint_params p =
        texts_params(AG_CONSTRAINT_JSON_SCHEMA,
                     "{\"items\":{\"type\":\"number\",\"multipleOf\":3,\"minimum\":4}}");
    ag_constraint *c;
    assert_int_equal(ag_constraint_create(texts_vocab, &p, &c, NULL), AG_OK);
    ag_constraint_destroy(c);
    bool failed = true;
    for (size_t nth = 0; failed; nth++) {
        failing_allocator f;
        failing_install(&f, nth);
        const ag_status st = ag_constraint_create(texts_vocab, &p, &c, NULL);
        failed = atomic_load(&f.failed);
        assert_int_equal(st, failed ? AG_NOMEM : AG_OK);
        ag_constraint_destroy(c);
        assert_int_equal(atomic_load(&f.in_use), 0);
        ag_set_allocator(NULL);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_only_valid_json),
        cmocka_unit_test(masks_agree_with_accept),
        cmocka_unit_test(any_order_accepts_permuted_properties),
        cmocka_unit_test(any_order_reuses_memory_over_many_texts),
        cmocka_unit_test(names_the_path_of_unsupported_keywords),
        cmocka_unit_test(rejects_hostile_schemas_quickly),
        cmocka_unit_test(counts_long_strings_and_lists),
        cmocka_unit_test(random_walks_end_in_valid_json),
        cmocka_unit_test(survives_failed_allocations),
        cmocka_unit_test(creation_reports_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, texts_setup, texts_teardown);
}
