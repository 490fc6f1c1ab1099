/* SPDX-License-Identifier: Apache-2.0 */
/* --help, from the option rows and the default values. */
#include "help.h"

#include "../command.h"
#include "../terminal/output.h"
#include "compat_options.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

enum { TEXT_COLUMN = 34, LAST_COLUMN = 100 };

static void describe_list(const number_list *list, char *buf, size_t cap) {
    size_t n = 0;
    for (size_t i = 0; i < list->n && n < cap; i++)
        n += (size_t)snprintf(buf + n, cap - n, "%s%" PRIu32, i ? "," : "", list->v[i]);
}

/* Writes the word of "a|b|c" that the field selects. */
static void describe_word(const option_def *def, const void *field, char *buf, size_t cap) {
    unsigned word;
    memcpy(&word, field, sizeof word);
    const char *at = def->value;
    for (unsigned i = (unsigned)def->low; i < word && strchr(at, '|'); i++)
        at = strchr(at, '|') + 1;
    snprintf(buf, cap, "%.*s", (int)strcspn(at, "|"), at);
}

void option_value(const option_def *def, const void *target, char *buf, size_t cap) {
    const void *field = (const char *)target + def->offset;
    const char *text = NULL;
    buf[0] = '\0';
    switch (def->kind) {
    case OPTION_TEXT:
    case OPTION_NAME:
        text = *(const char *const *)field;
        break;
    case OPTION_DTYPE:
        text = *(const ag_dtype *)field == AG_WEIGHTS_AUTO
                   ? "auto"
                   : ag_dtype_name(*(const ag_dtype *)field);
        break;
    case OPTION_U32:
        snprintf(buf, cap, "%" PRIu32, *(const uint32_t *)field);
        break;
    case OPTION_I64:
        snprintf(buf, cap, "%" PRId64, *(const int64_t *)field);
        break;
    case OPTION_REAL:
        snprintf(buf, cap, "%.7g", *(const double *)field);
        break;
    case OPTION_LIST:
        describe_list(field, buf, cap);
        break;
    case OPTION_WORD:
        describe_word(def, field, buf, cap);
        break;
    case OPTION_CALL:
        if (def->show) def->show(target, buf, cap);
        break;
    case OPTION_FLAG:
    case OPTION_SIZE:
    case OPTION_FILE:
        break;
    }
    if (text) snprintf(buf, cap, "%s", text);
}

void help_of_row(const option_def *def, const void *target, char *buf, size_t cap) {
    char initial[128] = "", types[AG_DTYPE_LIST];
    if (!def->no_default) option_value(def, target, initial, sizeof initial);
    const bool lists = def->help[strlen(def->help) - 1] == ':';
    size_t n = (size_t)snprintf(
        buf, cap, "%s%s%s%s", def->help, lists ? " " : "",
        lists ? ag_dtype_list(def->dtypes, types, sizeof types) : "",
        lists && def->as_is ? ", as-is (the file's types), mix (of several, at most 5.3 bits per "
                              "weight), auto (as-is if they are quantised, else mix)"
                            : "");
    const char *before = " (";
    if (initial[0]) {
        n += (size_t)snprintf(buf + n, cap - n, "%sdefault %s", before, initial);
        before = "; ";
    }
    for (size_t a = 0; a < OPTION_ALIASES && def->aliases[a]; a++) {
        const char *name = def->aliases[a];
        n += (size_t)snprintf(buf + n, cap - n, "%s%s%s%s", before, a ? "" : "also ",
                              name[0] == '-' ? "" : "--", name[0] == '-' ? name + 1 : name);
        before = ", ";
    }
    if (strcmp(before, " (") != 0) snprintf(buf + n, cap - n, ")");
}

