/* SPDX-License-Identifier: Apache-2.0 */
/* --help=bash, zsh and fish: completions of options, their values and commands. The program writes
 * the frame and lets each command write its portion. */
#include "help.h"

#include "../command.h"

#include <antigravity/dtype.h>
#include <antigravity/status.h>
#include <ctype.h>
#include <string.h>

/* Calls `visit` for each row. */
static void each_row(const command_line *line, void (*visit)(const option_def *def)) {
    for (size_t g = 0; g < MAX_GROUPS && line->groups[g].defs; g++)
        for (size_t i = 0; i < line->groups[g].n; i++) visit(&line->groups[g].defs[i]);
}

/* Returns whether the value may name a file: "FILE", "even|FILE", "DIR", "MODEL", "chain.pem". */
static bool takes_file(const option_def *def) {
    static const char *const kinds[] = {"FILE", "DIR", "PATH", "MODEL", ".pem"};
    for (size_t i = 0; def->value && i < sizeof kinds / sizeof kinds[0]; i++)
        if (strstr(def->value, kinds[i])) return true;
    return false;
}

/* Writes the words that the value may be, separated by spaces: "f32 f16", "md csv json". */
static void list_values(const option_def *def, char *buf, size_t cap) {
    buf[0] = '\0';
    if (def->kind == OPTION_DTYPE) {
        ag_dtype_list(def->dtypes, buf, cap);
        for (char *c = buf, *to = buf; (*to = *c) != '\0'; c++) to += *c != ',';
        if (def->as_is) snprintf(buf + strlen(buf), cap - strlen(buf), " as-is mix auto");
        return;
    }
    size_t n = 0;
    for (const char *at = def->value ? def->value : ""; *at;) {
        const size_t word = strcspn(at, "|");
        if (islower((unsigned char)*at) && !memchr(at, '.', word) && !memchr(at, '[', word))
            n += (size_t)snprintf(buf + n, cap - n, "%s%.*s", n ? " " : "", (int)word, at);
        at += word + (at[word] == '|');
    }
}

/* Prints the first clause of a help, with `escape` before each of the characters `special`. */
static void print_clause(const char *help, const char *special, const char *escape) {
    size_t n = strcspn(help, ";");
    while (n && strchr(":. ", help[n - 1])) n--;
    for (size_t i = 0; i < n; i++) {
        if (strchr(special, help[i])) fputs(escape, stdout);
        /* Both shells end the text at a quote, unless it is written so. */
        if (help[i] == '\'') fputs("'\\''", stdout);
        else putchar(help[i]);
    }
}

/* Lets each command below the line write its portion. */
static void write_portions(const command_line *line, const char *form) {
    char option[32], name[32];
    snprintf(option, sizeof option, "--help=%s", form);
    for (const struct command *c = line->commands; c && c->name; c++) {
        if (!c->summary) continue;
        snprintf(name, sizeof name, "%s", c->name);
        char *args[] = {name, option, NULL};
        c->run(2, args);
    }
}

static void print_command_names(const command_line *line) {
    const char *space = "";
    for (const struct command *c = line->commands; c && c->name; c++) {
        if (!c->summary) continue;
        printf("%s%s", space, c->name);
        space = " ";
    }
}

/* Calls `write` for each alias of a command. */
static void each_alias(const command_line *line, void (*write)(const char *alias, const char *of)) {
    const char *of = "";
    for (const struct command *c = line->commands; c && c->name; c++) {
        if (c->summary) of = c->name;
        else write(c->name, of);
    }
}

/* Writes a case of bash and zsh that replaces an alias before the cursor by its command. */
static void shell_alias(const char *alias, const char *of) {
    printf("    '%s '*) line=\"%s ${line#* }\" ;;\n", alias, of);
}

/* ---- bash ---- */

static void bash_names(const option_def *def) {
    if (def->letter) printf("-%c ", def->letter);
    printf("--%s ", def->name);
}

