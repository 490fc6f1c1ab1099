/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a render: every template of ../shared renders 1 MB within 32 MiB, the rendered text
 * included. --table prints the peak of each. */
#include "support/chat_formats.h"
#include "support/sanitized.h"

#include <dirent.h>
#include <time.h>

enum { BODY = 1 << 20, MAX_TEMPLATES = 128 };
static const size_t limit = (size_t)32 << 20;

static char names[MAX_TEMPLATES][256];
static size_t n_names;

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

static void list_templates(void) {
    DIR *d = opendir(SHARED);
    for (struct dirent *e; d && (e = readdir(d));) {
        const char *dot = strrchr(e->d_name, '.');
        if (!dot || strcmp(dot, ".jinja") != 0 || n_names == MAX_TEMPLATES) continue;
        snprintf(names[n_names++], sizeof *names, "%s", e->d_name);
    }
    if (d) closedir(d);
    qsort(names, n_names, sizeof *names, by_name);
}

/* ---- conversations ---- */

typedef struct conversation {
    const char *name;
    ag_text messages, tools; /* JSON; tools may be empty */
} conversation;

static void put(ag_text *t, const char *s) {
    assert_int_equal(ag_text_append(t, s, strlen(s), NULL), AG_OK);
}

/* Appends `turn`, with its number in place of %, until there are `bytes`. */
static void put_turns(ag_text *t, const char *turn, size_t bytes) {
    char text[1000];
    for (unsigned i = 0; t->len < bytes; i++) {
        size_t n = 0;
        if (i) text[n++] = ',';
        for (const char *s = turn; *s; s++) {
            if (*s == '%') n += (size_t)sprintf(text + n, "%09u", i);
            else text[n++] = *s == '\'' ? '"' : *s;
        }
        text[n] = '\0';
        put(t, text);
    }
}

/* Returns a conversation that repeats a turn, after `first`. */
static conversation repeated(const char *name, const char *first, const char *turn) {
    conversation c = {.name = name};
    put(&c.messages, "[");
    put(&c.messages, first);
    put_turns(&c.messages, turn, BODY);
    put(&c.messages, "]");
    return c;
}

static const char tools[] =
    "[{'type':'function','function':{'name':'f','description':'d','parameters':{'type':'object',"
    "'properties':{'a':{'type':'integer','description':'n'}}}}}]";

static void put_quoted(ag_text *t, const char *s) {
    char *text = ag_strdup(s);
    for (char *p = text; *p; p++) *p = *p == '\'' ? '"' : *p;
    put(t, text);
    ag_free(text);
}

static conversation with_tools(conversation c) {
    put_quoted(&c.tools, tools);
    return c;
}

/* Returns n messages of equal length, by turns of user and assistant. */
static conversation large(const char *name, unsigned n) {
    conversation c = {.name = name};
    for (unsigned i = 0; i < n; i++) {
        put_quoted(&c.messages, i ? "," : "[");
        put_quoted(&c.messages,
                   i % 2 ? "{'role':'assistant','content':'" : "{'role':'user','content':'");
        while (c.messages.len < BODY / n * (i + 1)) put(&c.messages, "some words, a <tag> and\\n");
        put_quoted(&c.messages, "'}");
    }
    put(&c.messages, "]");
    return c;
}

static conversation of_parts(const char *name) {
    conversation c = {.name = name};
    put_quoted(&c.messages, "[{'role':'user','content':[");
    put_turns(&c.messages, "{'type':'text','text':'a'}", BODY);
    put_quoted(&c.messages, "]}]");
    return c;
}

static conversation of_properties(const char *name) {
    conversation c = {.name = name};
    put_quoted(&c.messages, "[{'role':'user','content':'hi'}]");
    put_quoted(&c.tools, "[{'type':'function','function':{'name':'f','description':'d',"
                         "'parameters':{'type':'object','properties':{");
    put_turns(&c.tools, "'p%':{'type':'string','description':'x'}", BODY);
    put_quoted(&c.tools, "}}}}]");
    return c;
}

