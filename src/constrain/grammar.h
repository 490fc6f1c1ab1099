/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles grammars in GBNF, the notation of llama.cpp, extended by JSON schemas, regular
 * expressions, inner grammars, special tokens and triggers; and regular expressions. */
#ifndef AG_CONSTRAIN_GRAMMAR_H
#define AG_CONSTRAIN_GRAMMAR_H

#include "constrain/trigger.h"

/* Writes the grammar's rules into pda. *start: a call of the rule "root". *trigger: owned; NULL if
 * the grammar has none. AG_FORMAT names the line. */
ag_status ag_grammar_compile(ag_pda *pda, const ag_grammar_scope *scope, const char *text, size_t n,
                             uint32_t *start, ag_trigger **trigger, ag_error *err);
/* Compiles a regular expression that the whole text matches. *start: the first instruction. */
ag_status ag_compile_regex(ag_pda *pda, const char *text, size_t n, uint32_t *start, ag_error *err);

#endif
