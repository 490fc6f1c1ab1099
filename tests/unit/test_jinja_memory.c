/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a render: temporary values are released, the limit covers the output, and a render ends
 * soon after an interrupt. */
#include "support/jinja_case.h"
#include "support/sanitized.h"

#include <antigravity/interrupt.h>
#include <time.h>

enum { MIB = 1 << 20 };

static void check_within(const char *template, const char *variables, size_t bytes,
                         const char *text) {
    const ag_jinja_limits limits = {.memory_bytes = bytes};
    ag_jinja_output out;
    ag_error err = {.msg = ""};
    if (jinja_run(template, variables, &limits, &out, &err) != AG_OK) {
        fail_msg("%.80s: %s", template, err.msg);
    }
    if (strcmp(out.text, text) != 0) fail_msg("%.80s: \"%.80s\"", template, out.text);
    ag_jinja_output_free(&out);
}

static void check_exceeds(const char *template, size_t bytes, const char *message) {
    const ag_jinja_limits limits = {.memory_bytes = bytes};
    ag_jinja_output out;
    ag_error err = {.msg = ""};
    assert_int_equal(jinja_run(template, NULL, &limits, &out, &err), AG_LIMIT);
    if (!strstr(err.msg, message)) fail_msg("%.80s: \"%s\"", template, err.msg);
    assert_null(out.text);
}

#define LOOP "{% for i in range(20000) %}"
#define END "{% endfor %}"

static void releases_temporary_values_of_loops(void **state) {
    (void)state;
    check_within(LOOP "{{ ('x' ~ i)|upper|replace('X', '') if i == 19999 }}" END, NULL, MIB,
                 "19999");
    check_within(LOOP
                 "{% set y = ('a' ~ i)|trim %}{% if (y ~ 'b')[1:] == '7b' %}{{ y }}{% endif %}" END,
                 NULL, MIB, "a7");
    check_within("{% macro m(a) %}{% set b = a ~ '!' %}{{ b|upper }}{% endmacro %}" LOOP
                 "{% if m('x' ~ i) == 'X5!' %}{{ m(i) }}{% endif %}" END,
                 NULL, MIB, "5!");
    check_within(LOOP "{% set c %}<{{ i }}>{% endset %}{% if c == '<9>' %}{{ c }}{% endif %}" END,
                 NULL, MIB, "<9>");
    check_within("{% for i in range(20000) if ('x' ~ i) == 'x3' %}{{ i }}{% endfor %}", NULL, MIB,
                 "3");
    check_within("{{ range(20000)|map('string')|select('equalto', '77')|list }}", NULL, 4 * MIB,
                 "['77']");
    check_within(LOOP "{% if [i, 'x' ~ i]|tojson == '[4, \"x4\"]' %}{{ i }}{% endif %}" END, NULL,
                 MIB, "4");
}

static void keeps_only_the_last_value_of_a_member(void **state) {
    (void)state;
    check_within("{% set ns = namespace(s='') %}" LOOP "{% set ns.s = ('x' ~ i)|upper %}" END
                 "{{ ns.s }}",
                 NULL, 4 * MIB, "X19999");
    check_within("{% set ns = namespace(s='') %}" LOOP "{% set ns.s = ns.s ~ 'ab' %}" END
                 "{{ ns.s|length }}",
                 NULL, 2 * MIB, "40000");
    check_within("{% set ns = namespace(l=[]) %}" LOOP "{% set ns.l = ns.l + [i] %}" END
                 "{{ ns.l|length }},{{ ns.l[19999] }}",
                 NULL, 8 * MIB, "20000,19999");
}

