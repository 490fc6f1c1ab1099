/* SPDX-License-Identifier: Apache-2.0 */
/* --help=man: a manual page in the macros of man(7). */
#include "help.h"

#include "../command.h"
#include "compat_options.h"

#include <antigravity/status.h>
#include <ctype.h>
#include <string.h>

/* Prints n bytes of text such that troff shows each character as it is. */
static void print_escaped(const char *text, size_t n) {
    static const char special[] = "-\\'`^~";
    static const char *const escapes[] = {"\\-", "\\e", "\\(aq", "\\(ga", "\\(ha", "\\(ti"};
    for (size_t i = 0; i < n; i++) {
        const char *at = strchr(special, text[i]);
        if (at) fputs(escapes[at - special], stdout);
        else putchar(text[i]);
    }
}

/* Prints a text line by line: a line that begins with '.' is no request, an empty line ends a
 * paragraph. */
static void print_lines(const char *text) {
    while (*text) {
        const size_t n = strcspn(text, "\n");
        if (*text == '.') fputs("\\&", stdout);
        if (n) print_escaped(text, n);
        else fputs(".PP", stdout);
        putchar('\n');
        text += n + (text[n] == '\n');
    }
}

static void print_option(const option_def *def, const void *target) {
    char text[HELP_SIZE];
    fputs(".TP\n", stdout);
    if (def->letter) printf("\\fB\\-%c\\fR, ", def->letter);
    fputs("\\fB\\-\\-", stdout);
    print_escaped(def->name, strlen(def->name));
    fputs("\\fR", stdout);
    if (def->value) {
        fputs(" \\fI", stdout);
        print_escaped(def->value, strlen(def->value));
        fputs("\\fR", stdout);
    }
    putchar('\n');
    help_of_row(def, target, text, sizeof text);
    print_lines(text);
}

/* Prints "antigravity-eval-ppl" for the path "eval ppl". */
static void print_page_name(const char *path, int (*convert)(int), const char *hyphen) {
    for (const char *c = "antigravity"; *c; c++) putchar(convert(*c));
    if (*path) fputs(hyphen, stdout);
    for (; *path; path++) {
        if (*path == ' ') fputs(hyphen, stdout);
        else putchar(convert(*path));
    }
}

static int same(int c) { return c; }

static void print_reference(const char *path, const char *name) {
    fputs(".BR ", stdout);
    char page[128];
    snprintf(page, sizeof page, "%.60s%s%.60s", path, *path && *name ? " " : "", name);
    print_page_name(page, same, "\\-");
    fputs(" (1)", stdout);
}

static void print_commands(const command_line *line, const char *path) {
    if (line->commands) fputs(".SH COMMANDS\n", stdout);
    for (const struct command *c = line->commands; c && c->name; c++) {
        if (!c->summary) continue;
        fputs(".TP\n", stdout);
        print_reference(path, c->name);
        putchar('\n');
        print_lines(c->summary);
    }
}

static void print_options(const command_line *line) {
    fputs(".SH OPTIONS\n", stdout);
    for (size_t g = 0; g < MAX_GROUPS && line->groups[g].defs; g++) {
        const option_group *group = &line->groups[g];
        if (!g || strcmp(group->title, line->groups[g - 1].title) != 0) {
            fputs(".SS ", stdout);
            print_escaped(group->title, strlen(group->title));
            putchar('\n');
        }
        for (size_t i = 0; i < group->n; i++) print_option(&group->defs[i], group->target);
    }
    if (line->groups[0].defs) fputs(".SS Help\n", stdout);
    fputs(".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR[=\\fIFORM\\fR]\n" HELP_OPTION_TEXT "\n"
          ".TP\n\\fB\\-V\\fR, \\fB\\-\\-version\\fR\nshow the version\n",
          stdout);
    if (line->commands) return;
    fputs(".PP\nOptions of llama.cpp that are accepted and ignored, since they are the default: ",
          stdout);
    print_lines(compat_options_ignored);
}

void help_write_man(const command_line *line) {
    char path[64];
    const size_t n = strlen(help_command_name(line, path, sizeof path));
    fputs(".TH ", stdout);
    print_page_name(path, toupper, "-");
    printf(" 1 \"\" \"antigravity %s\" \"User Commands\"\n.nh\n.ad l\n.SH NAME\n", ag_version());
    print_page_name(path, same, "\\-");
    fputs(" \\- ", stdout);
    const char *summary = options_summary();
    print_escaped(summary, strlen(summary));
    printf("\n.SH SYNOPSIS\n\\fBantigravity%s%s\\fR", n ? " " : "", path);
    if (!n) putchar(' ');
    print_escaped(line->usage + n, strlen(line->usage + n));
    fputs("\n.SH DESCRIPTION\n", stdout);
    print_lines(line->description);
    print_commands(line, path);
    print_options(line);
    fputs(".SH EXAMPLES\n.EX\n", stdout);
    print_lines(line->examples);
    fputs(".EE\n", stdout);
    if (!n) return;
    fputs(".SH \"SEE ALSO\"\n", stdout);
    print_reference("", "");
    putchar('\n');
}
