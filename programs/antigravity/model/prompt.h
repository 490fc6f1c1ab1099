/* SPDX-License-Identifier: Apache-2.0 */
/* Prompt of a command: text or token ids, from options, a file or standard input. */
#ifndef ANTIGRAVITY_PROMPT_H
#define ANTIGRAVITY_PROMPT_H

#include "../options/options.h"

#include <antigravity/model.h>
#include <antigravity/tokenizer.h>

typedef struct prompt_options {
    const char *text, *file, *ids; /* at most one is set; none: standard input */
    bool parse_special, no_bos, escape;
} prompt_options;

option_group prompt_group(prompt_options *o); /* -p, -f, --prompt-ids, ... */

typedef struct prompt {
    char *text; /* NULL if ids were given */
    size_t len;
    const char *source; /* for messages: file name or "the prompt" */
    int32_t *ids;
    size_t n;
} prompt;

/* Takes the operand, if any, as the text. Returns an exit code. */
int prompt_operand(const command_line *line, prompt_options *o);
extern const char prompt_operand_hint[];
/* Reads the text or parses the ids. prompt_check_ids() checks the ids' range. Reports a failure and
 * returns an exit code. */
int prompt_read(prompt *p, const prompt_options *o);
/* Encodes the text into ids. */
int prompt_encode(prompt *p, const prompt_options *o, const ag_tokenizer *t);
int prompt_check_ids(const prompt *p, uint32_t n_vocab);
/* Appends an id. Returns false if out of memory. */
bool ids_add(ag_ids *ids, int32_t id);
void prompt_free(prompt *p);

#endif
