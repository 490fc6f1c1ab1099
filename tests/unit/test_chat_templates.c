/* SPDX-License-Identifier: Apache-2.0 */
/* Detected features of templates, and the calls that they write, parsed again. The 50 real
 * templates are in ../shared; without it only ours are tested. --table prints the table of
 * docs/measured/chat-templates.md. */
#include "chat/conversation.h"
#include "chat/detect/detect.h"
#include "chat/parse/parser.h"
#include "core/alloc.h"
#include "formats/file.h"
#include "text/bytes.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_TEMPLATES = 128 };

typedef struct template_file {
    char path[600], name[128];
    ag_chat_format *format;
} template_file;

static template_file templates[MAX_TEMPLATES];
static size_t n_templates;
static bool has_shared;

/* ---- templates ---- */

static int by_name(const void *a, const void *b) {
    return strcmp(((const template_file *)a)->name, ((const template_file *)b)->name);
}

static size_t list(const char *dir) {
    DIR *d = opendir(dir);
    const size_t before = n_templates;
    for (struct dirent *e; d && (e = readdir(d));) {
        const char *dot = strrchr(e->d_name, '.');
        if (!dot || strcmp(dot, ".jinja") != 0 || n_templates == MAX_TEMPLATES) continue;
        template_file *t = &templates[n_templates++];
        snprintf(t->path, sizeof t->path, "%s/%s", dir, e->d_name);
        snprintf(t->name, sizeof t->name, "%.*s", (int)(dot - e->d_name), e->d_name);
    }
    if (d) closedir(d);
    qsort(templates + before, n_templates - before, sizeof *templates, by_name);
    return n_templates - before;
}

static void load(template_file *t) {
    char *text;
    size_t n;
    ag_error err = {0};
    if (ag_file_read_all(t->path, 1 << 24, &text, &n, &err) != AG_OK ||
        ag_chat_format_create(text, n, "<BOS>", "<EOS>", NULL, &t->format, &err) != AG_OK) {
        fprintf(stderr, "%s: %s\n", t->name, err.msg);
        exit(1);
    }
    ag_free(text);
}

/* ---- calls that templates write ---- */

static const char tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"description\": "
    "\"Weather "
    "of a place\", \"parameters\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": "
    "\"string\", \"description\": \"Its name\"}, \"days\": {\"type\": \"integer\", "
    "\"description\": "
    "\"How many\"}, \"tags\": {\"type\": \"array\", \"description\": \"Tags\"}}, \"required\": "
    "[\"city\"]}}}, {\"type\": \"function\", \"function\": {\"name\": \"list_files\", "
    "\"description\": \"Lists files\", \"parameters\": {\"type\": \"object\", \"properties\": "
    "{\"path\": {\"type\": \"string\", \"description\": \"Where\"}}}}}]";
static const char question[] = "{\"role\": \"user\", \"content\": \"What now?\"}";
#define CALL_1                                                                              \
    "{\"id\": \"abcdef123\", \"type\": \"function\", \"function\": {\"name\": "             \
    "\"get_weather\", \"arguments\": \"{\\\"city\\\": \\\"K\xc3\xb6ln \\\\\\\"x\\\\\\\" & " \
    "'y' <b>\\\", \\\"days\\\": 3, \\\"tags\\\": [\\\"x\\\", \\\"y<z\\\"]}\"}}"
#define CALL_2                                                                  \
    "{\"id\": \"abcdef124\", \"type\": \"function\", \"function\": {\"name\": " \
    "\"list_files\", \"arguments\": \"{\\\"path\\\": \\\"/tmp\\\"}\"}}"
static const char one_call[] =
    "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [" CALL_1 "]}";
static const char two_calls[] =
    "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [" CALL_1 ", " CALL_2 "]}";

static ag_chat *chat_with(const ag_chat_format *f, const char *answer) {
    ag_chat *c;
    ag_error err = {0};
    assert_int_equal(ag_chat_create(f, &c, &err), AG_OK);
    assert_int_equal(ag_chat_set_tools(c, tools, strlen(tools), &err), AG_OK);
    assert_int_equal(ag_chat_add_json(c, question, strlen(question), &err), AG_OK);
    if (answer) assert_int_equal(ag_chat_add_json(c, answer, strlen(answer), &err), AG_OK);
    return c;
}

static void render(ag_chat *c, unsigned flags, ag_text *out, const char *name) {
    ag_error err = {0};
    if (ag_chat_render(c, flags, NULL, out, &err) != AG_OK) fail_msg("%s: %s", name, err.msg);
}

