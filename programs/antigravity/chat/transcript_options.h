/* SPDX-License-Identifier: Apache-2.0 */
/* How a conversation begins: system prompt and template. */
#ifndef ANTIGRAVITY_TRANSCRIPT_OPTIONS_H
#define ANTIGRAVITY_TRANSCRIPT_OPTIONS_H

#include "../options/options.h"

typedef struct transcript_options {
    const char *system, *system_file, *template_file;
} transcript_options;

option_group transcript_group(transcript_options *o);
/* EXIT_USAGE: there are two system prompts. */
int transcript_options_check(const transcript_options *o);
/* The first option that was given, without dashes; NULL: none. */
const char *transcript_options_given(const transcript_options *o);

/* The template in the file that --chat-template names ("-": standard input); the caller's to
 * free(). Says what is wrong and returns an exit code. */
int transcript_template_read(const char *path, char **text);
/* What the options say, the caller's to free(); NULL: nothing. Returns an exit code. */
typedef struct transcript_texts {
    char *system, *jinja;
} transcript_texts;
int transcript_texts_read(transcript_texts *t, const transcript_options *o);
void transcript_texts_free(transcript_texts *t);

#endif