static conversation of_tools(const char *name) {
    conversation c = {.name = name};
    put_quoted(&c.messages, "[{'role':'user','content':'hi'}]");
    put_quoted(&c.tools, "[");
    put_turns(&c.tools,
              "{'type':'function','function':{'name':'f%','description':'d',"
              "'parameters':{'type':'object','properties':{'a':{'type':'integer',"
              "'description':'n'}}}}}",
              BODY);
    put_quoted(&c.tools, "]");
    return c;
}

static conversation of_arguments(const char *name) {
    conversation c = {.name = name};
    put_quoted(&c.messages, "[{'role':'user','content':'q'},{'role':'assistant','content':'',"
                            "'tool_calls':[{'id':'abcdef123','type':'function','function':{"
                            "'name':'f','arguments':{'a':[");
    put_turns(&c.messages, "[1,{'k%':[]}]", BODY);
    put_quoted(&c.messages, "]}}}]},{'role':'tool','tool_call_id':'abcdef123','name':'f',"
                            "'content':'r'}]");
    return with_tools(c);
}

enum { N_FORMS = 10 };

static void make_conversations(conversation all[N_FORMS]) {
    const char *question = "{\"role\":\"user\",\"content\":\"q\"},";
    size_t n = 0;
    all[n++] = repeated("tiny messages", "",
                        "{'role':'user','content':'a'},{'role':'assistant','content':'b'}");
    all[n++] = repeated("messages of two parts", "",
                        "{'role':'user','content':[{'type':'text','text':'a'},{'type':'text',"
                        "'text':'b'}]},{'role':'assistant','content':'b'}");
    all[n++] = with_tools(repeated(
        "calls and results", question,
        "{'role':'assistant','content':'','tool_calls':[{'id':'%','type':'function','function':{"
        "'name':'f','arguments':'{\\'a\\':1}'}}]},{'role':'tool','tool_call_id':'%','name':'f',"
        "'content':'r'}"));
    all[n++] = with_tools(repeated(
        "turns with a call", "",
        "{'role':'user','content':'q'},{'role':'assistant','content':'','tool_calls':[{'id':'%',"
        "'type':'function','function':{'name':'f','arguments':{'a':1}}}]},{'role':'tool',"
        "'tool_call_id':'%','name':'f','content':'r'},{'role':'assistant','content':'b'}"));
    all[n++] = large("one large message", 1);
    all[n++] = large("eleven large messages", 11);
    all[n++] = of_parts("one message of parts");
    all[n++] = of_properties("a tool of many properties");
    all[n++] = of_tools("many tools");
    all[n++] = of_arguments("a call with many arguments");
    assert_int_equal(n, N_FORMS);
    for (size_t i = 0; i < n; i++) {
        json_error_t e;
        json_t *v = json_loadb(all[i].messages.data, all[i].messages.len, 0, &e);
        if (!v) fail_msg("%s: %s", all[i].name, e.text);
        json_decref(v);
    }
}

/* ---- renders ---- */

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static ag_status render(const ag_chat_format *f, const conversation *v, size_t bytes,
                        ag_jinja_usage *usage, ag_text *text, ag_error *err) {
    ag_chat *c;
    assert_int_equal(ag_chat_create(f, &c, err), AG_OK);
    ag_chat_set_memory_limit(c, bytes);
    ag_status st = ag_chat_set_messages(c, v->messages.data, v->messages.len, err);
    if (st == AG_OK && v->tools.len) st = ag_chat_set_tools(c, v->tools.data, v->tools.len, err);
    if (st == AG_OK) st = ag_chat_render(c, AG_CHAT_NO_PROMPT, NULL, text, err);
    *usage = c->usage;
    ag_chat_destroy(c);
    return st;
}

static void print_table(const conversation *all) {
    for (size_t i = 0; i < n_names; i++) {
        char path[1000];
        snprintf(path, sizeof path, "%s%.255s", SHARED, names[i]);
        double begin = seconds();
        ag_chat_format *f = format_of(path, NULL);
        printf("%s (%.0f ms)\n", names[i], 1e3 * (seconds() - begin));
        for (size_t k = 0; k < N_FORMS; k++) {
            ag_text text = {0};
            ag_error err = {0};
            ag_jinja_usage u = {0};
            begin = seconds();
            ag_status st = render(f, &all[k], (size_t)256 << 20, &u, &text, &err);
            printf("  %-28s %6.2f MiB of %5.2f text, %8llu steps, %5.0f ms %s\n", all[k].name,
                   (double)u.peak_bytes / (1 << 20), (double)text.len / (1 << 20),
                   (unsigned long long)u.steps, 1e3 * (seconds() - begin),
                   st == AG_OK ? "" : err.msg);
            ag_text_free(&text);
        }
        ag_chat_format_destroy(f);
    }
}

