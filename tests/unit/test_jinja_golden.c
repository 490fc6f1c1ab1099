/* SPDX-License-Identifier: Apache-2.0 */
/* Compares renderings of 50 published templates with 24 conversations each with jinja2, byte for
 * byte, including the errors. Skipped without the shared data, because the templates may not be
 * copied here. */
#include "support/jinja_case.h"

#include <dirent.h>

#define GOLDEN_DIR AG_SHARED_DIR "/golden/chat"

static char *read_text(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s is not there", path);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(*n + 1);
    assert_int_equal(fread(text, 1, *n, f), *n);
    text[*n] = '\0';
    fclose(f);
    return text;
}

typedef struct totals {
    int rendered, refused, wrong;
} totals;

static void report(totals *sum, const char *name, const json_t *row, const char *message) {
    print_error("%s, %s: %s\n", name, json_string_value(json_object_get(row, "case")), message);
    sum->wrong++;
}

static void check_row(const ag_jinja *t, const char *name, json_t *row, totals *sum) {
    json_t *variables = json_object_get(row, "variables");
    json_object_set(variables, "messages", json_object_get(row, "messages"));
    json_object_set(variables, "tools", json_object_get(row, "tools"));
    struct tm now = jinja_noon();
    ag_jinja_input in = {.variables = variables, .now = &now};
    ag_jinja_output out;
    ag_error err;
    ag_status st = ag_jinja_render(t, &in, &out, &err);
    const json_t *text = json_object_get(row, "text");
    if (!text) {
        if (st == AG_OK) report(sum, name, row, "is not refused");
        sum->refused++;
    } else {
        if (st != AG_OK) {
            report(sum, name, row, err.msg);
        } else if (out.len != json_string_length(text) ||
                   memcmp(out.text, json_string_value(text), out.len) != 0) {
            report(sum, name, row, out.text);
        }
        sum->rendered++;
    }
    ag_jinja_output_free(&out);
}

static void check_template(const char *name, totals *sum) {
    char path[1024];
    size_t n;
    snprintf(path, sizeof path, GOLDEN_DIR "/templates/%s.jinja", name);
    char *text = read_text(path, &n);
    ag_jinja *t;
    ag_error err;
    if (ag_jinja_parse(name, text, n, &t, &err) != AG_OK) fail_msg("%s", err.msg);
    free(text);
    snprintf(path, sizeof path, GOLDEN_DIR "/rendered/%s.json", name);
    json_t *rows = json_load_file(path, 0, NULL), *row;
    size_t i;
    assert_non_null(rows);
    json_array_foreach(rows, i, row) check_row(t, name, row, sum);
    json_decref(rows);
    ag_jinja_destroy(t);
}

static void matches_jinja2_on_real_templates(void **state) {
    (void)state;
    DIR *dir = opendir(GOLDEN_DIR "/templates");
    if (!dir) {
        print_message("skipped: no %s\n", GOLDEN_DIR);
        skip();
    }
    totals sum = {0};
    for (struct dirent *e; (e = readdir(dir));) {
        char name[256];
        char *end = strrchr(e->d_name, '.');
        if (!end || strcmp(end, ".jinja") != 0) continue;
        snprintf(name, sizeof name, "%.*s", (int)(end - e->d_name), e->d_name);
        check_template(name, &sum);
    }
    closedir(dir);
    print_message("%d rendered, %d refused, %d wrong\n", sum.rendered, sum.refused, sum.wrong);
    assert_int_equal(sum.wrong, 0);
    assert_true(sum.rendered >= 1054 && sum.refused >= 146);
}

#define OWN_DIR AG_SOURCE_DIR "/tests/data/chat"

/* Parses the template of a row, which is given as text or as a file name. */
static ag_status parse_row(const json_t *row, ag_jinja **t, ag_error *err) {
    const char *file = json_string_value(json_object_get(row, "file"));
    const json_t *text = json_object_get(row, "template");
    if (!file) {
        return ag_jinja_parse("snippet", json_string_value(text), json_string_length(text), t, err);
    }
    char path[1024];
    size_t n;
    snprintf(path, sizeof path, OWN_DIR "/templates/%s", file);
    char *source = read_text(path, &n);
    ag_status st = ag_jinja_parse(file, source, n, t, err);
    free(source);
    return st;
}

/* Compares with tests/data/chat/rendered.json, written by tools/jinja_differential.py --record. */
static void matches_recorded_renderings(void **state) {
    (void)state;
    json_t *all = json_load_file(OWN_DIR "/rendered.json", JSON_ALLOW_NUL, NULL), *row;
    assert_non_null(all);
    const json_t *common = json_object_get(all, "variables");
    struct tm now = jinja_noon();
    int wrong = 0;
    size_t i;
    json_array_foreach(json_object_get(all, "rows"), i, row) {
        ag_jinja *t;
        ag_error err = {.msg = ""};
        ag_jinja_output out = {0};
        const json_t *own = json_object_get(row, "variables"), *text = json_object_get(row, "text");
        ag_jinja_input in = {.variables = own ? own : common, .now = &now};
        ag_status st = parse_row(row, &t, &err);
        if (st == AG_OK) st = ag_jinja_render(t, &in, &out, &err);
        bool same = text ? st == AG_OK && out.len == json_string_length(text) &&
                               !memcmp(out.text, json_string_value(text), out.len)
                         : st != AG_OK;
        if (!same) {
            char *shown = json_dumps(row, 0);
            print_error("%.600s: %s%s\n", shown, out.text ? out.text : "", err.msg);
            free(shown);
            wrong++;
        }
        ag_jinja_output_free(&out);
        ag_jinja_destroy(t);
    }
    assert_true(i > 500);
    json_decref(all);
    assert_int_equal(wrong, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_recorded_renderings),
        cmocka_unit_test(matches_jinja2_on_real_templates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
