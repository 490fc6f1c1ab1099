/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that are asked for, as a grammar: written as the template writes them. */
#ifndef AG_CHAT_CALL_GRAMMAR_H
#define AG_CHAT_CALL_GRAMMAR_H

#include "chat/template/format.h"

/* What stands before the name of the first call; appended. */
ag_status ag_call_opening(const ag_chat_format *f, ag_text *out, ag_error *err);
/* The grammar (AG_CONSTRAINT_GRAMMAR) of all that follows: a call of one of the tools (an array, as
 * in a request), and, if `several`, more of them. Appended. */
ag_status ag_call_grammar(const ag_chat_format *f, const json_t *tools, bool several, ag_text *out,
                          ag_error *err);

#endif