/* These templates look through all messages (muse-glimmer: all tools) for each of them. A
 * conversation of thousands exceeds the limit of steps; its memory is small until then. */
static bool is_quadratic(const char *name) {
    static const char *const quadratic[] = {"CohereForAI-c4ai-command-r7b", "google-gemma-4",
                                            "muse-glimmer", "openai-gpt-oss"};
    for (size_t i = 0; i < sizeof quadratic / sizeof *quadratic; i++) {
        if (!strncmp(name, quadratic[i], strlen(quadratic[i]))) return true;
    }
    return false;
}

static void check(const ag_chat_format *f, const char *name, const conversation *v) {
    ag_text text = {0};
    ag_error err = {0};
    ag_jinja_usage usage;
    const ag_status st = render(f, v, limit, &usage, &text, &err);
    const bool over_steps = st == AG_LIMIT && usage.over_steps && is_quadratic(name);
    if (st != AG_OK && !over_steps) fail_msg("%s, %s: %s", name, v->name, err.msg);
    assert_true(usage.peak_bytes <= limit);
    assert_true(st != AG_OK || text.len > 0);
    ag_text_free(&text);
}

static bool takes_all; /* "test_chat_memory all": each template, not one in two */

/* Tests two forms for each template, so that each form meets several templates. --table: all forms.
 */
static void renders_1_mb_within_32_mib(void **state) {
    const conversation *all = *state;
#if defined(__OPTIMIZE__) && !SANITIZED
    const size_t step = takes_all ? 1 : 2;
#else
    const size_t step = 10;
#endif
    for (size_t i = 0; i < n_names; i += step) {
        char path[1000];
        snprintf(path, sizeof path, "%s%.255s", SHARED, names[i]);
        ag_chat_format *f = format_of(path, NULL);
        check(f, names[i], &all[i % N_FORMS]);
        check(f, names[i], &all[(i + 3 + i / N_FORMS) % N_FORMS]);
        ag_chat_format_destroy(f);
    }
    if (!n_names) skip();
}

static void error_names_the_exceeded_limit(void **state) {
    const conversation *all = *state;
    static const char jinja[] =
        "{% for m in messages %}\n{{ m.role ~ m.content * 40 }}{% endfor %}";
    ag_chat_format *f;
    ag_error err = {0};
    ag_text text = {0};
    ag_jinja_usage usage;
    assert_int_equal(ag_chat_format_create(jinja, strlen(jinja), NULL, NULL, NULL, &f, &err),
                     AG_OK);
    const conversation *v = &all[N_FORMS - 5];
    assert_string_equal(v->name, "eleven large messages");
    assert_int_equal(render(f, v, limit, &usage, &text, &err), AG_LIMIT);
    if (!strstr(err.msg, "line 2, in {{ }}: values and text exceed 32 MiB"))
        fail_msg("%s", err.msg);
    assert_true(usage.over_memory);
    assert_int_equal(render(f, v, 0, &usage, &text, &err), AG_OK);
    ag_text_free(&text);
    ag_chat_format_destroy(f);
}

int main(int argc, char **argv) {
    conversation all[N_FORMS];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(renders_1_mb_within_32_mib, all),
        cmocka_unit_test_prestate(error_names_the_exceeded_limit, all),
    };
    takes_all = argc > 1 && !strcmp(argv[1], "all");
    const bool table = argc > 1 && !strcmp(argv[1], "--table");
    int failed = 0;
    list_templates();
    make_conversations(all);
    if (table) print_table(all);
    else failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (size_t i = 0; i < N_FORMS; i++) {
        ag_text_free(&all[i].messages);
        ag_text_free(&all[i].tools);
    }
    return failed;
}
