/* SPDX-License-Identifier: Apache-2.0 */
/* --json-schema, --json-object, --grammar, --regex and --choice: constraints on the generated
 * text. */
#ifndef ANTIGRAVITY_CONSTRAINT_OPTIONS_H
#define ANTIGRAVITY_CONSTRAINT_OPTIONS_H

#include "../model/engine.h"
#include "options.h"

#include <antigravity/chat.h>
#include <antigravity/constrain.h>
#include <antigravity/session.h>

typedef struct constraint_options {
    const char *schema, *grammar; /* file name or the text itself; borrowed */
    const char *regex;
    bool json_object;
    char **choices; /* owned */
    size_t n_choices;
    ag_json_spacing spacing;
    ag_json_order order;
} constraint_options;

option_group constraint_group(constraint_options *o);
/* Returns EXIT_USAGE, after a message, if there is more than one constraint. */
int constraint_check(const constraint_options *o);
/* Returns whether a constraint was given. */
bool constraint_is_set(const constraint_options *o);
void constraint_options_free(constraint_options *o);

/* Compiled constraint; zero-initialise. */
typedef struct constraint {
    ag_constraint_vocab *vocab;
    ag_constraint *text; /* NULL: none */
} constraint;

/* Compiles the constraint and attaches it to the sampler. Destroy the sampler before
 * constraint_close(). Returns an exit code. */
int constraint_open(constraint *c, const constraint_options *o, const engine *e,
                    ag_sampler *sampler);
/* Does the same for the tool calls of the next answer, in place of an earlier answer's. No tools:
 * no constraint. */
int constraint_open_calls(constraint *c, const constraint_options *o, const ag_chat *chat,
                          const engine *e, ag_sampler *sampler);
/* Returns whether a text that ended with `finish` does not meet the constraint yet. */
bool constraint_is_unmet(const constraint *c, ag_finish finish);
void constraint_close(constraint *c);

#endif
