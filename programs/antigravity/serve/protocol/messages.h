/* SPDX-License-Identifier: Apache-2.0 */
/* Builds chat messages in the form that ag_chat_set_messages() takes. Values are transferred; NULL
 * means that there was no memory for one. */
#ifndef ANTIGRAVITY_SERVE_PROTOCOL_MESSAGES_H
#define ANTIGRAVITY_SERVE_PROTOCOL_MESSAGES_H

#include "protocol.h"

/* Appends an item to a list. Fails with 503 without memory. */
bool list_add(json_t *list, json_t *item, serve_error *e);
/* Fails with 400 unless the role of item i of the field `list` is one of `roles`, which NULL ends.
 * role NULL: it is missing. */
bool message_check_role(const char *role, const char *list, size_t i, const char *const *roles,
                        serve_error *e);
/* Returns whether `roles`, which NULL ends, has the role. */
bool message_role_is_in(const char *role, const char *const *roles);
/* Appends {"role", "content"} to r->messages. Fails with 503 without memory. */
bool message_add(serve_request *r, const char *role, json_t *content, serve_error *e);
/* Returns {"type": "text", "text"}, one part of a content. */
json_t *message_text_part(json_t *text);
/* Returns {"id", "type": "function", "function": {"name", "arguments"}}. */
json_t *message_tool_call(const char *id, const char *name, json_t *arguments);

#endif