/* Each case stores a value of a loop iteration or a call in an older object. */
static void keeps_stored_values_after_their_region(void **state) {
    (void)state;
    const char *v = "{'l':['ab','cd','ef'],'m':[{'k':'v1'},{'k':'v2'},{'k':'v3'}],"
                    "'d':{'x':'1','y':{'z':'2'}}}";
    jinja_check("{% for x in l|map('upper') %}{{ loop.previtem if not loop.first }}{{ x }}"
                "{{ loop.nextitem if not loop.last }};{% endfor %}",
                v, "ABCD;ABCDEF;CDEF;");
    jinja_check("{% for x in m %}{{ loop.previtem.k if not loop.first }}{{ x.k }}"
                "{{ loop.nextitem.k if not loop.last }};{% endfor %}",
                v, "v1v2;v1v2v3;v2v3;");
    jinja_check("{% for x in l if x != 'cd' %}{{ loop.length }}{{ x }}{{ loop.revindex }}"
                "{% endfor %}",
                v, "2ab22ef1");
    jinja_check("{% set ns = namespace(a='', b=[], c={}, d='') %}{% for x in m %}"
                "{% set ns.a = ns.a ~ x.k|upper %}{% set ns.b = ns.b + [x.k ~ '!'] %}"
                "{% set ns.c = {'k': x.k ~ '?'} %}{% set ns.d = (x.k * 200)[1:] %}{% endfor %}"
                "{{ ns.a }}{{ ns.b }}{{ ns.c }}{{ ns.d|length }}{{ ns.d[-3:] }}",
                v, "V1V2V3['v1!', 'v2!', 'v3!']{'k': 'v3?'}3993v3");
    jinja_check("{% set ns = namespace(a='', b='') %}{% macro set(x) %}{% for i in [1, 2] %}"
                "{% set ns.a = x ~ i %}{% set ns.b = ns.a %}{% endfor %}{% endmacro %}"
                "{{ set('p') }}{{ ns.a }}{{ ns.b }}{{ set('q') }}{{ ns.a }}{{ ns.b }}",
                v, "p2p2q2q2");
    jinja_check("{% set ns = namespace(m=none) %}{% for x in l %}{% macro f() %}<{{ x }}>"
                "{% endmacro %}{% if loop.index == 2 %}{% set ns.m = f %}{% endif %}{% endfor %}"
                "{% for i in range(50) %}{% set t = 'zz' ~ i %}{% endfor %}{{ ns.m() }}",
                v, "<cd>");
    jinja_check("{{ (l + l)|map('upper')|unique|join }}", v, "ABCDEF");
    jinja_check("{% set u = (l + l)|map('upper')|unique %}{% for x in u %}{% set t = x ~ '.' %}"
                "{{ t }}{% endfor %}",
                v, "AB.CD.EF.");
    jinja_check("{% for k, w in d.items() %}{% for a in w|list %}{{ k }}{{ a }}{% endfor %}"
                "{% endfor %}{{ d|tojson }}{{ d.y }}{{ d|dictsort|length }}{{ 'y' in d }}",
                v, "x1yz{\"x\": \"1\", \"y\": {\"z\": \"2\"}}{'z': '2'}2True");
    jinja_check("{% set a = l[1:] %}{% set b = a + ['gh'] %}{{ b }}{{ a + ['ij'] }}{{ l[:1] + b }}"
                "{{ b + ['k'] }}{{ b + ['n'] }}{{ l is sameas l }}{{ l is sameas l[:] }}",
                v,
                "['cd', 'ef', 'gh']['cd', 'ef', 'ij']['ab', 'cd', 'ef', 'gh']"
                "['cd', 'ef', 'gh', 'k']['cd', 'ef', 'gh', 'n']TrueFalse");
}

static void keeps_input_spans_in_a_namespace(void **state) {
    (void)state;
    jinja_check_spans("{% set ns = namespace(s='') %}{% for x in l %}"
                      "{% set ns.s = ns.s ~ '<' ~ x ~ '>' %}{% endfor %}{{ ns.s }}",
                      "{'l':['a','b','c','d','e','f','g','h','i','j']}",
                      "<【a】><【b】><【c】><【d】><【e】><【f】><【g】><【h】><【i】><【j】>");
    jinja_check_spans("{% set ns = namespace(s='') %}{% for x in l %}"
                      "{% set ns.s = ('<' ~ x ~ '>')[1:] %}{% endfor %}{{ ns.s }}",
                      "{'l':['a','b']}", "【b】>");
}

static void counts_the_output_against_the_memory_limit(void **state) {
    (void)state;
    const char *large = "\n\n{% for i in range(99999) %}{{ 'thirty-two bytes of the template' }}"
                        "{% endfor %}";
    check_exceeds(large, 2 * MIB, "line 3, in {{ }}: values and text exceed 2 MiB");
    check_exceeds("{{ 'x' * 3000000 }}", 2 * MIB, "line 1, in {{ }}: values and text exceed");
    check_exceeds("{% set ns = namespace(l=[1]) %}\n{% for i in range(30) %}"
                  "{% set ns.l = ns.l + ns.l %}{% endfor %}",
                  2 * MIB, "line 2, in {% set %}: values and text exceed 2 MiB");
    check_within("{{ ('x' * 900000)|length }}", NULL, 2 * MIB, "900000");
}

