/* SPDX-License-Identifier: Apache-2.0 */
/* Options and commands that other programs for language models have and this one has not, or calls
 * otherwise. */
#ifndef ANTIGRAVITY_OTHER_PROGRAMS_H
#define ANTIGRAVITY_OTHER_PROGRAMS_H

#include <stddef.h>

/* What to say of an option, "-x", "--word" or "--word=value"; NULL if it is known nowhere. */
const char *other_option_answer(const char *word);

/* Options that ask for what is done anyway. How many words the one at words[0] takes, its value
 * included where it has one; 0: it is none of them. words is ended by NULL. */
size_t other_option_accepted(char *const *words);
/* Their names, for the help. */
extern const char other_options_accepted[];

/* The same as other_option_answer() for a command. */
const char *other_command_answer(const char *name);

#endif
