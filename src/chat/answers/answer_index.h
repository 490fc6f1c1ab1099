/* SPDX-License-Identifier: Apache-2.0 */
/* Answer index: finds the sampled answers that are equal to a message, in logarithmic time. */
#ifndef AG_CHAT_ANSWER_INDEX_H
#define AG_CHAT_ANSWER_INDEX_H

#include "chat/answers/sampled_answer.h"

typedef struct ag_answer_key {
    uint64_t hash; /* hash of the answer's canonical message */
    size_t index;  /* in ag_answer_index.answers */
} ag_answer_key;

typedef struct ag_answer_index {
    const ag_chat_answer *answers; /* borrowed */
    ag_answer_key *keys;           /* [n], sorted by hash, then index; owned */
    size_t n;
} ag_answer_index;

ag_status ag_answer_index_create(const ag_chat_answer *answers, size_t n, ag_answer_index *out,
                                 ag_error *err);
void ag_answer_index_free(ag_answer_index *x);

/* Returns an answer whose canonical message is `canonical` and whose reasoning is `reasoning`
 * (NULL: any); NULL if there is none. Tries the answers from *from on first, then those before, and
 * sets *from to the index after the answer: equal answers are returned in turn. */
const ag_chat_answer *ag_answer_index_find(const ag_answer_index *x, const ag_text *canonical,
                                           const json_t *reasoning, size_t *from);

#endif
