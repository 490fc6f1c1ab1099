/* SPDX-License-Identifier: Apache-2.0 */
/* Draft model: a smaller model that reads the same text and proposes tokens. It reads lazily: only
 * when it is asked for a draft. */
#ifndef AG_SESSION_DRAFT_MODEL_H
#define AG_SESSION_DRAFT_MODEL_H

#include "session/ngram_lookup.h"

#include <antigravity/session.h>

typedef struct ag_draft_model ag_draft_model;

enum { AG_DRAFT_MODEL_MAX_TOKENS = 16 };

/* The session is borrowed and must have this serial; its content is lost with the first draft.
 * chunk: maximum tokens of one step. n_vocab: vocabulary of the main model. */
ag_status ag_draft_model_create(ag_session *s, uint64_t serial, uint32_t chunk, uint32_t n_vocab,
                                ag_draft_model **out, ag_error *err);
void ag_draft_model_destroy(ag_draft_model *d);
/* Returns whether the draft model uses the session of this serial. That session may be freed
 * already. */
bool ag_draft_model_is_of(const ag_draft_model *d, uint64_t serial);

/* Shortens what was read to the first `length` tokens of the text. */
void ag_draft_model_truncate(ag_draft_model *d, uint32_t length);
/* Writes at most n tokens that may follow the text, and returns how many. Returns 0 if the text
 * does not fit the context, and always after a failure. Calls stop(user) before each step that
 * reads text; true ends the draft. */
size_t ag_draft_model_draft(ag_draft_model *d, const ag_ngram_lookup *text, int32_t *ids, size_t n,
                            bool (*stop)(void *user), void *user);

#endif
