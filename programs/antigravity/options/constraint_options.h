/* SPDX-License-Identifier: Apache-2.0 */
/* --json-schema, --json-object, --grammar, --regex and --choice: what the text must be. */
#ifndef ANTIGRAVITY_CONSTRAINT_OPTIONS_H
#define ANTIGRAVITY_CONSTRAINT_OPTIONS_H

#include "../model/engine.h"
#include "options.h"

#include <antigravity/constrain.h>
#include <antigravity/session.h>

typedef struct constraint_options {
    const char *schema, *grammar; /* a file or the text itself; borrowed */
    const char *regex;
    bool json_object;
    char **choices; /* owned */
    size_t n_choices;
    ag_json_spacing spacing;
    ag_json_order order;
} constraint_options;

option_group constraint_group(constraint_options *o);
/* At most one of them: EXIT_DONE or an exit code, which has been explained. */
int constraint_check(const constraint_options *o);
/* Whether there is one. */
bool constraint_is_set(const constraint_options *o);
void constraint_options_free(constraint_options *o);

/* What is made of them; zero-initialise. */
typedef struct constraint {
    ag_constraint_vocab *vocab;
    ag_constraint *text; /* NULL: none is asked for */
} constraint;

/* Compiles the constraint and gives it to the sampler, which must go first. */
int constraint_open(constraint *c, const constraint_options *o, const engine *e,
                    ag_sampler *sampler);
/* Whether a text that ended so is not yet what the constraint asks for. */
bool constraint_is_unmet(const constraint *c, ag_finish finish);
void constraint_close(constraint *c);

#endif
