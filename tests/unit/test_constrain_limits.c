/* SPDX-License-Identifier: Apache-2.0 */
/* Hostile constraints end quickly and in little memory, while they are compiled and while a text is
 * generated. Time limits are generous, for sanitizers and busy machines. */
#include "constrain_texts.h"

#include "constrain/interner.h"
#include "support/stride.h"

#include <time.h>

static double cpu_seconds(void) { return (double)clock() / CLOCKS_PER_SEC; }

/* At most 20 s of processor time; about 1 s where nothing slows tests down. */
static bool is_fast(double start) { return cpu_seconds() - start < 20 * (double)test_stride(); }

static char *times(const char *part, size_t n, const char *end) {
    const size_t len = strlen(part);
    char *text = malloc(n * len + strlen(end) + 1);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++) memcpy(text + i * len, part, len);
    strcpy(text + n * len, end);
    return text;
}

static ag_status accept_byte(ag_constraint *c, char byte, ag_error *err) {
    return ag_constraint_accept(c, texts_byte_id((unsigned char)byte), err);
}

/* ---- compiling ---- */

static void strips_many_anchors_quickly(void **state) {
    (void)state;
    char *text = times("^", 110000, "a");
    const double start = cpu_seconds();
    const ag_constraint_params p = texts_params(AG_CONSTRAINT_REGEX, text);
    ag_constraint *c = texts_create(&p);
    assert_true(is_fast(start));
    texts_expect(c, "a", true);
    texts_expect(c, "^a", false);
    ag_constraint_destroy(c);
    free(text);
}

