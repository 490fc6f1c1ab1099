/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of detection: steps and memory, so that the same file has the same features on every
 * machine. A template that exceeds them is used without detection. */
#include "support/chat_formats.h"
#include "support/sanitized.h"

#include <antigravity/interrupt.h>
#include <dirent.h>
#include <time.h>

#define TURNS "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
#define ALL_ROLES TURNS "{% if tools %}{{ tools|tojson }}{% endif %}"
static const char expensive[] =
    "{% for i in range(60000) %}{% if i == 5 %}{% endif %}{% endfor %}" ALL_ROLES;
static const char large[] = "{% set x = 'x' * 17000000 %}" ALL_ROLES;
static const char busy[] = "{% for i in range(4000) %}{% endfor %}" ALL_ROLES;

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Presets for sanitizers and emulators set AG_TEST_STRIDE. */
static bool is_fast_build(void) {
#if defined(__OPTIMIZE__) && !SANITIZED
    return getenv("AG_TEST_STRIDE") == NULL;
#else
    return false;
#endif
}

static ag_chat_format *create_format(const char *jinja) {
    ag_chat_format *f;
    ag_error err = {0};
    const double begin = cpu_seconds();
    if (ag_chat_format_create(jinja, strlen(jinja), NULL, NULL, NULL, &f, &err) != AG_OK)
        fail_msg("%s", err.msg);
    const double took = cpu_seconds() - begin;
    if (is_fast_build() && took > 0.5) fail_msg("%.40s: %.2f s", jinja, took);
    return f;
}

static void check_unprobed(const char *jinja, const char *reason) {
    for (int i = 0; i < 2; i++) {
        ag_chat_format *f = create_format(jinja);
        assert_non_null(ag_chat_format_not_probed(f));
        assert_string_equal(ag_chat_format_not_probed(f), reason);
        assert_int_equal(ag_chat_format_features(f), AG_CHAT_TEXT);
        assert_false(f->has_detected_calls);
        assert_non_null(f->reasoning_open);
        size_t n;
        ag_chat_format_stops(f, &n);
        assert_int_equal(n, 0);
        ag_chat_format_destroy(f);
    }
}

static void does_not_probe_expensive_templates(void **state) {
    (void)state;
    check_unprobed(expensive, "it needs more than 2000000 steps");
    check_unprobed(large, "it needs more than 16 MiB");
}

static void probes_templates_within_the_budget(void **state) {
    (void)state;
    ag_chat_format *f = create_format(busy);
    assert_null(ag_chat_format_not_probed(f));
    assert_true(ag_chat_format_features(f) & AG_CHAT_SYSTEM);
    ag_chat_format_destroy(f);
}

/* Messages of the system, tools, calls, results and parts become text of user and assistant. */
static void unprobed_templates_render_any_conversation(void **state) {
    (void)state;
    static const char *const parts[] = {"Be kind.", "Hello", "there", "<tool_call>", "sunny"};
    ag_chat_format *f = create_format(expensive);
    ag_chat *c = chat_of(f,
                         "[{'role':'system','content':'Be kind.'},{'role':'user','content':["
                         "{'type':'text','text':'Hello '},{'type':'text','text':'there'}]},"
                         "{'role':'assistant','content':null,'tool_calls':[{'id':'1','type':"
                         "'function','function':{'name':'f','arguments':{}}}]},{'role':'tool',"
                         "'tool_call_id':'1','content':'sunny'}]",
                         TOOLS);
    ag_text text = {0};
    ag_error err = {0};
    if (ag_chat_render(c, 0, NULL, &text, &err) != AG_OK) fail_msg("%s", err.msg);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!strstr(text.data, parts[i])) fail_msg("%s: %s", parts[i], text.data);
    }
    assert_null(strstr(text.data, "[system]"));
    assert_null(strstr(text.data, "[tool]"));
    ag_text_free(&text);
    ag_chat_destroy(c);
    ag_chat_format_destroy(f);
}

static bool yes(void *user) {
    ++*(unsigned *)user;
    return true;
}

static void interrupted_probe_fails(void **state) {
    (void)state;
    unsigned calls = 0;
    ag_chat_format *f = NULL;
    ag_error err = {0};
    ag_set_thread_interrupt(yes, &calls);
    const ag_status st = ag_chat_format_create(busy, sizeof busy - 1, NULL, NULL, NULL, &f, &err);
    ag_set_thread_interrupt(NULL, NULL);
    assert_int_equal(st, AG_CANCELLED);
    assert_null(f);
    assert_int_equal(calls, 1);
}

static void probes_real_templates_within_half_a_second(void **state) {
    (void)state;
    DIR *d = opendir(SHARED);
    size_t n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[1000];
        size_t len;
        if (!strstr(e->d_name, ".jinja")) continue;
        snprintf(path, sizeof path, "%s%.255s", SHARED, e->d_name);
        char *jinja = read_template(path, &len);
        ag_chat_format *f = create_format(jinja);
        if (ag_chat_format_not_probed(f))
            fail_msg("%s: %s", e->d_name, ag_chat_format_not_probed(f));
        ag_chat_format_destroy(f);
        ag_free(jinja);
        n++;
    }
    if (d) closedir(d);
    print_message("%zu templates\n", n);
    if (!n) skip();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(does_not_probe_expensive_templates),
        cmocka_unit_test(probes_templates_within_the_budget),
        cmocka_unit_test(unprobed_templates_render_any_conversation),
        cmocka_unit_test(interrupted_probe_fails),
        cmocka_unit_test(probes_real_templates_within_half_a_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