static void bash_value(const option_def *def) {
    char values[AG_DTYPE_LIST];
    if (!def->value) return;
    list_values(def, values, sizeof values);
    fputs("        ", stdout);
    if (def->letter) printf("-%c | ", def->letter);
    printf("--%s) words='%s' files=%s ;;\n", def->name, values, takes_file(def) ? "1" : "");
}

static void bash_portion(const command_line *line, const char *name) {
    printf("    '%s%s'*)\n        words='", name, *name ? " " : "");
    print_command_names(line);
    if (line->commands) putchar(' ');
    each_row(line, bash_names);
    printf("-h --help -V --version' files=%s\n", line->max_operands ? "1" : "");
    if (line->groups[0].defs) {
        fputs("        case $previous in\n", stdout);
        each_row(line, bash_value);
        fputs("        esac\n", stdout);
    }
    fputs("        ;;\n", stdout);
}

static void write_bash(const command_line *line, const char *name) {
    if (!*name) {
        printf("# Completion of antigravity %s for bash, from 'antigravity --help=bash'.\n"
               "_antigravity() {\n"
               "    local IFS=$' \\t\\n' word=${COMP_WORDS[COMP_CWORD]} words files\n"
               "    local previous=${COMP_WORDS[COMP_CWORD - 1]}\n"
               "    # Bash divides --option=value at '='.\n"
               "    if [ \"$word\" = = ]; then\n"
               "        word=\n"
               "    elif [ \"$previous\" = = ]; then\n"
               "        previous=${COMP_WORDS[COMP_CWORD - 2]}\n"
               "    fi\n"
               "    local line=\"${COMP_WORDS[*]:1:COMP_CWORD - 1} \"\n"
               "    case $line in\n",
               ag_version());
        each_alias(line, shell_alias);
        fputs("    esac\n    case $line in\n", stdout);
    }
    write_portions(line, "bash");
    bash_portion(line, name);
    if (!*name)
        fputs("    esac\n"
              "    case $word in -*) files= ;; esac\n"
              "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
              "    if [ -n \"$files\" ]; then\n"
              "        case $words in -*) COMPREPLY=() ;; esac\n"
              "        compopt -o default 2>/dev/null\n"
              "    fi\n"
              "    return 0\n"
              "}\n"
              "complete -F _antigravity antigravity\n",
              stdout);
}

/* ---- zsh ---- */

static void zsh_spec(const option_def *def, const char *dashes, const char *name) {
    char values[AG_DTYPE_LIST];
    printf(" \\\n            '*%s%s%s[", dashes, name, def->value && dashes[1] ? "=" : "");
    print_clause(def->help, "[]\\:", "\\");
    putchar(']');
    if (def->value) {
        list_values(def, values, sizeof values);
        fputs(": :", stdout);
        if (values[0] && takes_file(def)) printf("{ compadd %s; _files }", values);
        else if (values[0]) printf("(%s)", values);
        else if (takes_file(def)) fputs("_files", stdout);
        else putchar(' ');
    }
    putchar('\'');
}

static void zsh_row(const option_def *def) {
    const char letter[] = {def->letter, '\0'};
    if (def->letter) zsh_spec(def, "-", letter);
    zsh_spec(def, "--", def->name);
}

static void zsh_portion(const command_line *line, const char *name) {
    printf("    '%s%s'*)\n", name, *name ? " " : "");
    if (line->commands) {
        fputs("        list=(", stdout);
        for (const struct command *c = line->commands; c->name; c++) {
            if (!c->summary) continue;
            printf("\n            '%s:", c->name);
            print_clause(c->summary, ":\\", "\\");
            putchar('\'');
        }
        fputs(")\n        _describe command list\n", stdout);
    }
    size_t words = *name ? 1 : 0;
    for (const char *c = name; *c; c++) words += *c == ' ';
    if (words) printf("        shift %zu words\n        (( CURRENT -= %zu ))\n", words, words);
    fputs("        _arguments", stdout);
    each_row(line, zsh_row);
    fputs(" \\\n            {-h,--help}'[show this help]' {-V,--version}'[show the version]'",
          stdout);
    if (line->max_operands) fputs(" \\\n            '*: :_files'", stdout);
    fputs("\n        ;;\n", stdout);
}

