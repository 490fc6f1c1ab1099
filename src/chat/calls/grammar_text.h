/* SPDX-License-Identifier: Apache-2.0 */
/* Writes texts as parts of a grammar: literals, tokens and regular expressions. */
#ifndef AG_CHAT_GRAMMAR_TEXT_H
#define AG_CHAT_GRAMMAR_TEXT_H

#include "chat/template/format.h"

typedef struct ag_call_writer {
    const ag_chat_format *f;
    const ag_call_format *c; /* &f->calls */
    const json_t *loose;     /* names of tools whose arguments are any object; NULL: none */
    bool is_free;            /* the grammar is of an answer that need not call */
    ag_text *out;
    ag_error *err;
} ag_call_writer;

ag_status ag_call_put(ag_call_writer *w, const char *s);
ag_status ag_call_put_quoted(ag_call_writer *w, const char *s, size_t n);
/* Writes special tokens by their ids, counts as numbers, and other text as a string. */
ag_status ag_call_put_delimiter(ag_call_writer *w, const char *s, size_t n);
ag_status ag_call_put_literal(ag_call_writer *w, const char *s);
/* Writes what closes calls, up to the first text that ends the answer. */
ag_status ag_call_put_closing(ag_call_writer *w, const char *s);
/* Writes a regular expression, `before` followed by a literal s without white space at its ends. */
ag_status ag_call_put_stop_regex(ag_call_writer *w, const char *before, const char *s);

#endif