/* Anchors and lookaheads at the start are found in groups, too, and each is removed once. */
static void strips_anchors_and_lookaheads_in_order(void **state) {
    (void)state;
    static const struct {
        const char *regex, *yes, *no;
    } cases[] = {
        {"^(?:^(?=a)[ab]+)c", "abc", "bac"},
        {"(?=a)", "", "a"},
        {"^(?=.*b)^(?!.*c)^[abc]{3}", "aab", "abc"},
        {"(?:(?:^(?!x)))[xy]", "y", "x"},
        {"^", "", "a"},
        {"(?:^a|b)c", "bc", "c"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const ag_constraint_params p = texts_params(AG_CONSTRAINT_REGEX, cases[i].regex);
        ag_constraint *c;
        ag_error err;
        const ag_status st = ag_constraint_create(texts_vocab, &p, &c, &err);
        if (!*cases[i].yes && st == AG_INVALID) continue; /* matches no text */
        assert_int_equal(st, AG_OK);
        if (*cases[i].yes) texts_expect(c, cases[i].yes, true);
        texts_expect(c, cases[i].no, false);
        ag_constraint_destroy(c);
    }
}

static ag_status compile(const char *schema, const char *message, ag_constraint **c) {
    const ag_constraint_params p = texts_params(AG_CONSTRAINT_JSON_SCHEMA, schema);
    ag_error err = {.msg = ""};
    const double start = cpu_seconds();
    const ag_status st = ag_constraint_create(texts_vocab, &p, c, &err);
    if (!strstr(err.msg, message)) fail_msg("%s: %s", message, err.msg);
    assert_true(is_fast(start));
    return st;
}

/* Returns n copies of a text between two others, with their number for each %d. */
static char *numbered(const char *before, const char *format, int n, const char *after) {
    const size_t room = strlen(before) + (size_t)n * (strlen(format) + 24) + strlen(after) + 1;
    char *text = malloc(room), *at = text;
    assert_non_null(text);
    at += sprintf(at, "%s", before);
    for (int i = 0; i < n; i++) {
        if (i) *at++ = ',';
        for (const char *f = format; *f; f++) {
            if (f[0] == '%' && f[1] == 'd') at += sprintf(at, "%d", i), f++;
            else *at++ = *f;
        }
    }
    strcpy(at, after);
    return text;
}

/* Each one alone is small enough, and each pair. */
static void limits_total_work_of_patterns(void **state) {
    (void)state;
    char *text = numbered("{\"oneOf\":[", "{\"pattern\":\"^((a|b){%d})*$\"}", 300, "]}");
    ag_constraint *c;
    assert_int_equal(compile(text, "the patterns are too expensive: together", &c), AG_LIMIT);
    free(text);
    /* Equal patterns are compiled once. */
    text = numbered("{\"properties\":{",
                    "\"p%d\":{\"minimum\":%d,\"pattern\":\"^(a|b)*a(a|b){8}$\"}", 300, "}}");
    assert_int_equal(compile(text, "", &c), AG_OK);
    texts_expect(c, "{\"p7\":\"aabbaababa\",\"p9\":9}", true);
    texts_expect(c, "{\"p7\":\"bbbbbabab\"}", false);
    ag_constraint_destroy(c);
    free(text);
}

static void limits_references_times_anchors(void **state) {
    (void)state;
    char *text = numbered("{\"$defs\":{", "\"d%d\":{\"$anchor\":\"name%d\",\"type\":\"null\"}",
                          10000, "},\"properties\":{");
    char *all = numbered(text, "\"p%d\":{\"$ref\":\"#name%d\"}", 10000, "}}");
    ag_constraint *c;
    assert_int_equal(compile(all, "too many references among 10000 names", &c), AG_LIMIT);
    free(all);
    all = numbered(text, "\"p%d\":{\"$ref\":\"#name%d\"}", 500, "}}");
    assert_int_equal(compile(all, "", &c), AG_OK);
    texts_expect(c, "{\"p499\":null}", true);
    texts_expect(c, "{\"p499\":1}", false);
    ag_constraint_destroy(c);
    free(all);
    free(text);
}

static void rejects_many_property_names_quickly(void **state) {
    (void)state;
    char *text =
        numbered("{\"properties\":{", "\"p%d\":{\"type\":\"null\"}", 100000, "},\"required\":[");
    char *all = numbered(text, "\"q%d\"", 100000, "]}");
    ag_constraint *c;
    assert_int_equal(compile(all, "more than 65536", &c), AG_LIMIT);
    free(all);
    free(text);
}

/* The strings differ in their first character. */
static void compiles_large_enums_quickly(void **state) {
    (void)state;
    enum { WORDS = 50000 };
    char *text = malloc(WORDS * 16 + 100), *at = text;
    assert_non_null(text);
    at += sprintf(at, "{\"enum\":[");
    for (unsigned i = 0; i < WORDS; i++) { /* U+10000 and later, not in order */
        const unsigned cp = 0x10000 + i * 7919u % WORDS;
        at += sprintf(at, "%s\"%c%c%c%cx\"", i ? "," : "", (char)(0xF0 | cp >> 18),
                      (char)(0x80 | (cp >> 12 & 63)), (char)(0x80 | (cp >> 6 & 63)),
                      (char)(0x80 | (cp & 63)));
    }
    strcpy(at, "]}");
    ag_constraint *c;
    assert_int_equal(compile(text, "", &c), AG_OK);
    texts_expect(c, "\"\xF0\x90\x80\x80x\"", true);
    texts_expect(c, "\"\xF0\x9C\x8D\x8Fx\"", true); /* U+1C34F, the last one */
    texts_expect(c, "\"\xF0\x9C\x8D\x90x\"", false);
    texts_expect(c, "\"\xF0\x90\x80\x80\"", false);
    ag_constraint_destroy(c);
    free(text);
}

/* A name that contains NUL is not a prefix of another. */
static void supports_nul_in_required_names(void **state) {
    (void)state;
    ag_constraint *c;
    assert_int_equal(compile("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}},"
                             "\"required\":[\"a\\u0000b\",\"c\",\"a\\u0000b\"]}",
                             "", &c),
                     AG_OK);
    texts_expect(c, "{\"c\":1,\"a\\u0000b\":2}", true);
    texts_expect(c, "{\"c\":1,\"a\":null}", false);
    texts_expect(c, "{\"c\":1}", false);
    ag_constraint_destroy(c);
}

static void supports_escaped_nul_in_regexes(void **state) {
    (void)state;
    static const char regex[] = "x\\\0y|\\\0";
    ag_constraint_params p = texts_params(AG_CONSTRAINT_REGEX, regex);
    p.len = sizeof regex - 1;
    ag_constraint *c = texts_create(&p);
    assert_true(texts_accepts(c, "x\0y", 3));
    assert_true(texts_accepts(c, "\0", 1));
    assert_false(texts_accepts(c, "xy", 2));
    assert_false(texts_accepts(c, "x0y", 3));
    ag_constraint_destroy(c);
    assert_int_equal(compile("{\"type\":\"string\",\"pattern\":\"^\\\\\\u0000$\"}", "", &c), AG_OK);
    texts_expect(c, "\"\\u0000\"", true);
    texts_expect(c, "\"0\"", false);
    ag_constraint_destroy(c);
}

/* The limit holds for all lists together. A list that does not fit changes nothing. */
static void interner_limits_numbers_of_all_lists(void **state) {
    (void)state;
    const size_t n = AG_INTERNER_NUMBERS / 2;
    uint32_t *list = calloc(n, sizeof *list);
    assert_non_null(list);
    ag_interner t = {0};
    ag_error err;
    uint32_t id;
    for (uint32_t i = 0; i < 2; i++) {
        list[0] = i;
        assert_int_equal(ag_interner_add(&t, list, n, 10, "a test", &id, &err), AG_OK);
        assert_int_equal(id, i);
    }
    list[0] = 2;
    assert_int_equal(ag_interner_add(&t, list, 1, 10, "a test", &id, &err), AG_LIMIT);
    assert_non_null(strstr(err.msg, "a test: states of more than 33554432 numbers"));
    assert_int_equal(t.n, 2);
    list[0] = 1;
    assert_int_equal(ag_interner_add(&t, list, n, 10, "a test", &id, &err), AG_OK);
    assert_int_equal(id, 1); /* already known */
    assert_int_equal(ag_interner_add(&t, list, 0, 2, "a test", &id, &err), AG_LIMIT);
    assert_non_null(strstr(err.msg, "more than 2 states"));
    ag_interner_free(&t);
    free(list);
}

/* ---- while a text is generated ---- */

static void limits_bytes_of_states(void **state) {
    (void)state;
    ag_constraint_params p = texts_params(AG_CONSTRAINT_REGEX, "[^\\n]{30000}");
    p.max_state_bytes = 1 << 20;
    ag_constraint *c = texts_create(&p);
    ag_error err;
    for (int text = 0; text < 2; text++) { /* the second text starts with a new DFA */
        ag_status st = AG_OK;
        int n = 0;
        while (st == AG_OK && n < 30000) n += (st = accept_byte(c, 'x', &err)) == AG_OK;
        assert_int_equal(st, AG_LIMIT);
        assert_non_null(strstr(err.msg, "states take more than 1048576 bytes"));
        assert_in_range(n, 100, 20000);
        assert_int_equal(ag_constraint_reset(c, &err), AG_OK);
    }
    ag_constraint_destroy(c);
    p.max_state_bytes = (size_t)128 << 20;
    c = texts_create(&p);
    for (int n = 0; n < 30000; n++) assert_int_equal(accept_byte(c, 'x', &err), AG_OK);
    assert_true(ag_constraint_may_end(c));
    ag_constraint_destroy(c);
}

static void limits_bytes_of_open_rules(void **state) {
    (void)state;
    ag_constraint_params p =
        texts_params(AG_CONSTRAINT_GRAMMAR, "root ::= \"a\" root \"b\" | \"c\"");
    p.max_state_bytes = 1 << 20;
    ag_constraint *c = texts_create(&p);
    ag_error err;
    ag_status st = AG_OK;
    int n = 0;
    while (st == AG_OK && n < 500000) n += (st = accept_byte(c, 'a', &err)) == AG_OK;
    assert_int_equal(st, AG_LIMIT);
    assert_non_null(strstr(err.msg, "open rules take more than 1048576 bytes"));
    assert_in_range(n, 10000, 200000);
    assert_int_equal(accept_byte(c, 'c', &err), AG_OK); /* the text is unchanged */
    ag_constraint_destroy(c);
}

/* Rules that a text can be in at the same time and leave after any character; each continues with
 * all of them. */
static char *ambiguous_grammar(int rules) {
    char *text = malloc((size_t)rules * 40 + 100), *at = text;
    assert_non_null(text);
    at += sprintf(at, "root ::= any*\nany ::= ");
    for (int i = 0; i < rules; i++) at += sprintf(at, "%sr%d", i ? " | " : "", i);
    for (int i = 0; i < rules; i++) at += sprintf(at, "\nr%d ::= [^\\U%08X]", i, 0x4E00 + i);
    strcpy(at, "\n");
    return text;
}

static void limits_steps_of_ambiguous_masks(void **state) {
    (void)state;
    char *text = ambiguous_grammar(400);
    const ag_constraint_params p = texts_params(AG_CONSTRAINT_GRAMMAR, text);
    ag_constraint *c = texts_create(&p);
    ag_error err;
    const uint32_t *mask;
    const double start = cpu_seconds();
    ag_status st = AG_OK;
    for (int i = 0; i < 4 && st == AG_OK; i++) {
        st = ag_constraint_mask(c, &mask, &err);
        if (st == AG_OK) st = accept_byte(c, 'a', &err);
    }
    assert_int_equal(st, AG_LIMIT);
    if (!strstr(err.msg, "one token needs more than 16777216 steps")) fail_msg("%s", err.msg);
    assert_true(is_fast(start));
    ag_constraint_destroy(c);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strips_many_anchors_quickly),
        cmocka_unit_test(strips_anchors_and_lookaheads_in_order),
        cmocka_unit_test(limits_total_work_of_patterns),
        cmocka_unit_test(limits_references_times_anchors),
        cmocka_unit_test(rejects_many_property_names_quickly),
        cmocka_unit_test(compiles_large_enums_quickly),
        cmocka_unit_test(supports_nul_in_required_names),
        cmocka_unit_test(supports_escaped_nul_in_regexes),
        cmocka_unit_test(interner_limits_numbers_of_all_lists),
        cmocka_unit_test(limits_bytes_of_states),
        cmocka_unit_test(limits_bytes_of_open_rules),
        cmocka_unit_test(limits_steps_of_ambiguous_masks),
    };
    return cmocka_run_group_tests(tests, texts_setup, texts_teardown);
}
