/* SPDX-License-Identifier: Apache-2.0 */
/* Grammar files, in the notation that llama.cpp calls GBNF, with JSON schemas and tokens in it. */
#ifndef AG_CONSTRAIN_GRAMMAR_H
#define AG_CONSTRAIN_GRAMMAR_H

#include "constrain/pda/json_rules.h"
#include "constrain/pda/token_tree.h"

/* What a grammar may speak of. */
typedef struct ag_grammar_scope {
    const ag_json_rules *json;
    const ag_token_tree *tokens;
    bool any_order; /* of properties in schemas */
} ag_grammar_scope;

/* *start: a call of the rule "root". AG_FORMAT names the line. */
ag_status ag_grammar_compile(ag_pda *pda, const ag_grammar_scope *scope, const char *text, size_t n,
                             uint32_t *start, ag_error *err);

/* ---- grammar_atoms.c ---- */

/* The character of a literal or a class at s[*at], perhaps escaped. NULL, or what is wrong. */
const char *ag_grammar_read_char(const char *s, size_t n, size_t *at, uint32_t *cp);
/* <[id]>, or % and a schema: s[*at] is '<' or '%'. *start: what it begins with. */
ag_status ag_grammar_atom(ag_pda *pda, const ag_grammar_scope *scope, const char *s, size_t n,
                          size_t *at, uint32_t *start, ag_error *err);

#endif