static void write_zsh(const command_line *line, const char *name) {
    if (!*name) {
        printf("#compdef antigravity\n"
               "# Completion of antigravity %s for zsh, from 'antigravity --help=zsh'.\n"
               "_antigravity() {\n"
               "    local -a list\n"
               "    local line=\"${(j: :)words[2,CURRENT-1]} \"\n"
               "    case $line in\n",
               ag_version());
        each_alias(line, shell_alias);
        fputs("    esac\n    case $line in\n", stdout);
    }
    write_portions(line, "zsh");
    zsh_portion(line, name);
    if (!*name) fputs("    esac\n}\n_antigravity \"$@\"\n", stdout);
}

/* ---- fish ---- */

static char fish_command[64];

static void fish_row(const option_def *def) {
    char values[AG_DTYPE_LIST];
    printf("complete -c antigravity -n '__antigravity_in %s' -l %s", fish_command, def->name);
    if (def->letter) printf(" -s %c", def->letter);
    if (def->value) {
        list_values(def, values, sizeof values);
        fputs(takes_file(def) ? " -r -F" : " -x", stdout);
        if (values[0]) printf(" -a '%s'", values);
    }
    fputs(" -d '", stdout);
    print_clause(def->help, "\\", "\\");
    fputs("'\n", stdout);
}

static void fish_alias(const char *alias, const char *of) {
    printf("    test \"$words[2]\" = %s; and set words[2] %s\n", alias, of);
}

/* Starts a function that has the words before the cursor, with commands in place of aliases. */
static void begin_fish_function(const command_line *line, const char *name) {
    printf("function %s\n"
           "    set -l words (commandline -opc)\n",
           name);
    each_alias(line, fish_alias);
}

static void write_fish(const command_line *line, const char *name) {
    if (!*name) {
        printf("# Completion of antigravity %s for fish, from 'antigravity --help=fish'.\n"
               "# True after the words of a command; __antigravity_at: directly after them.\n",
               ag_version());
        begin_fish_function(line, "__antigravity_in");
        fputs("    set -l n (math (count $argv) + 1)\n"
              "    test (count $words) -ge $n; and test \"$words[2..$n]\" = \"$argv\"\n"
              "end\n",
              stdout);
        begin_fish_function(line, "__antigravity_at");
        fputs("    test \"$words[2..-1]\" = \"$argv\"\n"
              "end\n"
              "complete -c antigravity -s h -l help -d 'show this help'\n"
              "complete -c antigravity -s V -l version -d 'show the version'\n",
              stdout);
    }
    for (const struct command *c = line->commands; c && c->name; c++) {
        if (!c->summary) continue;
        printf("complete -c antigravity -n '__antigravity_at %s' -a %s -d '", name, c->name);
        print_clause(c->summary, "\\", "\\");
        fputs("'\n", stdout);
    }
    write_portions(line, "fish");
    if (!line->max_operands)
        printf("complete -c antigravity -n '__antigravity_%s %s' -f\n", *name ? "in" : "at", name);
    snprintf(fish_command, sizeof fish_command, "%s", name);
    each_row(line, fish_row);
}

void help_write_completion(const command_line *line, help_form form) {
    char name[64];
    help_command_name(line, name, sizeof name);
    if (form == HELP_BASH) write_bash(line, name);
    else if (form == HELP_ZSH) write_zsh(line, name);
    else if (form == HELP_FISH) write_fish(line, name);
    else {
        if (*name) printf("%s\n", name);
        write_portions(line, "commands");
    }
}
