/* SPDX-License-Identifier: Apache-2.0 */
/* Sampled answer: an assistant's message with the token ids that the model generated for it. */
#ifndef AG_CHAT_SAMPLED_ANSWER_H
#define AG_CHAT_SAMPLED_ANSWER_H

#include "chat/template/format.h"

typedef struct ag_chat_answer {
    ag_text canonical; /* see ag_chat_canonical_message(); owned */
    bool has_content;
    size_t n_calls;
    json_t *reasoning; /* owned; NULL: none */
    ag_ids ids;
    /* Leading ids that are the reasoning, its delimiters and the white space after it. SIZE_MAX: no
     * token ends there. */
    size_t n_reasoning;
    bool starts_in_reasoning; /* the prompt opened the reasoning */
} ag_chat_answer;

/* Fills *t. The caller sets `starts_in_reasoning` before, and calls ag_chat_answer_free() in any
 * case. */
ag_status ag_chat_answer_init(const ag_chat_format *f, const json_t *message, const int32_t *ids,
                              size_t n, ag_chat_answer *t, ag_error *err);
void ag_chat_answer_free(ag_chat_answer *t);

/* Appends the form in which messages are compared: the text of all parts as JSON, then [id, name,
 * arguments] of each call, with sorted keys. Arguments that are the text of a JSON value are that
 * value. */
ag_status ag_chat_canonical_message(const json_t *m, ag_text *canonical, ag_error *err);
/* Returns the reasoning of a message, borrowed; NULL if it has none. */
json_t *ag_chat_message_reasoning(const json_t *message);

#endif
