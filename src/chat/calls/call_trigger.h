/* SPDX-License-Identifier: Apache-2.0 */
/* Call trigger: where a call begins in an answer that need not call. */
#ifndef AG_CHAT_CALL_TRIGGER_H
#define AG_CHAT_CALL_TRIGGER_H

#include "chat/calls/grammar_text.h"

/* Writes a trigger (%trigger, docs/reference/json-schema.md) for calls of the tools: the format's
 * opening delimiters, and calls without a delimiter if the parser finds these. is_bare: the format
 * has no delimiter. */
ag_status ag_call_trigger(ag_call_writer *w, const json_t *tools, bool is_bare, bool in_reasoning);
/* Returns how calls of gpt-oss begin, up to the tool's name; the last one only starts an answer. */
size_t ag_call_harmony_opens(const char *const **out);

#endif
