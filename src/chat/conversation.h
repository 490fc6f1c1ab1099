/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation: messages, tools and variables as the client sent them. */
#ifndef AG_CHAT_CONVERSATION_H
#define AG_CHAT_CONVERSATION_H

#include "chat/answers/sampled_answer.h"
#include "chat/template/format.h"

struct ag_chat {
    const ag_chat_format *format;
    json_t *messages;  /* array, as they came */
    json_t *tools;     /* array, as they came; NULL: none */
    json_t *variables; /* object */
    bool has_clock;
    int64_t clock;
    ag_chat_answer *answers;
    size_t n_answers, answers_cap;
    ag_text call_prefix;      /* text that ag_chat_require_call() put after the prompt */
    size_t memory_limit;      /* bytes that the template may take; 0: the default */
    ag_jinja_usage usage;     /* usage of the last render */
    bool no_calls;            /* the answer to the prompt rendered last has none */
    bool starts_in_reasoning; /* the prompt rendered last ends inside a reasoning */
};

/* Adds the answer, which is taken over in any case, to c->answers. Forgets the oldest of more than
 * 4,096. */
ag_status ag_chat_store_answer(ag_chat *c, ag_chat_answer *answer, ag_error *err);

#endif
