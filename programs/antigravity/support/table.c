/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"

#include "../command.h"
#include "../terminal/output.h"
#include "../terminal/terminal.h"

#include <string.h>
#include <unistd.h>

static bool set_json(void *target, const char *value, char *message) {
    (void)value, (void)message;
    *(table_format *)target = TABLE_JSON;
    return true;
}

static const option_def defs[] = {
    {.name = "output",
     .letter = 'o',
     .kind = OPTION_WORD,
     .value = "md|csv|json",
     .low = TABLE_MD,
     .help = "a Markdown table (on a narrow terminal without the less important columns), "
             "comma-separated values or one JSON object"},
    {.name = "json", CALLS(NULL, set_json), .help = "the same as -o json"},
};

option_group table_group(table_format *o) { return OPTION_GROUP("Output", defs, o); }

void csv_print_text(const char *text) {
    putchar('"');
    for (; *text; text++) {
        if (*text == '"') putchar('"');
        putchar(*text);
    }
    putchar('"');
}

static bool shown(const result_table *t, size_t i) { return t->columns[i].rank < t->n_ranks; }

/* Returns the characters of a line: each value is between "| " and " ". */
static size_t line_width(const result_table *t) {
    size_t width = 1;
    for (size_t i = 0; i < t->n; i++) {
        const size_t title = strlen(t->columns[i].title), value = t->columns[i].width;
        if (shown(t, i)) width += 3 + (title > value ? title : value);
    }
    return width;
}

static void begin_md(result_table *t) {
    for (size_t i = 0; i < t->n; i++)
        if (t->columns[i].rank >= t->n_ranks) t->n_ranks = t->columns[i].rank + 1;
    /* Only terminals limit the width. */
    const bool narrow = isatty(STDOUT_FILENO);
    while (narrow && t->n_ranks > 1 && line_width(t) > terminal_columns(STDOUT_FILENO))
        t->n_ranks--;
    for (size_t i = 0; i < t->n; i++)
        if (shown(t, i)) printf("| %s ", t->columns[i].title);
    printf("|\n");
    for (size_t i = 0; i < t->n; i++)
        if (shown(t, i)) printf("%s", t->columns[i].kind == TABLE_TEXT ? "|---" : "|---:");
    printf("|\n");
}

/* Lists the omitted columns. */
static void name_left_out(const result_table *t) {
    const char *before = "\nLeft out here, in -o csv and -o json: ";
    for (size_t i = 0; i < t->n; i++) {
        if (shown(t, i)) continue;
        printf("%s%s", before, t->columns[i].title);
        before = ", ";
    }
    if (*before == ',') printf("\n");
}

static void print_md(const table_column *c, const json_t *value) {
    char bytes[32];
    double v = json_number_value(value);
    if (!value || json_is_null(value)) printf("| ");
    else if (c->kind == TABLE_TEXT || c->kind == TABLE_RIGHT)
        printf("| %s ", json_string_value(value));
    else if (c->kind == TABLE_SHARE) printf("| %.*f %% ", c->digits, 100 * v);
    else if (c->kind == TABLE_BYTES) printf("| %s ", format_bytes(v, bytes, sizeof bytes));
    else printf("| %.*f ", c->digits, v);
}

static void print_csv(const json_t *value) {
    if (json_is_string(value)) csv_print_text(json_string_value(value));
    else if (json_is_number(value)) printf("%.10g", json_number_value(value));
}

int table_add(result_table *t, json_t *row) {
    if (!row) return complain_no_memory();
    if (t->format == TABLE_JSON) {
        if (!t->rows) t->rows = json_array();
        return json_array_append_new(t->rows, row) ? complain_no_memory() : EXIT_DONE;
    }
    if (!t->begun && t->format == TABLE_MD) begin_md(t);
    for (size_t i = 0; !t->begun && t->format == TABLE_CSV && i < t->n; i++)
        printf("%s%s", i ? "," : "", t->columns[i].key);
    if (!t->begun && t->format == TABLE_CSV) printf("\n");
    t->begun = true;
    for (size_t i = 0; i < t->n; i++) {
        const json_t *value = json_object_get(row, t->columns[i].key);
        if (t->format == TABLE_MD && shown(t, i)) print_md(&t->columns[i], value);
        else if (t->format == TABLE_CSV) printf("%s", i ? "," : "");
        if (t->format == TABLE_CSV) print_csv(value);
    }
    bool written =
        output_write(t->format == TABLE_MD ? "|\n" : "\n", t->format == TABLE_MD ? 2 : 1);
    json_decref(row);
    return written ? EXIT_DONE : EXIT_FAILED; /* A write error is reported when the command ends. */
}

int table_finish(result_table *t, json_t *head, int code) {
    json_t *rows = t->rows;
    t->rows = NULL;
    if (t->format == TABLE_MD && t->begun) name_left_out(t);
    bool wanted = t->format == TABLE_JSON && (rows || code == EXIT_DONE);
    if (!wanted) {
        json_decref(head);
        return code;
    }
    int printed = json_print(JSON_ADD(head, {"rows", rows ? rows : json_array()}));
    return code == EXIT_DONE ? printed : code;
}
