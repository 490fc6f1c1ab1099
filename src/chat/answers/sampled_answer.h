/* SPDX-License-Identifier: Apache-2.0 */
/* Sampled answer: the token ids of an assistant's message that the model generated. */
#ifndef AG_CHAT_SAMPLED_ANSWER_H
#define AG_CHAT_SAMPLED_ANSWER_H

#include "chat/template/format.h"

typedef struct ag_chat_answer {
    json_t
        *canonical; /* owned; its message's text and calls, as ag_placeholders_find compares them */
    json_t *reasoning; /* owned; NULL: none */
    ag_ids ids;
    size_t n_reasoning; /* of the ids: up to where the reasoning has ended; SIZE_MAX: inside one */
    bool starts_in_reasoning; /* the prompt had opened the reasoning */
} ag_chat_answer;

/* Fills *t, but for `opened`, which the caller sets before. Call ag_chat_answer_free() in any case.
 */
ag_status ag_chat_answer_init(const ag_chat_format *f, const json_t *message, const int32_t *ids,
                              size_t n, ag_chat_answer *t, ag_error *err);
void ag_chat_answer_free(ag_chat_answer *t);

/* *out: [text, [[id, name, arguments], ...]], the form in which messages are compared: the text of
 * all parts, and arguments as JSON even if they are text. Owned. */
ag_status ag_chat_canonical_message(const json_t *m, json_t **out, ag_error *err);
/* Returns the reasoning of a message, borrowed; NULL if it has none. */
json_t *ag_chat_message_reasoning(const json_t *message);

#endif
