/* SPDX-License-Identifier: Apache-2.0 */
/* --draft-model: a smaller model that guesses for another, on the same backend. */
#ifndef ANTIGRAVITY_DRAFT_H
#define ANTIGRAVITY_DRAFT_H

#include "../options/speculation_options.h"
#include "engine.h"

typedef struct draft_engine {
    char *dir;
    ag_model *model;
    ag_session *session; /* NULL: none was asked for */
} draft_engine;

/* Loads the model, if there is one, and makes a session of so many slots. Refuses one of another
 * vocabulary. Returns an exit code. */
int draft_open(draft_engine *d, const engine *e, const speculation_options *o,
               const model_options *m, uint32_t n_context);
void draft_close(draft_engine *d); /* before the engine */

#endif
