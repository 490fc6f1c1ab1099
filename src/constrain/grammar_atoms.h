/* SPDX-License-Identifier: Apache-2.0 */
/* Extensions of GBNF that a grammar may contain: special tokens and JSON schemas. */
#ifndef AG_CONSTRAIN_GRAMMAR_ATOMS_H
#define AG_CONSTRAIN_GRAMMAR_ATOMS_H

#include "constrain/pda/token_tree.h"
#include "constrain/schema/schema.h"

/* Rules and tokens that a grammar can refer to. */
typedef struct ag_grammar_scope {
    const ag_json_rules *json;
    const ag_token_tree *tokens;
    ag_schema_objects objects;
    bool is_inner; /* the grammar is a part of another one */
} ag_grammar_scope;

/* Reads the character of a literal or a class at s[*at], which may be escaped, and advances *at.
 * Returns NULL, or an error message. */
const char *ag_grammar_read_char(const char *s, size_t n, size_t *at, uint32_t *cp);
/* Compiles <[id]>, or % and a schema, at s[*at], which is '<' or '%'. Advances *at. *start: the
 * first instruction. */
ag_status ag_grammar_atom(ag_pda *pda, const ag_grammar_scope *scope, const char *s, size_t n,
                          size_t *at, uint32_t *start, ag_error *err);
/* Appends the bytes of literals and tokens in a row, s[0..n). */
ag_status ag_grammar_delimiter(const ag_grammar_scope *scope, const char *s, size_t n, ag_text *out,
                               ag_error *err);

#endif
