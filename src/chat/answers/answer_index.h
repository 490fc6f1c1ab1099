/* SPDX-License-Identifier: Apache-2.0 */
/* Index of sampled answers: finds those that say the same as a message in logarithmic time. */
#ifndef AG_CHAT_ANSWER_INDEX_H
#define AG_CHAT_ANSWER_INDEX_H

#include "chat/answers/sampled_answer.h"

typedef struct ag_answer_key {
    uint64_t hash; /* hash of the answer's message */
    size_t index;  /* index of the answer */
} ag_answer_key;

typedef struct ag_answer_index {
    const ag_chat_answer *answers; /* borrowed */
    ag_answer_key *keys;           /* [n], in ascending order; owned */
    size_t n;
} ag_answer_index;

ag_status ag_answer_index_create(const ag_chat_answer *answers, size_t n, ag_answer_index *out,
                                 ag_error *err);
void ag_answer_index_free(ag_answer_index *x);

/* Returns the first answer at or after *from, then before it, that says `said` with this reasoning
 * (NULL: with any), and sets *from to the one after it, so that equal answers are returned in turn.
 * NULL: there is none. */
const ag_chat_answer *ag_answer_index_find(const ag_answer_index *x, const json_t *canonical,
                                           const json_t *reasoning, size_t *from);

#endif
