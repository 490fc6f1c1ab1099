/* SPDX-License-Identifier: Apache-2.0 */
/* Appends to the growable strings and id lists of antigravity/tokenizer.h. */
#ifndef AG_TEXT_BYTES_H
#define AG_TEXT_BYTES_H

#include <antigravity/tokenizer.h>

/* Reserves `more` bytes and a NUL after text->len. Does not change the text. */
ag_status ag_text_reserve(ag_text *text, size_t more, ag_error *err);
/* Appends bytes and terminates the text with NUL. bytes may be NULL if n is 0. */
ag_status ag_text_append(ag_text *text, const char *bytes, size_t n, ag_error *err);
/* Appends a NUL-terminated string. */
ag_status ag_text_append_string(ag_text *text, const char *s, ag_error *err);
ag_status ag_text_append_char(ag_text *text, uint32_t cp, ag_error *err);

ag_status ag_ids_reserve(ag_ids *ids, size_t more, ag_error *err);
ag_status ag_ids_push(ag_ids *ids, int32_t id, ag_error *err);

/* Returns the first `what`, which is not empty, in s[0..n); NULL if there is none. Reads no byte
 * after s[n - 1], unlike strstr(). */
const char *ag_find_bytes(const char *s, size_t n, const char *what);

/* Returns the maximum size of a text of n bytes after the rules of a file were applied. Real rules
 * multiply the size by a small factor; hostile ones double it with every step. */
size_t ag_growth_limit(size_t n);
/* AG_LIMIT if more than that many were made by what `place` names. */
ag_status ag_growth_check(size_t made, size_t limit, const char *path, ag_error *err);

#endif
