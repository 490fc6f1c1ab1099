/* SPDX-License-Identifier: Apache-2.0 */
/* Options of a conversation: system prompt and chat template. */
#ifndef ANTIGRAVITY_TRANSCRIPT_OPTIONS_H
#define ANTIGRAVITY_TRANSCRIPT_OPTIONS_H

#include "../options/options.h"

typedef struct transcript_options {
    const char *system, *system_file, *template_file;
} transcript_options;

option_group transcript_group(transcript_options *o);
/* Returns EXIT_USAGE if two system prompts were given. */
int transcript_options_check(const transcript_options *o);
/* Returns the first given option without dashes; NULL if none. */
const char *transcript_options_given(const transcript_options *o);

/* Reads the template file of --chat-template; "-" is standard input. The caller frees *text.
 * Reports a failure and returns an exit code. */
int transcript_template_read(const char *path, char **text);
/* Texts that the options name; NULL if not given. transcript_texts_free() also after a failure. */
typedef struct transcript_texts {
    char *system, *jinja;
} transcript_texts;
int transcript_texts_read(transcript_texts *t, const transcript_options *o);
void transcript_texts_free(transcript_texts *t);

#endif