/* ---- interrupts ---- */

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct alarm_clock {
    unsigned calls, end_at; /* number of the call that returns true; 0: none */
    double last, longest;   /* processor time between calls */
} alarm_clock;

static bool on_check(void *user) {
    alarm_clock *a = user;
    const double now = cpu_seconds();
    if (a->calls++ && now - a->last > a->longest) a->longest = now - a->last;
    a->last = now;
    return a->end_at && a->calls >= a->end_at;
}

static void check_interrupted(const char *template) {
    alarm_clock a = {.end_at = 3};
    ag_jinja_output out;
    ag_error err = {.msg = ""};
    ag_set_thread_interrupt(on_check, &a);
    const ag_status st = jinja_run(template, NULL, NULL, &out, &err);
    ag_set_thread_interrupt(NULL, NULL);
    if (st != AG_CANCELLED) fail_msg("%.60s: %s %s", template, ag_status_name(st), err.msg);
    assert_int_equal(a.calls, 3);
    assert_null(out.text);
}

static void ends_a_render_on_interrupt(void **state) {
    (void)state;
    check_interrupted(
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}");
    check_interrupted("{{ (range(99999)|list * 9)|sort|length }}");
    check_interrupted("{{ ('ab' * 1000000)|replace('a', 'cde')|length }}");
    check_interrupted("{{ [['x'] * 9999] * 99 }}");
    check_interrupted("{{ ([['x'] * 9999] * 99)|tojson }}");
    check_interrupted("{% macro m() %}{% for i in range(99999) %}x{% endfor %}{% endmacro %}"
                      "{{ m() }}{{ m() }}");
}

static void measure_checks(const char *template, alarm_clock *a) {
    ag_jinja_output out;
    ag_error err = {.msg = ""};
    *a = (alarm_clock){.calls = 1, .last = cpu_seconds()};
    ag_set_thread_interrupt(on_check, a);
    const ag_status st = jinja_run(template, NULL, NULL, &out, &err);
    on_check(a);
    ag_set_thread_interrupt(NULL, NULL);
    if (st != AG_OK && st != AG_LIMIT) fail_msg("%s: %s", template, err.msg);
    ag_jinja_output_free(&out);
}

/* Covers the interpreter's internal loops. Other processes empty the processor's caches: one of
 * several tries must hold. */
static void calls_the_interrupt_function_often(void **state) {
    (void)state;
    static const char *const templates[] = {
        "{{ ('a b,' * 2000000)|replace(',', ';')|length }}",
        "{{ ('a b ' * 1000000).split()|length }}",
        "{{ ('ab\"' * 2000000)|tojson|length }}",
        "{{ ('é' * 4000000)|upper|length }}",
        "{{ ('a\n' * 1000000)|indent|length }}",
        "{{ (range(99999)|list * 5)|sort(reverse=true)|first }}",
        "{{ (['x'] * 500000)|join(',')|length }}",
        "{{ (range(99999)|list * 9) == (range(99999)|list * 9) }}",
        "{% for a in range(200000 // 2) %}{% if a in [1, 2, 3] %}{% endif %}{% endfor %}",
    };
#if defined(__OPTIMIZE__) && !SANITIZED
    const double max_s = 0.03;
#else
    const double max_s = 2;
#endif
    enum { MAX_TRIES = 5 };
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        alarm_clock a = {.longest = max_s};
        for (int try = 0; try < MAX_TRIES && a.longest >= max_s; try++)
            measure_checks(templates[i], &a);
        print_message("%.40s: %u calls, at most %.1f ms apart\n", templates[i], a.calls,
                      1e3 * a.longest);
        assert_true(a.longest < max_s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(releases_temporary_values_of_loops),
        cmocka_unit_test(keeps_only_the_last_value_of_a_member),
        cmocka_unit_test(keeps_stored_values_after_their_region),
        cmocka_unit_test(keeps_input_spans_in_a_namespace),
        cmocka_unit_test(counts_the_output_against_the_memory_limit),
        cmocka_unit_test(ends_a_render_on_interrupt),
        cmocka_unit_test(calls_the_interrupt_function_often),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
