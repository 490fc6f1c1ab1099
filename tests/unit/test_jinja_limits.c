/* SPDX-License-Identifier: Apache-2.0 */
/* Limits: untrusted templates that would run without end or use all memory fail within a second.
 * Each allocation may fail without a leak. */
#include "support/failing_allocator.h"
#include "support/jinja_case.h"
#include "support/sanitized.h"

#include <time.h>

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Checks that the template fails with `status` within the time limit. */
static void check_bounded(const char *template, const char *variables, ag_status status) {
    double begin = seconds();
    ag_jinja_output out;
    ag_error err = {.msg = ""};
    ag_status st = jinja_run(template, variables, NULL, &out, &err);
    double took = seconds() - begin;
    if (st != status) { fail_msg("%.80s: %s \"%s\"", template, ag_status_name(st), err.msg); }
#if defined(__OPTIMIZE__) && !SANITIZED
    if (took > 1) print_message("%.60s: %.2f s\n", template, took);
#endif
    assert_true(took < 20); /* includes emulators and sanitizers */
    ag_jinja_output_free(&out);
}

static void stops_endless_loops(void **state) {
    (void)state;
    check_bounded("{% for i in range(10**9) %}{% endfor %}", NULL, AG_LIMIT);
    check_bounded(
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", NULL,
        AG_LIMIT);
    check_bounded("{% set l = range(99999)|list %}{% for a in l %}{% if a in l %}{% endif %}"
                  "{% if -1 in l %}{% endif %}{% endfor %}",
                  NULL, AG_LIMIT);
    check_bounded("{% set s = 'ab' * 500000 %}{% for a in range(100000) %}{% set n = s.find('ba' * "
                  "2 ~ 'c') %}"
                  "{% endfor %}",
                  NULL, AG_LIMIT);
    check_bounded("{% set s = 'a' * 1000000 %}{% set w = 'b' ~ 'a' * 500000 %}{{ s.rsplit(w) }}"
                  "{% for i in range(9999) %}{{ s.rsplit('a' * 9999 ~ 'b') }}{% endfor %}",
                  NULL, AG_LIMIT);
    check_bounded("{% set s = 'é' * 1000000 %}{% for i in range(99999) %}{% set c = s[500000] %}"
                  "{% endfor %}",
                  NULL, AG_LIMIT);
    check_bounded("{% set l = range(99999)|list %}{% for i in range(99999) %}{{ l|sort|length }}"
                  "{% endfor %}",
                  NULL, AG_LIMIT);
}

static void stops_growing_values(void **state) {
    (void)state;
    check_bounded(
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}"
        "{% endfor %}",
        NULL, AG_LIMIT);
    check_bounded(
        "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}"
        "{% endfor %}",
        NULL, AG_LIMIT);
    check_bounded("{{ 'x' * 10**15 }}", NULL, AG_LIMIT);
    check_bounded("{{ [1] * 10**15 }}", NULL, AG_LIMIT);
    check_bounded("{% for i in range(99999) %}{{ 'x' * 99999 }}{% endfor %}", NULL, AG_LIMIT);
    check_bounded("{{ ('a'*9999)|replace('', 'b'*9999) }}", NULL, AG_LIMIT);
    check_bounded("{{ 'x'|indent(10**12) }}", NULL, AG_LIMIT);
    check_bounded("{{ 2 ** 10 ** 9 }}", NULL, AG_UNSUPPORTED);
    check_bounded(
        "{% set ns = namespace(l=1) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}"
        "{% endfor %}{{ ns.l }}",
        NULL, AG_LIMIT);
}

