/* SPDX-License-Identifier: Apache-2.0 */
/* Options and commands of other language model programs that this program lacks or names
 * differently. */
#ifndef ANTIGRAVITY_COMPAT_OPTIONS_H
#define ANTIGRAVITY_COMPAT_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

/* Returns the advice for an option "-x", "--word" or "--word=value" of a command or of
 * 'antigravity serve'; NULL if unknown. */
const char *compat_option_message(const char *word, bool is_server);

/* Returns how many words the option at words[0] and its value take if it asks for the default
 * behaviour and can be skipped; 0 otherwise. NULL ends `words`. */
size_t compat_option_words(char *const *words);
/* Names of those options, for the help. */
extern const char compat_options_ignored[];

/* Returns the advice for a command; NULL if unknown. */
const char *compat_command_message(const char *name);

#endif
