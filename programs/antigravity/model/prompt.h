/* SPDX-License-Identifier: Apache-2.0 */
/* Where a command's text or ids come from. */
#ifndef ANTIGRAVITY_PROMPT_H
#define ANTIGRAVITY_PROMPT_H

#include "../options/options.h"

#include <antigravity/model.h>
#include <antigravity/tokenizer.h>

typedef struct prompt_options {
    const char *text, *file, *ids; /* at most one is given; none: standard input */
    bool parse_special, no_bos, escape;
} prompt_options;

option_group prompt_group(prompt_options *o); /* -p, -f, --prompt-ids, ... */

typedef struct prompt {
    char *text; /* NULL if ids were given */
    size_t len;
    const char *source; /* for messages: a file's name or "the prompt" */
    int32_t *ids;
    size_t n;
} prompt;

/* The word beside the options, if there is one, is the text; `hint` is for a second one. Returns an
 * exit code. */
int prompt_operand(const command_line *line, prompt_options *o);
extern const char prompt_operand_hint[];
/* Text as it stands, or the ids given. An id's place in the list and its range are checked against
 * n_vocab later, by prompt_check_ids(). Says what is wrong and returns an exit code. */
int prompt_read(prompt *p, const prompt_options *o);
/* Fills ids from the text. */
int prompt_encode(prompt *p, const prompt_options *o, const ag_tokenizer *t);
int prompt_check_ids(const prompt *p, uint32_t n_vocab);
/* At the list's end. False: out of memory. */
bool ids_add(ag_ids *ids, int32_t id);
void prompt_free(prompt *p);

#endif
