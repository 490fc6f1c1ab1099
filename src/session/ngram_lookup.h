/* SPDX-License-Identifier: Apache-2.0 */
/* Prompt lookup: where in a text did its last tokens stand before, and what followed them there?
 * The newest tokens are kept, and for every pair and every four of them where they last stood;
 * a token costs the same however long the text is. */
#ifndef AG_SESSION_NGRAM_LOOKUP_H
#define AG_SESSION_NGRAM_LOOKUP_H

#include <antigravity/status.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ag_ngram_lookup ag_ngram_lookup;

enum { AG_NGRAM_LOOKUP_MATCH_MAX = 32 };

/* Remembers as many tokens as the next power of two that is not below n_tokens. */
ag_status ag_ngram_lookup_create(size_t n_tokens, ag_ngram_lookup **out, ag_error *err);
void ag_ngram_lookup_destroy(ag_ngram_lookup *l);
/* Bytes that it takes. */
size_t ag_ngram_lookup_bytes(size_t n_tokens);

/* Forgets the text. */
void ag_ngram_lookup_reset(ag_ngram_lookup *l);
/* The text goes on with this token; below 0: with one that is not known. */
void ag_ngram_lookup_push(ag_ngram_lookup *l, int32_t id);
/* Takes the last n tokens back; of a text that is shorter all. */
void ag_ngram_lookup_pop(ag_ngram_lookup *l, size_t n);

/* Tokens of the text, and the i-th from 1 on; below 0: not known, not remembered, or not there. */
uint32_t ag_ngram_lookup_length(const ag_ngram_lookup *l);
int32_t ag_ngram_lookup_token(const ag_ngram_lookup *l, uint32_t i);

/* How many of the last tokens, at most AG_LOOKUP_MATCH_MOST, stand before the place that the text
 * seems to repeat; 0: there is none. */
size_t ag_ngram_lookup_match(const ag_ngram_lookup *l);
/* Writes n tokens that follow that place, and returns n; 0 if there is none, fewer before one that
 * is not known. A text that repeats its own end does so for ever. */
size_t ag_ngram_lookup_draft(const ag_ngram_lookup *l, int32_t *ids, size_t n);

#endif