/* Appends the answer as the template writes it, without what ends it. */
static void answer_text(const template_file *t, const char *message, ag_text *out) {
    ag_chat *asked = chat_with(t->format, NULL), *answered = chat_with(t->format, message);
    ag_text prompt = {0}, all = {0};
    render(asked, 0, &prompt, t->name);
    render(answered, AG_CHAT_NO_PROMPT, &all, t->name);
    size_t from_at = ag_detect_common_prefix(all.data, prompt.data);
    /* One template adds instructions after the question, only before the answer. */
    const char *header = strstr(all.data + from_at, "<|CHATBOT_TOKEN|>");
    const char *args = strstr(all.data + from_at, "days");
    if (header && args && header < args)
        from_at = (size_t)(header - all.data) + strlen("<|CHATBOT_TOKEN|>");
    const char *from = all.data + from_at;
    const char *end = all.data + all.len, *path = strstr(from, "/tmp");
    if (!path) path = strstr(from, "y<z");
    size_t n;
    const char *const *stops = ag_chat_format_stops(t->format, &n);
    for (size_t i = 0; path && i < n; i++) {
        const char *at = strstr(path, stops[i]);
        if (at && at < end) end = at;
    }
    assert_int_equal(ag_text_append(out, from, (size_t)(end - from), NULL), AG_OK);
    ag_text_free(&prompt);
    ag_text_free(&all);
    ag_chat_destroy(asked);
    ag_chat_destroy(answered);
}

static json_t *calls_of(const char *message) {
    json_t *m = json_loads(message, 0, NULL), *out = json_array(), *call;
    size_t i;
    json_array_foreach(json_object_get(m, "tool_calls"), i, call) {
        json_t *f = json_object_get(call, "function");
        json_t *args = json_loads(json_string_value(json_object_get(f, "arguments")), 0, NULL);
        if (!args) args = json_string("not an object");
        json_array_append_new(out, json_pack("[O, o]", json_object_get(f, "name"), args));
    }
    json_decref(m);
    return out;
}

static json_t *parse(const template_file *t, const ag_text *text, size_t split) {
    ag_chat *c = chat_with(t->format, NULL);
    ag_chat_parser *p;
    ag_text message = {0}, prompt = {0};
    render(c, 0, &prompt, t->name);
    ag_text_free(&prompt);
    assert_int_equal(ag_chat_parser_create(c, &p, NULL), AG_OK);
    /* A rendered history leaves out the end of the reasoning that the prompt opened. */
    const char *close = t->format->reasoning_close;
    if (c->starts_in_reasoning && !strstr(text->data, close)) {
        assert_int_equal(ag_chat_parser_push(p, close, strlen(close), NULL), AG_OK);
    }
    assert_int_equal(ag_chat_parser_push(p, text->data, split, NULL), AG_OK);
    assert_int_equal(ag_chat_parser_push(p, text->data + split, text->len - split, NULL), AG_OK);
    assert_int_equal(ag_chat_parser_finish(p, NULL), AG_OK);
    assert_int_equal(ag_chat_parser_message(p, &message, NULL), AG_OK);
    json_t *calls = calls_of(message.data);
    if (p->content.len) json_array_append_new(calls, json_string(p->content.data));
    ag_text_free(&message);
    ag_chat_parser_destroy(p);
    ag_chat_destroy(c);
    return calls;
}

static int round_trip(const template_file *t, const char *message) {
    ag_text text = {0};
    int failures = 0;
    answer_text(t, message, &text);
    json_t *wanted = calls_of(message);
    for (size_t split = 0; split <= text.len && !failures; split++) {
        json_t *got = parse(t, &text, split);
        if (!json_equal(got, wanted)) {
            char *dump = json_dumps(got, 0);
            print_message("%s, split at %zu: %s\n  of %s\n", t->name, split, dump, text.data);
            free(dump);
            failures++;
        }
        json_decref(got);
    }
    json_decref(wanted);
    ag_text_free(&text);
    return failures;
}

static void reads_back_calls_that_templates_write(void **state) {
    (void)state;
    int failures = 0;
    for (size_t i = 0; i < n_templates; i++) {
        const template_file *t = &templates[i];
        const bool several =
            t->format->features & AG_CHAT_PARALLEL_CALLS || !(t->format->features & AG_CHAT_CALLS);
        failures += round_trip(t, one_call);
        if (several) failures += round_trip(t, two_calls);
    }
    assert_int_equal(failures, 0);
}

/* ---- conversations of the reference ---- */

typedef struct tally {
    size_t same, refused, converted;
} tally;

