/* SPDX-License-Identifier: Apache-2.0 */
/* How a conversation begins: system prompt and template. */
#ifndef ANTIGRAVITY_TALK_OPTIONS_H
#define ANTIGRAVITY_TALK_OPTIONS_H

#include "../options/options.h"

typedef struct talk_options {
    const char *system, *system_file, *template_file;
} talk_options;

option_group talk_group(talk_options *o);
/* EXIT_USAGE: there are two system prompts. */
int talk_options_check(const talk_options *o);
/* The first option that was given, without dashes; NULL: none. */
const char *talk_options_given(const talk_options *o);

/* The template in the file that --chat-template names ("-": standard input); the caller's to
 * free(). Says what is wrong and returns an exit code. */
int talk_template_read(const char *path, char **text);
/* What the options say, the caller's to free(); NULL: nothing. Returns an exit code. */
typedef struct talk_texts {
    char *system, *jinja;
} talk_texts;
int talk_texts_read(talk_texts *t, const talk_options *o);
void talk_texts_free(talk_texts *t);

#endif
