/* SPDX-License-Identifier: Apache-2.0 */
/* Calls, results and tools as a template takes them. false and NULL: no memory. */
#ifndef AG_CHAT_NORMALISE_H
#define AG_CHAT_NORMALISE_H

#include "chat/format.h"

/* The tool_calls of an assistant's message, or the id and the name of a result. `before` holds the
 * messages that were fitted before, n of them. */
bool ag_chat_fit_calls(const ag_chat_format *f, json_t *message, const json_t *before, size_t n);
/* Tools with what the template looks for in them. */
json_t *ag_chat_fit_tools(const ag_chat_format *f, const json_t *tools);

/* For a template that has no words for them: tools, and calls, as text. */
json_t *ag_chat_tools_text(const json_t *tools);
json_t *ag_chat_calls_text(const json_t *calls);

/* Strings joined; any of them may hold NUL. */
json_t *ag_chat_join(const json_t *a, const char *between, const json_t *b);
json_t *ag_chat_wrap(const char *before, const json_t *text, const char *behind);

#endif
