/* SPDX-License-Identifier: Apache-2.0 */
/* --draft-model: a smaller model on the same backend that drafts tokens for another. */
#ifndef ANTIGRAVITY_DRAFT_H
#define ANTIGRAVITY_DRAFT_H

#include "../options/speculation_options.h"
#include "engine.h"

typedef struct draft_engine {
    char *dir;
    ag_model *model;
    ag_session *session; /* NULL: no draft model */
} draft_engine;

/* Loads the draft model, if any, and creates its session of n_context slots. Fails if its
 * vocabulary differs. Returns an exit code. */
int draft_open(draft_engine *d, const engine *e, const speculation_options *o,
               const model_options *m, uint32_t n_context);
void draft_close(draft_engine *d); /* before engine_close() */

#endif
