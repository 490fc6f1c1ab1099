/* SPDX-License-Identifier: Apache-2.0 */
/* Options --json-schema, --json-object, --grammar, --regex and --choice. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RUN(...) CLI("generate", QUICK, "-q", "-p", "The old king", "-n", "80", __VA_ARGS__)

/* Without "additionalProperties": objects are closed. */
static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":12},"
    "\"age\":{\"type\":\"integer\",\"minimum\":20,\"maximum\":29},"
    "\"kind\":{\"enum\":[\"king\",\"fairy\"]}},\"required\":[\"name\",\"age\",\"kind\"]}";

static void check_person(const char *text) {
    json_error_t e;
    json_t *v = json_loads(text, 0, &e);
    if (!v) fail_msg("%s: %s", text, e.text);
    const char *name = json_string_value(json_object_get(v, "name"));
    const char *kind = json_string_value(json_object_get(v, "kind"));
    const json_int_t age = json_integer_value(json_object_get(v, "age"));
    assert_int_equal(json_object_size(v), 3);
    assert_non_null(name);
    assert_non_null(kind);
    assert_true(age >= 20 && age <= 29);
    assert_true(!strcmp(kind, "king") || !strcmp(kind, "fairy"));
    json_decref(v);
}

static void text_matches_schema(void **state) {
    (void)state;
    for (int seed = 1; seed <= 6; seed++) {
        char number[16];
        snprintf(number, sizeof number, "%d", seed);
        cli_result r = RUN("--json-schema", schema, "--seed", number, "--temp", "1",
                           "--json-spacing", "compact");
        assert_code(&r, 0);
        check_person(r.out);
        cli_free(&r);
    }
}

static void reads_schema_from_file(void **state) {
    (void)state;
    char path[] = "/tmp/antigravity-schema-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, schema, sizeof schema - 1), sizeof schema - 1);
    close(fd);
    cli_result r = RUN("--json-schema", path, "--json-spacing", "compact");
    assert_code(&r, 0);
    check_person(r.out);
    cli_free(&r);
    r = RUN("--json-schema", "/nowhere/schema.json");
    assert_true(r.code != 0);
    assert_says(r.err, "/nowhere/schema.json");
    cli_free(&r);
    unlink(path);
}

/* Text that would end an answer in the template's format is allowed in the answer. */
static void ignores_template_stops_under_constraint(void **state) {
    (void)state;
    static const char jinja[] = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
                                "<|im_end|>\n{% endfor %}<|im_start|>assistant\n";
    char path[] = "/tmp/antigravity-template-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, jinja, sizeof jinja - 1), sizeof jinja - 1);
    close(fd);
    cli_result r = RUN("--chat", "--chat-template", path, "--choice", "a<|im_end|>b");
    assert_code(&r, 0);
    assert_says(r.out, "a<|im_end|>b");
    cli_free(&r);
    unlink(path);
}

static void drafts_keep_constrained_text(void **state) {
    (void)state;
    const char *const how[] = {"off", "always"};
    char *texts[2];
    for (int i = 0; i < 2; i++) {
        cli_result r =
            RUN("--regex", "(the|old|king|,| ){60}", "--seed", "5", "--speculate", how[i]);
        assert_code(&r, 0);
        texts[i] = strdup(r.out);
        cli_free(&r);
    }
    assert_string_equal(texts[0], texts[1]);
    assert_true(strlen(texts[0]) > 60);
    free(texts[0]);
    free(texts[1]);
}

static void text_matches_choices_and_expressions(void **state) {
    (void)state;
    cli_result r = RUN("--choice", "was here,went\\, alas", "--choice", "slept");
    assert_code(&r, 0);
    assert_true(!strcmp(r.out, "was here\n") || !strcmp(r.out, "went, alas\n") ||
                !strcmp(r.out, "slept\n"));
    cli_free(&r);
    r = RUN("--regex", "[0-9]{3}-[a-f]");
    assert_code(&r, 0);
    assert_int_equal(strlen(r.out), 6);
    assert_int_equal(r.out[3], '-');
    cli_free(&r);
    r = RUN("--grammar", "root ::= \"(\" root \")\" | \"king\"", "--seed", "1");
    assert_code(&r, 0);
    assert_says(r.out, "king");
    cli_free(&r);
}

static void reports_text_cut_off_before_constraint_is_met(void **state) {
    (void)state;
    cli_result r = RUN("--json-object", "-n", "3");
    assert_code(&r, 1);
    assert_int_equal(r.out[0], '{');
    assert_string_equal(r.err, "antigravity generate: the text was cut off before it met the "
                               "constraint (--max-tokens 3)\n");
    cli_free(&r);
    r = RUN("--regex", "[a-z ]{400}", "-c", "40");
    assert_code(&r, 1);
    assert_says(r.err, "(the context of 40 tokens is full: --max-seq-len)");
    assert_ptr_equal(strchr(r.err, '\n'), r.err + r.n_err - 1);
    cli_free(&r);
    /* The JSON is printed too. */
    r = RUN("--json-object", "-n", "3", "--json");
    assert_code(&r, 1);
    json_t *said = cli_json(&r);
    assert_string_equal(json_string_value(json_object_get(said, "finish_detail")), "max_tokens");
    json_decref(said);
    cli_free(&r);
    /* The text may end here, so it is not a fragment. -n 0 asks for no text. */
    r = RUN("--regex", "[a-z ]*", "-n", "3");
    assert_code(&r, 0);
    cli_free(&r);
    r = RUN("--json-object", "-n", "0");
    assert_code(&r, 0);
    cli_free(&r);
}

static void rejects_invalid_constraints(void **state) {
    (void)state;
    static const struct {
        const char *option, *value, *says;
    } cases[] = {
        {"--json-schema", "{\"properties\":{\"a\":{\"unevaluatedItems\":{}}}}",
         "#/properties/a/unevaluatedItems"},
        {"--json-schema", "false", "no text matches"},
        {"--regex", "a(", "byte 1: ( without )"},
        {"--choice", "a,,b", "a choice is empty"},
        {"--grammar", "root ::= other", "rule other is not defined"},
        {"--json-spacing", "wide", "wide"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cli_result r = RUN(cases[i].option, cases[i].value);
        assert_code(&r, 2);
        assert_says(r.err, cases[i].says);
        cli_free(&r);
    }
    cli_result r = RUN("--regex", "a", "--json-object");
    assert_code(&r, 2);
    assert_says(r.err, "exclude each other");
    cli_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_matches_schema),
        cmocka_unit_test(reads_schema_from_file),
        cmocka_unit_test(ignores_template_stops_under_constraint),
        cmocka_unit_test(drafts_keep_constrained_text),
        cmocka_unit_test(text_matches_choices_and_expressions),
        cmocka_unit_test(reports_text_cut_off_before_constraint_is_met),
        cmocka_unit_test(rejects_invalid_constraints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