/* Prints the words of `text` from TEXT_COLUMN on. `column` is the current column. */
static void print_wrapped(const char *text, size_t column, FILE *out) {
    while (*text) {
        size_t n = strcspn(text, " ");
        if (column > TEXT_COLUMN && column + 1 + n > LAST_COLUMN) {
            fprintf(out, "\n%*s", TEXT_COLUMN, "");
            column = TEXT_COLUMN;
        } else if (column > TEXT_COLUMN) {
            fputc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", (int)n, text);
        column += n;
        text += n;
        while (*text == ' ') text++;
    }
    fputc('\n', out);
}

static void print_row(const char *left, const char *text, FILE *out) {
    size_t column = (size_t)fprintf(out, "%s", left);
    if (column + 2 > TEXT_COLUMN) {
        fputc('\n', out);
        column = 0;
    }
    fprintf(out, "%*s", (int)(TEXT_COLUMN - column), "");
    print_wrapped(text, TEXT_COLUMN, out);
}

static void print_option(const option_def *def, const void *target, FILE *out) {
    char left[96], text[HELP_SIZE];
    char letter[8] = "    ";
    if (def->letter) snprintf(letter, sizeof letter, "-%c, ", def->letter);
    snprintf(left, sizeof left, "  %s--%s%s%s", letter, def->name, def->value ? " " : "",
             def->value ? def->value : "");
    help_of_row(def, target, text, sizeof text);
    print_row(left, text, out);
}

static void print_commands(const command_line *line, FILE *out) {
    if (line->commands) fprintf(out, "\nCommands:\n");
    for (const struct command *c = line->commands; c && c->name; c++)
        if (c->summary) fprintf(out, "  %-10s %s\n", c->name, c->summary);
}

static void print_help_rows(const command_line *line, FILE *out) {
    char text[HELP_SIZE];
    fprintf(out, "\nHelp:\n");
    print_row("  -h, --help[=FORM]", HELP_OPTION_TEXT, out);
    print_row("  -V, --version", "show the version", out);
    if (line->commands) return;
    snprintf(text, sizeof text, "accepted and ignored, since they are the default: %s",
             compat_options_ignored);
    print_row("  (of llama.cpp)", text, out);
}

void options_help(const command_line *line, FILE *out) {
    fprintf(out, "Usage: antigravity %s\n\n%s\n", line->usage, line->description);
    print_commands(line, out);
    for (size_t g = 0; g < MAX_GROUPS && line->groups[g].defs; g++) {
        const option_group *group = &line->groups[g];
        bool continues = g && !strcmp(group->title, line->groups[g - 1].title);
        if (!continues) fprintf(out, "\n%s:\n", group->title);
        for (size_t i = 0; i < group->n; i++) print_option(&group->defs[i], group->target, out);
    }
    print_help_rows(line, out);
    fprintf(out, "\nExamples:\n%s\n", line->examples);
}

/* Names of the forms, in the order of help_form. */
static const char *const forms[] = {"text", "man", "bash", "zsh", "fish", "commands"};

int options_write_help(const command_line *line, const char *name) {
    enum { N_FORMS = sizeof forms / sizeof forms[0] };
    size_t form = HELP_TEXT;
    while (name && form < N_FORMS && strcmp(name, forms[form]) != 0) form++;
    if (form == N_FORMS)
        return complain_usage("--help: '%.60s' is not one of text, man, bash, zsh, fish, commands",
                              name);
    if (form == HELP_TEXT) options_help(line, stdout);
    else if (form == HELP_MAN) help_write_man(line);
    else help_write_completion(line, (help_form)form);
    return EXIT_DONE;
}

char *help_command_name(const command_line *line, char *buf, size_t cap) {
    size_t n = 0;
    while (islower((unsigned char)line->usage[n]) || line->usage[n] == ' ') n++;
    while (n && !islower((unsigned char)line->usage[n - 1])) n--;
    snprintf(buf, cap, "%.*s", (int)n, line->usage);
    return buf;
}

static const char *summary_of_next = "";

void options_set_summary(const char *summary) { summary_of_next = summary; }

const char *options_summary(void) { return summary_of_next; }
