/* SPDX-License-Identifier: Apache-2.0 */
/* A smaller model that reads the same text and guesses how it goes on. What it consumes follows the
 * text lazily: when it is asked. */
#ifndef AG_SESSION_DRAFT_MODEL_H
#define AG_SESSION_DRAFT_MODEL_H

#include "session/ngram_lookup.h"

#include <antigravity/session.h>

typedef struct ag_draft_model ag_draft_model;

enum { AG_DRAFT_MODEL_MAX_TOKENS = 16 };

/* The session is borrowed; whatever it holds goes when it is first asked. n_vocab: of the model
 * that is guessed for. */
ag_status ag_draft_model_create(ag_session *s, uint64_t serial, uint32_t chunk, uint32_t n_vocab,
                                ag_draft_model **out, ag_error *err);
void ag_draft_model_destroy(ag_draft_model *d);
/* Its session may be gone. */
bool ag_draft_model_is_of(const ag_draft_model *d, uint64_t serial);

/* The text has only so many tokens any more. */
void ag_draft_model_truncate(ag_draft_model *d, uint32_t length);
/* Writes at most n tokens that may follow the text, which the lookup remembers, and returns how
 * many: 0 where the text does not fit its context, and for ever after a failure. stop: asked from
 * time to time while it reads; true ends that. */
size_t ag_draft_model_draft(ag_draft_model *d, const ag_ngram_lookup *text, int32_t *ids, size_t n,
                            bool (*stop)(void *user), void *user);

#endif
