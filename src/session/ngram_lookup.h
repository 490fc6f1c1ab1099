/* SPDX-License-Identifier: Apache-2.0 */
/* N-gram lookup: finds an earlier occurrence of the text's last tokens and proposes what followed
 * it.
 *
 * It stores the newest tokens and, for each n-gram of 2 and of 4 tokens, where it last occurred.
 * The cost of a token does not depend on the length of the text. vLLM calls the method n-gram
 * speculation. */
#ifndef AG_SESSION_NGRAM_LOOKUP_H
#define AG_SESSION_NGRAM_LOOKUP_H

#include <antigravity/status.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ag_ngram_lookup ag_ngram_lookup;

enum { AG_NGRAM_LOOKUP_MATCH_MAX = 32 };

/* Creates a lookup that stores n_tokens tokens, rounded up to a power of two of at least 64. */
ag_status ag_ngram_lookup_create(size_t n_tokens, ag_ngram_lookup **out, ag_error *err);
void ag_ngram_lookup_destroy(ag_ngram_lookup *l);
/* Returns the bytes of such a lookup. */
size_t ag_ngram_lookup_bytes(size_t n_tokens);

/* Appends a token; id < 0: an unknown one. */
void ag_ngram_lookup_push(ag_ngram_lookup *l, int32_t id);
/* Removes the last n tokens, at most all. */
void ag_ngram_lookup_pop(ag_ngram_lookup *l, size_t n);

/* Returns the number of tokens, and the token at i, from 1 on. Below 0: unknown, overwritten or out
 * of range. */
uint32_t ag_ngram_lookup_length(const ag_ngram_lookup *l);
int32_t ag_ngram_lookup_token(const ag_ngram_lookup *l, uint32_t i);

/* Returns the length of the match at the end of the text, at most AG_NGRAM_LOOKUP_MATCH_MAX tokens;
 * 0: no match. */
size_t ag_ngram_lookup_match(const ag_ngram_lookup *l);
/* Writes n tokens that follow the match and returns n. Returns fewer before an unknown token; 0: no
 * match. Past the end of the text the draft repeats itself. */
size_t ag_ngram_lookup_draft(const ag_ngram_lookup *l, int32_t *ids, size_t n);

#endif
