/* SPDX-License-Identifier: Apache-2.0 */
/* Chat template of a measure's prompts. */
#ifndef ANTIGRAVITY_TEMPLATE_OPTIONS_H
#define ANTIGRAVITY_TEMPLATE_OPTIONS_H

#include "../options/options.h"
#include "prompt_writer.h"

typedef struct template_options {
    const char *file; /* template file; NULL: the model's own */
    bool none;        /* plain text even if the model has a template */
} template_options;
option_group template_group(template_options *o); /* --chat-template --no-chat-template */
int template_check(const template_options *o);    /* EXIT_USAGE if both were given */

/* Opens the writer of the model in `dir`. Start from a zeroed writer. Returns an exit code. */
int prompt_writer_open(prompt_writer *w, const char *dir, const ag_tokenizer *tokenizer,
                       const template_options *o);

#endif
