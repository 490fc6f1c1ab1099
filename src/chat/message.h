/* SPDX-License-Identifier: Apache-2.0 */
/* Message checks: validates messages and tools that a client sends, and reads the text of a
 * content. */
#ifndef AG_CHAT_MESSAGE_H
#define AG_CHAT_MESSAGE_H

#include <antigravity/tokenizer.h>
#include <jansson.h>
#include <stdbool.h>

/* Fails with AG_INVALID if m is not a message as ag_chat_add_json() takes it, and with
 * AG_UNSUPPORTED if a part is not text. `path` names the message in errors: "messages[3]". */
ag_status ag_chat_check_message(const json_t *m, const char *path, ag_error *err);
/* Fails with AG_INVALID if a tool has no name. tools: an array, or NULL. */
ag_status ag_chat_check_tools(const json_t *tools, ag_error *err);

bool ag_chat_has_role(const json_t *m, const char *role);
/* Appends the text of a checked content: a string, or the texts of all parts. NULL and null append
 * nothing; any other JSON is appended as it is. */
ag_status ag_chat_append_content(const json_t *content, ag_text *out, ag_error *err);
/* Appends the text of one part: a string, or the member "text" or "refusal". */
ag_status ag_chat_append_part(const json_t *part, ag_text *out, ag_error *err);

/* Returns the function of a tool or a call: the member "function", else the object; borrowed. */
const json_t *ag_chat_function(const json_t *tool_or_call);

#endif
