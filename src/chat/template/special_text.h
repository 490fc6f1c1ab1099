/* SPDX-License-Identifier: Apache-2.0 */
/* Spellings of tokens in a rendered text: those of the template's own words become the tokens,
 * those in words of the conversation stay text. */
#ifndef AG_CHAT_SPECIAL_TEXT_H
#define AG_CHAT_SPECIAL_TEXT_H

#include "chat/template/format.h"
#include "text/tokenizer.h"

/* Fills f->marks with the spellings of the tokenizer's special tokens, and of other added tokens
 * that the template's text has. */
ag_status ag_special_text_collect(ag_chat_format *f, const char *jinja, ag_error *err);

typedef struct ag_id_range_list {
    ag_id_range *ranges;
    size_t n, cap;
} ag_id_range_list;
void ag_id_range_list_free(ag_id_range_list *l);
ag_status ag_id_range_list_add(ag_id_range_list *l, ag_id_range range, ag_error *err);

/* The cuts of out->text[from..to), appended in order. */
ag_status ag_special_text_find_ranges(const ag_chat_format *f, const ag_jinja_output *out,
                                      size_t from, size_t to, ag_id_range_list *l, ag_error *err);
/* The longest mark that s[0..n) begins with, or NULL. */
const ag_special_text *ag_special_text_longest(const ag_chat_format *f, const char *s, size_t n,
                                               bool special_only);

#endif
