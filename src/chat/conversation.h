/* SPDX-License-Identifier: Apache-2.0 */
/* Conversation: the messages, tools and variables that a client sent, and the answers sampled for
 * it. */
#ifndef AG_CHAT_CONVERSATION_H
#define AG_CHAT_CONVERSATION_H

#include "chat/answers/sampled_answer.h"
#include "chat/template/format.h"
#include "chat/template/preamble.h"

struct ag_chat {
    const ag_chat_format *format;
    json_t *messages;  /* array, as the client sent it */
    json_t *tools;     /* array, as the client sent it; NULL: none */
    json_t *variables; /* object: more variables of the template */
    bool has_clock;
    int64_t clock;
    ag_chat_answer *answers;
    size_t n_answers, answers_cap;
    ag_text call_prefix;                 /* text that ag_chat_require_call() put after the prompt */
    size_t memory_limit;                 /* limit for the template; 0: the default */
    ag_jinja_usage usage;                /* usage of the last render */
    char preamble[AG_PREAMBLE_SENTINEL]; /* sentinel of the last render */
    bool no_calls;                       /* the answer to the last prompt is parsed without calls */
    bool starts_in_reasoning;            /* the last prompt ends inside the reasoning */
};

/* Appends the answer to c->answers; takes it over in any case. Drops the oldest if there are more
 * than 4,096. Fails with AG_NOMEM. */
ag_status ag_chat_store_answer(ag_chat *c, ag_chat_answer *answer, ag_error *err);

#endif
