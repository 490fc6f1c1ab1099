/* SPDX-License-Identifier: Apache-2.0 */
/* Special texts: spellings of tokens in a rendered text. Spellings that the template wrote become
 * the tokens; those that came from the conversation stay text. */
#ifndef AG_CHAT_SPECIAL_TEXT_H
#define AG_CHAT_SPECIAL_TEXT_H

#include "chat/template/format.h"
#include "text/tokenizer.h"

/* Fills f->special_texts: the tokenizer's special tokens, and other added tokens that `jinja`, the
 * source of the template, contains. Without a tokenizer there are none. */
ag_status ag_special_text_collect(ag_chat_format *f, const char *jinja, ag_error *err);

typedef struct ag_id_range_list {
    ag_id_range *ranges;
    size_t n, cap;
} ag_id_range_list;
void ag_id_range_list_free(ag_id_range_list *l);
ag_status ag_id_range_list_add(ag_id_range_list *l, ag_id_range range, ag_error *err);

/* Appends the id ranges of out->text[from..to), in order. A range without ids splits the spelling
 * of a token that came from the conversation, in part or entirely, so that it stays text. */
ag_status ag_special_text_find_ranges(const ag_chat_format *f, const ag_jinja_output *out,
                                      size_t from, size_t to, ag_id_range_list *l, ag_error *err);
/* Returns the longest special text that s[0..n) begins with, borrowed; NULL if there is none.
 * special_only: considers only tokens that the tokenizer marks as special. */
const ag_special_text *ag_special_text_longest(const ag_chat_format *f, const char *s, size_t n,
                                               bool special_only);

#endif
