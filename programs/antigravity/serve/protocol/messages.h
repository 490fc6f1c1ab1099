/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the messages of a chat as ag_chat_set_messages() takes them. Values are transferred; NULL
 * stands for one that could not be made without memory. */
#ifndef ANTIGRAVITY_SERVE_PROTOCOL_MESSAGES_H
#define ANTIGRAVITY_SERVE_PROTOCOL_MESSAGES_H

#include "protocol.h"

/* Appends an item to a list. Fails with 503 without memory. */
bool list_add(json_t *list, json_t *item, serve_error *e);
/* Appends {"role", "content"} to r->messages. Fails with 503 without memory. */
bool message_add(serve_request *r, const char *role, json_t *content, serve_error *e);
/* Returns {"type": "text", "text"}, a part of a content. */
json_t *message_text_part(json_t *text);
/* Returns {"id", "type": "function", "function": {"name", "arguments"}}. */
json_t *message_tool_call(const char *id, const char *name, json_t *arguments);

#endif
