/* SPDX-License-Identifier: Apache-2.0 */
/* Checks messages and tools that a client sends, and reads the text of a content. */
#ifndef AG_CHAT_MESSAGE_H
#define AG_CHAT_MESSAGE_H

#include <antigravity/tokenizer.h>
#include <jansson.h>

/* Fails with AG_INVALID or AG_UNSUPPORTED if m is not a message as ag_chat_add_json() takes it.
 * `path` names it in the error: "messages[3]". */
ag_status ag_chat_check_message(const json_t *m, const char *path, ag_error *err);
/* Fails with AG_INVALID if a tool has no name. NULL: no tools. */
ag_status ag_chat_check_tools(const json_t *tools, ag_error *err);

/* Appends the texts of a content, a string or a list of parts that was checked. Other JSON is
 * appended as it is; NULL and null append nothing. */
ag_status ag_chat_append_content(const json_t *content, ag_text *out, ag_error *err);
/* Appends the text of one part. */
ag_status ag_chat_append_part(const json_t *part, ag_text *out, ag_error *err);

/* Returns the function of a tool or a call: the member "function", or else the object itself. */
const json_t *ag_chat_function(const json_t *tool_or_call);

#endif
