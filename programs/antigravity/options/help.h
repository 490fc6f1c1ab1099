/* SPDX-License-Identifier: Apache-2.0 */
/* Forms of --help: a text, a manual page, and completions of shells, all from the option rows. */
#ifndef ANTIGRAVITY_HELP_H
#define ANTIGRAVITY_HELP_H

#include "options.h"

typedef enum help_form {
    HELP_TEXT,
    HELP_MAN,
    HELP_BASH,
    HELP_ZSH,
    HELP_FISH,
    HELP_COMMANDS, /* names of all commands, one per line */
} help_form;

enum { HELP_SIZE = 1024 };

#define HELP_OPTION_TEXT \
    "show this help; FORM: text, man for a manual page; for all commands bash, zsh, fish"

/* Writes the words of the command, such as "eval ppl"; "" for the program. Returns buf. */
char *help_command_name(const command_line *line, char *buf, size_t cap);

/* Writes the help of a row with "(default 0.8; also --temp)". */
void help_of_row(const option_def *def, const void *target, char *buf, size_t cap);

void help_write_man(const command_line *line);

/* Writes a completion. For the line of the program each of its `commands` writes a portion. */
void help_write_completion(const command_line *line, help_form form);

#endif
