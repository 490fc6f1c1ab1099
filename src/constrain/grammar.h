/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles grammars in GBNF, the notation of llama.cpp, extended by JSON schemas and special
 * tokens. */
#ifndef AG_CONSTRAIN_GRAMMAR_H
#define AG_CONSTRAIN_GRAMMAR_H

#include "constrain/pda/json_rules.h"
#include "constrain/pda/token_tree.h"

/* Rules and tokens that a grammar can refer to. */
typedef struct ag_grammar_scope {
    const ag_json_rules *json;
    const ag_token_tree *tokens;
    bool any_order; /* properties of schemas may come in any order */
} ag_grammar_scope;

/* Writes the grammar's rules into pda. *start: a call of the rule "root". AG_FORMAT names the
 * line. */
ag_status ag_grammar_compile(ag_pda *pda, const ag_grammar_scope *scope, const char *text, size_t n,
                             uint32_t *start, ag_error *err);

/* ---- grammar_atoms.c ---- */

/* Reads the character of a literal or a class at s[*at], which may be escaped, and advances *at.
 * Returns NULL, or an error message. */
const char *ag_grammar_read_char(const char *s, size_t n, size_t *at, uint32_t *cp);
/* Compiles <[id]>, or % and a schema, at s[*at], which is '<' or '%'. Advances *at. *start: the
 * first instruction. */
ag_status ag_grammar_atom(ag_pda *pda, const ag_grammar_scope *scope, const char *s, size_t n,
                          size_t *at, uint32_t *start, ag_error *err);

#endif
