/* SPDX-License-Identifier: Apache-2.0 */
/* Normalisation: converts messages, calls, results and tools to the forms that a template accepts,
 * in linear time. The functions fail with AG_NOMEM, or with AG_CANCELLED if the thread is
 * interrupted. */
#ifndef AG_CHAT_NORMALISE_H
#define AG_CHAT_NORMALISE_H

#include "chat/conversation.h"

/* *messages, *tools: the conversation's, as the template accepts them; owned. *tools is NULL if
 * there are none or the template does not take tools: then a system message lists them. */
ag_status ag_chat_normalise(const ag_chat *c, json_t **messages, json_t **tools, ag_error *err);

/* *out: the messages, owned. If the format is harmony and its template writes one call of a
 * message, each call becomes a message, and its results follow it. */
ag_status ag_split_calls(const ag_chat_format *f, json_t *messages, json_t **out, ag_error *err);

/* Fails with AG_NOMEM unless ok. */
ag_status ag_normalise_check(bool ok, ag_error *err);
/* Sets m[key] to v, which is taken over. Fails with AG_NOMEM, also if v is NULL. */
ag_status ag_normalise_set(json_t *m, const char *key, json_t *v, ag_error *err);

/* Call table: the calls that the next result may belong to, those of the last assistant's turn.
 * Zeroed: none. */
typedef struct ag_call_table {
    const json_t *calls; /* array, borrowed; NULL: none */
    size_t n_results;    /* results since these calls */
    json_t *by_id;       /* id -> call; owned; NULL until a result with an id needs it */
} ag_call_table;

/* Updates the table after the normalised `message` was appended to the conversation. The message
 * must outlive the table. */
void ag_call_table_follow(ag_call_table *t, const json_t *message);
void ag_call_table_free(ag_call_table *t);

/* Converts the tool_calls of an assistant's message, or the id and the name of a result. n_before:
 * number of messages before this one, from which missing ids are made. */
ag_status ag_normalise_calls(const ag_chat_format *f, json_t *message, size_t n_before,
                             ag_call_table *t, ag_error *err);
/* *out: the tools with every field that the template reads; owned. */
ag_status ag_normalise_tools(const ag_chat_format *f, const json_t *tools, json_t **out,
                             ag_error *err);

/* Append tools or calls as text, for a template that does not take them. */
ag_status ag_chat_append_tools(const json_t *tools, ag_text *out, ag_error *err);
ag_status ag_chat_append_calls(const json_t *calls, ag_text *out, ag_error *err);

#endif