static void rejects_deeply_nested_values(void **state) {
    (void)state;
    check_bounded("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", NULL, AG_LIMIT);
    check_bounded("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", NULL, AG_LIMIT);
    check_bounded("{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = [ns.l] %}"
                  "{% endfor %}{{ ns.l }}",
                  NULL, AG_LIMIT);
    check_bounded("{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = [ns.l] %}"
                  "{% endfor %}{{ ns.l|tojson }}",
                  NULL, AG_LIMIT);
    check_bounded(
        "{% set ns = namespace(l=(), m=()) %}{% for i in range(9999) %}{% set ns.l = (ns.l,) %}"
        "{% set ns.m = (ns.m,) %}{% endfor %}{{ ns.l == ns.m }}{{ {ns.l: 1} }}",
        NULL, AG_LIMIT);
    check_bounded("{% set ns = namespace(g=[1]) %}{% for i in range(9999) %}"
                  "{% set ns.g = ns.g|map('string') %}{% endfor %}{{ ns.g|list }}",
                  NULL, AG_LIMIT);
}

static char *repeated(const char *open, const char *middle, const char *close, size_t n) {
    size_t a = strlen(open), b = strlen(middle), c = strlen(close);
    char *s = malloc(n * (a + c) + b + 1), *p = s;
    for (size_t i = 0; i < n; i++, p += a) memcpy(p, open, a);
    memcpy(p, middle, b);
    p += b;
    for (size_t i = 0; i < n; i++, p += c) memcpy(p, close, c);
    *p = '\0';
    return s;
}

static void check_nested(const char *begin, const char *open, const char *middle, const char *close,
                         const char *end) {
    char *inner = repeated(open, middle, close, 10000);
    char *template = malloc(strlen(begin) + strlen(inner) + strlen(end) + 1);
    sprintf(template, "%s%s%s", begin, inner, end);
    check_bounded(template, NULL, AG_LIMIT);
    free(template);
    free(inner);
}

static void rejects_deeply_nested_sources(void **state) {
    (void)state;
    check_nested("{{ ", "(", "1", ")", " }}");
    check_nested("{{ ", "[", "1", "]", " }}");
    check_nested("{{ ", "{1:", "1", "}", " }}");
    check_nested("{{ ", "-", "1", "", " }}");
    check_nested("{{ ", "not ", "1", "", " }}");
    check_nested("{{ ", "1 if 1 else ", "1", "", " }}");
    check_nested("{{ ", "x[", "1", "]", " }}");
    check_nested("{{ ", "f(", "1", ")", " }}");
    check_nested("", "{% if 1 %}", "x", "{% endif %}", "");
    check_nested("", "{% for x in [1] %}", "x", "{% endfor %}", "");
    check_nested("{{ 1", "", "", " + 1", " }}");
    check_nested("{{ 1", "", "", ".x", " }}");
    check_nested("{{ 1", "", "", "|string", " }}");
    check_nested("{{ 1", "", "", " or 0", " }}");
}

static void applies_the_limits_of_the_caller(void **state) {
    (void)state;
    ag_jinja_output out;
    ag_error err;
    const char *text = "{% for i in range(100) %}{{ 'abcdefghij' }}{% endfor %}";
    ag_jinja_limits output = {.output_bytes = 999}, steps = {.steps = 100}, depth = {.depth = 3},
                    memory = {.memory_bytes = 20000};
    assert_int_equal(jinja_run(text, NULL, &output, &out, &err), AG_LIMIT);
    assert_non_null(strstr(err.msg, "the output exceeds 999 bytes"));
    output.output_bytes = 1000;
    assert_int_equal(jinja_run(text, NULL, &output, &out, &err), AG_OK);
    assert_int_equal(out.len, 1000);
    ag_jinja_output_free(&out);
    assert_int_equal(jinja_run(text, NULL, &steps, &out, &err), AG_LIMIT);
    assert_non_null(strstr(err.msg, "100 steps"));
    assert_int_equal(jinja_run("{{ [[[[1]]]] }}", NULL, &depth, &out, &err), AG_LIMIT);
    assert_int_equal(jinja_run("{{ 'x' * 20000 }}", NULL, &memory, &out, &err), AG_LIMIT);
    assert_null(out.text);
}