static ag_chat *chat_of_row(const ag_chat_format *f, json_t *row, unsigned *flags) {
    ag_chat *c;
    const char *key;
    json_t *v, *m = json_object_get(row, "messages"), *offered = json_object_get(row, "tools");
    assert_int_equal(ag_chat_create(f, &c, NULL), AG_OK);
    char *text = json_dumps(m, 0);
    assert_int_equal(ag_chat_set_messages(c, text, strlen(text), NULL), AG_OK);
    free(text);
    if (json_is_array(offered)) {
        text = json_dumps(offered, 0);
        assert_int_equal(ag_chat_set_tools(c, text, strlen(text), NULL), AG_OK);
        free(text);
    }
    json_object_foreach(json_object_get(row, "variables"), key, v) {
        if (!strcmp(key, "add_generation_prompt")) *flags = json_is_true(v) ? 0 : AG_CHAT_NO_PROMPT;
        if (!strcmp(key, "add_generation_prompt") || strstr(key, "_token")) continue;
        text = json_dumps(v, JSON_ENCODE_ANY);
        assert_int_equal(ag_chat_set_variable(c, key, text, strlen(text), NULL), AG_OK);
        free(text);
    }
    ag_chat_set_clock(c, 1795348800);
    return c;
}

/* Returns whether the template refused for a rule that conversion cannot satisfy: turns in order,
 * one call at a time. */
static bool is_broken_rule(const char *message) {
    return strstr(message, "alternate") || strstr(message, "single tool-calls");
}

static void check_row(const template_file *t, json_t *row, tally *n) {
    unsigned flags = 0;
    ag_chat *c = chat_of_row(t->format, row, &flags);
    const char *wanted = json_string_value(json_object_get(row, "text"));
    const char *name = json_string_value(json_object_get(row, "case"));
    ag_text text = {0};
    ag_error err = {0};
    ag_status st;
    if (wanted) {
        st = ag_chat_render(c, flags | AG_CHAT_NO_REWRITING, NULL, &text, &err);
        if (st != AG_OK) fail_msg("%s, %s: %s", t->name, name, err.msg);
        if (strcmp(text.data, wanted) != 0) fail_msg("%s, %s: %s", t->name, name, text.data);
        text.len = 0;
        n->same++;
    }
    st = ag_chat_render(c, flags, NULL, &text, &err);
    if (st != AG_OK && (wanted || !is_broken_rule(err.msg))) {
        fail_msg("%s, %s: %s", t->name, name, err.msg);
    }
    n->refused += st != AG_OK;
    n->converted += st == AG_OK && !wanted;
    ag_text_free(&text);
    ag_chat_destroy(c);
}

static void rejects_only_broken_rules(void **state) {
    (void)state;
    tally n = {0};
    for (size_t i = 0; i < n_templates && has_shared; i++) {
        char path[700];
        snprintf(path, sizeof path, AG_SHARED_DIR "/golden/chat/rendered/%s.json",
                 templates[i].name);
        json_t *rows = json_load_file(path, 0, NULL), *row;
        size_t k;
        json_array_foreach(rows, k, row) check_row(&templates[i], row, &n);
        json_decref(rows);
    }
    print_message(
        "%zu as the reference renders them; of those that it refuses %zu are rendered, %zu "
        "break a rule\n",
        n.same, n.converted, n.refused);
}

/* ---- table ---- */

static void print_table(void) {
    static const char *const kinds[] = {
        [AG_CALLS_JSON] = "JSON",     [AG_CALLS_NAMED] = "name, then JSON",
        [AG_CALLS_TAGGED] = "tags",   [AG_CALLS_PYTHON] = "Python",
        [AG_CALLS_BRACES] = "braces", [AG_CALLS_HARMONY] = "channels"};
    printf("| Template | System | Tools | Calls | Several | Results | Parts | Reasoning | Ends "
           "with |\n"
           "|---|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < n_templates; i++) {
        const ag_chat_format *f = templates[i].format;
        const uint32_t has = f->features;
        printf("| %s | %s | %s | %s | %s | %s | %s | %s | `%s` |\n", templates[i].name,
               has & AG_CHAT_SYSTEM ? "yes" : "-", has & AG_CHAT_TOOLS ? "yes" : "-",
               f->has_detected_calls ? kinds[f->calls.kind] : "-",
               has & AG_CHAT_PARALLEL_CALLS ? "yes" : "-", has & AG_CHAT_RESULTS ? "yes" : "-",
               has & AG_CHAT_PARTS ? "yes" : "-",
               has & AG_CHAT_OPENS_REASONING ? "opened"
               : has & AG_CHAT_REASONING     ? "yes"
                                             : "-",
               f->n_stops ? f->stops[0] : "");
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rejects_only_broken_rules),
        cmocka_unit_test(reads_back_calls_that_templates_write),
    };
    const bool table = argc > 1 && !strcmp(argv[1], "--table");
    has_shared = list(AG_SHARED_DIR "/golden/chat/templates") > 0;
    if (!table) list(AG_SOURCE_DIR "/tests/data/chat");
    for (size_t i = 0; i < n_templates; i++) load(&templates[i]);
    int failed = 0;
    if (table) print_table();
    else failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (size_t i = 0; i < n_templates; i++) ag_chat_format_destroy(templates[i].format);
    return failed;
}
