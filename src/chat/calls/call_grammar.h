/* SPDX-License-Identifier: Apache-2.0 */
/* Call grammar: a grammar for the tool calls that a request requires, written as the model's
 * template writes them. */
#ifndef AG_CHAT_CALL_GRAMMAR_H
#define AG_CHAT_CALL_GRAMMAR_H

#include "chat/template/format.h"

/* Appends the text before the name of the first call. */
ag_status ag_call_opening(const ag_chat_format *f, ag_text *out, ag_error *err);
/* Appends a grammar (AG_CONSTRAINT_GRAMMAR) for the text after ag_call_opening(): a call of one of
 * the tools (an array, as in a request), and more calls if `several`. Fails with AG_UNSUPPORTED if
 * the format cannot write a tool's name or arguments, and with AG_INVALID if parameters are not an
 * object. */
ag_status ag_call_grammar(const ag_chat_format *f, const json_t *tools, bool several, ag_text *out,
                          ag_error *err);

typedef struct ag_call_free_params {
    bool several;        /* more calls may follow in a section */
    bool in_reasoning;   /* the answer starts in the reasoning */
    const json_t *loose; /* names of tools whose arguments may be any object; NULL: none */
} ag_call_free_params;
/* Appends a grammar of an entire harmony answer: reasoning, then a final message that matches
 * `content`, which is part of a grammar, or a call of one of the tools (NULL: none). `loose` as in
 * ag_call_free_params. */
ag_status ag_call_content_grammar(const ag_chat_format *f, const json_t *tools, const json_t *loose,
                                  const char *content, ag_text *out, ag_error *err);
/* Appends a grammar with a trigger, for an answer that may call the tools or not. Fails as
 * ag_call_grammar() does. */
ag_status ag_call_free_grammar(const ag_chat_format *f, const json_t *tools,
                               const ag_call_free_params *p, ag_text *out, ag_error *err);

#endif
