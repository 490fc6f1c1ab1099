/* SPDX-License-Identifier: Apache-2.0 */
/* Options and commands that other programs for language models have and this one has not, or calls
 * otherwise. */
#ifndef ANTIGRAVITY_COMPAT_OPTIONS_H
#define ANTIGRAVITY_COMPAT_OPTIONS_H

#include <stddef.h>

/* What to say of an option, "-x", "--word" or "--word=value"; NULL if it is known nowhere. */
const char *compat_option_message(const char *word);

/* Options that ask for what is done anyway. How many words the one at words[0] takes, its value
 * included where it has one; 0: it is none of them. words is ended by NULL. */
size_t compat_option_words(char *const *words);
/* Their names, for the help. */
extern const char compat_options_ignored[];

/* The same as compat_option_message() for a command. */
const char *compat_command_message(const char *name);

#endif
