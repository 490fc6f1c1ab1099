/* SPDX-License-Identifier: Apache-2.0 */
/* Which chat template a measure asks in. */
#ifndef ANTIGRAVITY_TEMPLATE_OPTIONS_H
#define ANTIGRAVITY_TEMPLATE_OPTIONS_H

#include "../options/options.h"
#include "prompt_writer.h"

typedef struct template_options {
    const char *file; /* of a template; NULL: the model's own */
    bool none;        /* whatever the model has */
} template_options;
option_group template_group(template_options *o); /* --chat-template --no-chat-template */
int template_check(const template_options *o);    /* EXIT_USAGE: both were given */

/* `dir`: the model. Returns an exit code; start from a zeroed writer. */
int prompt_writer_open(prompt_writer *w, const char *dir, const ag_tokenizer *tokenizer,
                       const template_options *o);

#endif
