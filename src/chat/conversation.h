/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AG_CHAT_CONVERSATION_H
#define AG_CHAT_CONVERSATION_H

#include "chat/template/format.h"

/* An answer that this engine sampled. */
typedef struct ag_chat_answer {
    json_t *said; /* owned; its message's text and calls, as ag_chat_find_answers compares them */
    json_t *reasoning; /* owned; NULL: none */
    ag_ids ids;
    size_t n_reasoning; /* of the ids: up to where the reasoning has ended; SIZE_MAX: inside one */
    bool opened;        /* the prompt had opened the reasoning */
} ag_chat_answer;

struct ag_chat {
    const ag_chat_format *format;
    json_t *messages;  /* array, as they came */
    json_t *tools;     /* array, as they came; NULL: none */
    json_t *variables; /* object */
    bool has_clock;
    int64_t clock;
    ag_chat_answer *answers;
    size_t n_answers, answers_cap;
    ag_text begun;        /* text that ag_chat_require_call() put after the prompt */
    size_t memory_limit;  /* bytes that the template may take; 0: the default */
    ag_jinja_usage usage; /* usage of the last render */
    bool no_calls;        /* the answer to the prompt rendered last has none */
    bool is_open;         /* the prompt rendered last ends inside a reasoning */
};

/* answers.c */
void ag_chat_answer_free(ag_chat_answer *t);

/* conversation.c: fails with AG_CANCELLED, "<what>: interrupted", if the thread's work must end.
 * For each item of a list: asks the interrupt function every 16th time. */
ag_status ag_chat_check_interrupt(const char *what, ag_error *err);

/* normalise.c: the messages as the format's template takes them; *tools likewise, NULL for none.
 * Both are owned. */
ag_status ag_chat_normalise(const ag_chat *c, json_t **messages, json_t **tools, ag_error *err);

/* message.c: AG_FORMAT, AG_INVALID or AG_UNSUPPORTED, with `place`, for what is no message. */
ag_status ag_chat_check_message(const json_t *m, const char *place, ag_error *err);
ag_status ag_chat_check_tools(const json_t *tools, ag_error *err);
/* Append the texts of a content, or the text of one of its parts. */
ag_status ag_chat_append_content(const json_t *content, ag_text *out, ag_error *err);
ag_status ag_chat_append_part(const json_t *part, ag_text *out, ag_error *err);

#endif
