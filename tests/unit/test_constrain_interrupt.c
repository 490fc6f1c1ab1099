/* SPDX-License-Identifier: Apache-2.0 */
/* Compiling a constraint ends within 50 ms after its thread is interrupted, for any input. */
#include "constrain_texts.h"

#include "support/sanitized.h"
#include "support/stride.h"

#include <time.h>

#if SANITIZED
enum { SLOWER = 20 };
#else
enum { SLOWER = 1 };
#endif

/* Returns the maximum of processor seconds between two interrupt checks. */
static double longest_allowed(void) { return 0.05 * SLOWER * (test_stride() > 1 ? 20 : 1); }

static double thread_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct {
    size_t n_checks, end_at; /* SIZE_MAX: never */
    double last, longest;
} checks;

static void record_time(void) {
    const double now = thread_s();
    if (now - checks.last > checks.longest) checks.longest = now - checks.last;
    checks.last = now;
}

static bool check_interrupt(void *user) {
    (void)user;
    record_time();
    return ++checks.n_checks >= checks.end_at;
}

static ag_status compile(const ag_constraint_params *p, size_t end_at, ag_error *err) {
    ag_constraint *c;
    checks.n_checks = 0;
    checks.end_at = end_at;
    checks.longest = 0;
    ag_set_thread_interrupt(check_interrupt, NULL);
    checks.last = thread_s();
    const ag_status st = ag_constraint_create(texts_vocab, p, &c, err);
    record_time();
    ag_set_thread_interrupt(NULL, NULL);
    ag_constraint_destroy(c);
    return st;
}

/* Compiles without an interrupt, then with one in the middle of the work. */
static void expect_interruptible(const char *what, const ag_constraint_params *p) {
    ag_error err = {.msg = ""};
    const ag_status st = compile(p, SIZE_MAX, &err);
    const size_t n = checks.n_checks;
    if (st != AG_OK && st != AG_LIMIT) fail_msg("%s: %s", what, err.msg);
    if (n < 2) fail_msg("%s: %zu interrupt checks", what, n);
    if (checks.longest > longest_allowed())
        fail_msg("%s: no interrupt check for %.3f s", what, checks.longest);
    assert_int_equal(compile(p, 1 + n / 2, &err), AG_CANCELLED);
    assert_non_null(strstr(err.msg, "interrupted"));
    if (checks.longest > longest_allowed())
        fail_msg("%s: continues for %.3f s after the interrupt", what, checks.longest);
    if (checks.n_checks > 1 + n / 2 + 16) /* it ends and does not try other parts */
        fail_msg("%s: %zu interrupt checks too many", what, checks.n_checks - 1 - n / 2);
}

/* Returns n copies of a text between two others, with their number for each %d. */
static char *numbered(const char *before, const char *format, int n, const char *after,
                      const char *between) {
    const size_t room =
        strlen(before) + (size_t)n * (strlen(format) + strlen(between) + 24) + strlen(after) + 1;
    char *text = malloc(room), *at = text;
    assert_non_null(text);
    at += sprintf(at, "%s", before);
    for (int i = 0; i < n; i++) {
        if (i) at += sprintf(at, "%s", between);
        for (const char *f = format; *f; f++) {
            if (f[0] == '%' && f[1] == 'd') at += sprintf(at, "%d", i), f++;
            else *at++ = *f;
        }
    }
    strcpy(at, after);
    return text;
}

typedef struct large_text {
    const char *what;
    ag_constraint_kind kind;
    const char *before, *format;
    int n;
    const char *after, *between;
} large_text;