/* A conversation of 100 KB and 1,000 messages must not reach a limit. */
static void renders_long_conversations(void **state) {
    (void)state;
    json_t *messages = json_array(), *variables = json_object();
    char *text = repeated("w\xC3\xB6rter und ", "", "", 8000);
    for (int i = 0; i < 1000; i++) {
        json_array_append_new(messages, json_pack("{s:s,s:s}", "role", i % 2 ? "assistant" : "user",
                                                  "content", i == 7 ? text : "a short one"));
    }
    json_object_set_new(variables, "messages", messages);
    char *json = json_dumps(variables, 0);
    ag_jinja *t;
    ag_error err;
    const char *template =
        "{% set ns = namespace(all='') %}{% for m in messages %}"
        "{% set ns.all = ns.all + '<' + m.role + '>' + m.content|trim|replace('und', '&') %}"
        "{% if loop.nextitem is defined and loop.nextitem.role == m.role %}!{% endif %}{% endfor %}"
        "{{ ns.all }}{{ messages|tojson|length }}";
    assert_int_equal(ag_jinja_parse("long", template, strlen(template), &t, &err), AG_OK);
    ag_jinja_input in = {.variables = variables};
    ag_jinja_output out;
    double begin = seconds();
    assert_int_equal(ag_jinja_render(t, &in, &out, &err), AG_OK);
    print_message("%zu bytes in %.2f ms\n", out.len, 1e3 * (seconds() - begin));
    assert_true(out.len > 90000 && out.n_spans > 2000);
    ag_jinja_output_free(&out);
    ag_jinja_destroy(t);
    json_decref(variables);
    free(json);
    free(text);
}

/* Fails each allocation of parsing and rendering once. */
static void frees_everything_when_an_allocation_fails(void **state) {
    (void)state;
    static const char source[] =
        "{% set ns = namespace(s='', l=[]) %}{% macro m(a, b=2) %}{{ a }}{{ varargs }}{{ caller() "
        "}}"
        "{% endmacro %}{% for x in messages|selectattr('role')|sort(attribute='role') %}"
        "{% set ns.s = ns.s ~ x|tojson(indent=2) %}{{ loop.length }}{{ x.role.upper().split('E') }}"
        "{% call m(x, 1, 2) %}{{ '%s|%d' % (x.role, 3) }}{% endcall %}{% endfor %}{{ ns.s|indent "
        "}}"
        "{{ {'a': range(40)|list, 'b': ('x' * 40000)|length} }}{{ '{}'.format(1) }}"
        "{% for k, v in dict(a=1, b=2, c=3, d=4, e=5, f=6, g=7, h=8, i=9)|dictsort %}{{ k }}{% "
        "endfor %}"
        "{{ strftime_now('%Y') }}{{ 'aXb'.title() }}{{ 'a b'|title }}{{ [3, 1]|unique|join }}";
    json_t *v = jinja_json("{'messages':[{'role':'user'},{'role':'assistant','n':[1,2.5,null]}]}");
    bool done = false;
    for (size_t nth = 0; !done; nth++) {
        failing_allocator f;
        failing_install(&f, nth);
        ag_jinja *t = NULL;
        ag_jinja_output out = {0};
        ag_error err;
        /* A limit so small that nearly every value is an allocation of its own. */
        ag_jinja_input in = {.variables = v, .limits = {.memory_bytes = 400000}};
        ag_status st = ag_jinja_parse("oom", source, strlen(source), &t, &err);
        if (st == AG_OK) st = ag_jinja_render(t, &in, &out, &err);
        if (atomic_load(&f.failed)) assert_int_equal(st, AG_NOMEM);
        else assert_int_equal(st, AG_OK);
        done = !atomic_load(&f.failed);
        ag_jinja_output_free(&out);
        ag_jinja_destroy(t);
        assert_int_equal(atomic_load(&f.in_use), 0);
        ag_set_allocator(NULL);
        if (done) print_message("%zu allocations\n", nth);
        if (done) assert_true(nth > 200);
    }
    json_decref(v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stops_endless_loops),
        cmocka_unit_test(stops_growing_values),
        cmocka_unit_test(rejects_deeply_nested_values),
        cmocka_unit_test(rejects_deeply_nested_sources),
        cmocka_unit_test(applies_the_limits_of_the_caller),
        cmocka_unit_test(renders_long_conversations),
        cmocka_unit_test(frees_everything_when_an_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