static const large_text texts[] = {
    {"properties", AG_CONSTRAINT_JSON_SCHEMA, "{\"properties\":{", "\"p%d\":{\"type\":\"null\"}",
     25000, "}}", ","},
    {"required names", AG_CONSTRAINT_JSON_SCHEMA, "{\"required\":[", "\"p%d\"", 25000, "]}", ","},
    {"an enumeration", AG_CONSTRAINT_JSON_SCHEMA, "{\"enum\":[", "\"value %d\"", 50000, "]}", ","},
    {"enumerated objects", AG_CONSTRAINT_JSON_SCHEMA, "{\"enum\":[", "{\"a\":[%d,{\"b\":%d}]}",
     10000, "]}", ","},
    {"alternatives", AG_CONSTRAINT_JSON_SCHEMA, "{\"anyOf\":[",
     "{\"properties\":{\"a%d\":{\"type\":\"string\"}},\"required\":[\"a%d\"]}", 4000, "]}", ","},
    {"overlapping alternatives", AG_CONSTRAINT_JSON_SCHEMA, "{\"oneOf\":[",
     "{\"properties\":{\"a%d\":{\"maxLength\":3}}}", 200, "]}", ","},
    {"schemas that all hold", AG_CONSTRAINT_JSON_SCHEMA, "{\"allOf\":[",
     "{\"properties\":{\"a%d\":{\"type\":\"string\"}}}", 2000, "]}", ","},
    {"large patterns", AG_CONSTRAINT_JSON_SCHEMA, "{\"oneOf\":[",
     "{\"pattern\":\"^((a|b){%d})*$\"}", 300, "]}", ","},
    {"names of schemas", AG_CONSTRAINT_JSON_SCHEMA, "{\"$defs\":{",
     "\"d%d\":{\"$anchor\":\"name%d\"}", 20000, "},\"$ref\":\"#name0\"}", ","},
    {"annotations", AG_CONSTRAINT_JSON_SCHEMA, "{\"default\":[", "[%d,\"text\"]", 100000,
     "],\"enum\":[1,2]}", ","},
    {"a large automaton", AG_CONSTRAINT_REGEX, "", "(a|b)*a(a|b){15}", 1, "", ""},
    {"an empty part repeated", AG_CONSTRAINT_REGEX, "", "((){30000}){30000}x", 1, "", ""},
    {"a long expression", AG_CONSTRAINT_REGEX, "", "ab%d[xyz]?", 20000, "", ""},
    {"a wide alternative", AG_CONSTRAINT_REGEX, "", "word%d", 20000, "", "|"},
    {"anchors", AG_CONSTRAINT_REGEX, "", "^", 200000, "a", ""},
    {"a class", AG_CONSTRAINT_REGEX, "[", "\\u{1%d}", 9000, "]+", ""},
    {"rules", AG_CONSTRAINT_GRAMMAR, "root ::= r0\nr60000 ::= \"x\"\n", "r%d ::= \"a\" | r60000\n",
     60000, "", ""},
    {"a long literal", AG_CONSTRAINT_GRAMMAR, "root ::= \"", "text%d ", 20000, "\"", ""},
    {"a comment", AG_CONSTRAINT_GRAMMAR, "root ::= [a-z]{0,3000}{2}\n#", " some words", 200000, "",
     ""},
    {"repeated parts", AG_CONSTRAINT_GRAMMAR, "root ::= ", "([a-z] | \"x\"){1000}{900}", 1, "", ""},
    {"an empty part in a grammar", AG_CONSTRAINT_GRAMMAR, "root ::= ", "(\"\"{30000}){30000} \"x\"",
     1, "", ""},
};

static void interrupt_ends_compilation(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const large_text *t = &texts[i];
        const int n = t->n > 300 ? t->n / (int)test_stride() : t->n;
        char *text = numbered(t->before, t->format, n, t->after, t->between);
        ag_constraint_params p = texts_params(t->kind, text);
        expect_interruptible(t->what, &p);
        free(text);
    }
}

static void interrupt_ends_compiling_many_choices(void **state) {
    enum { CHOICES = 50000 };
    static char texts_of[CHOICES][16];
    static const char *choices[CHOICES];
    (void)state;
    for (int i = 0; i < CHOICES; i++) {
        snprintf(texts_of[i], sizeof texts_of[i], "%d choice", i);
        choices[i] = texts_of[i];
    }
    ag_constraint_params p = texts_params(AG_CONSTRAINT_CHOICES, NULL);
    p.choices = choices;
    p.n_choices = CHOICES / test_stride();
    expect_interruptible("choices", &p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(interrupt_ends_compilation),
        cmocka_unit_test(interrupt_ends_compiling_many_choices),
    };
    return cmocka_run_group_tests(tests, texts_setup, texts_teardown);
}
