/* SPDX-License-Identifier: Apache-2.0 */
/* Strings that record which of their bytes come from the input, and buffers to build them. */
#ifndef AG_JINJA_VALUE_STRING_H
#define AG_JINJA_VALUE_STRING_H

#include "jinja/context.h"

#include <string.h>

/* Initialises a string that borrows text. */
void ag_jstr_init(ag_jstr *s, const char *text, size_t len, bool from_input);
/* Creates a string that borrows text. */
ag_jstr *ag_jstr_create(ag_jctx *c, const char *text, size_t len, bool from_input);
/* Creates a string with a copy of text, which does not count as input. */
ag_jstr *ag_jstr_copy(ag_jctx *c, const char *text, size_t len);
ag_jv ag_jstr_literal(ag_jctx *c, const char *text); /* borrowed, terminated */

/* Returns s[begin..end) in bytes. Shares the text and spans of s. */
ag_jstr *ag_jstr_slice(ag_jctx *c, const ag_jstr *s, size_t begin, size_t end);
ag_jstr *ag_jstr_concat(ag_jctx *c, const ag_jstr *a, const ag_jstr *b);
/* Returns s if its markup flag is `markup`, else a string of the same text with that flag. */
ag_jstr *ag_jstr_as_markup(ag_jctx *c, ag_jstr *s, bool markup);

size_t ag_jstr_count(const char *text, size_t len); /* code points */
size_t ag_jstr_chars(ag_jstr *s);
/* Returns the byte offset of character `index`, which must be at most the number of characters. */
size_t ag_jstr_offset(ag_jstr *s, size_t index);
static inline bool ag_jstr_is_ascii(ag_jstr *s) { return ag_jstr_chars(s) == s->len; }

uint32_t ag_jstr_hash_of(const char *text, size_t len); /* never 0 */
uint32_t ag_jstr_hash(ag_jstr *s);
bool ag_jstr_equal(const ag_jstr *a, const ag_jstr *b);
int ag_jstr_compare(const ag_jstr *a, const ag_jstr *b); /* in order of code points */
static inline bool ag_jstr_is(const ag_jstr *s, const char *text) {
    return s->len == strlen(text) && !memcmp(s->text, text, s->len);
}

enum { AG_JNOT_FOUND = -1 };
/* Returns the offset of needle in s[begin..end), or AG_JNOT_FOUND. An rfind that exceeds the step
 * limit returns AG_JNOT_FOUND with the error recorded. */
int64_t ag_jstr_find(const ag_jstr *s, size_t begin, size_t end, const ag_jstr *needle);
int64_t ag_jstr_rfind(ag_jctx *c, const ag_jstr *s, size_t begin, size_t end,
                      const ag_jstr *needle);

/* Returns whether byte i is input. */
bool ag_jstr_is_input(const ag_jstr *s, size_t i);

/* Writes the spans of s relative to its start. Returns false if there are more than `cap`. */
bool ag_jstr_spans(const ag_jstr *s, ag_jinja_span *out, size_t cap, size_t *n);

ag_jbuf *ag_jbuf_create(ag_jctx *c);
void ag_jbuf_free(ag_jctx *c, ag_jbuf *b); /* frees its blocks, not *b */
bool ag_jbuf_append(ag_jctx *c, ag_jbuf *b, const ag_jstr *s);
bool ag_jbuf_append_slice(ag_jctx *c, ag_jbuf *b, const ag_jstr *s, size_t begin, size_t end);
/* Appends bytes that belong to no string; is_input: count them as input. */
bool ag_jbuf_append_bytes(ag_jctx *c, ag_jbuf *b, const char *bytes, size_t n, bool is_input);
static inline bool ag_jbuf_append_text(ag_jctx *c, ag_jbuf *b, const char *text) {
    return ag_jbuf_append_bytes(c, b, text, strlen(text), false);
}
bool ag_jbuf_append_char(ag_jctx *c, ag_jbuf *b, uint32_t cp, bool is_input);
bool ag_jbuf_append_repeated(ag_jctx *c, ag_jbuf *b, const ag_jstr *s, size_t times);
/* Moves the contents to *out, which then owns them. Nothing may refer to b afterwards. */
bool ag_jbuf_move_out(ag_jctx *c, ag_jbuf *b, ag_jinja_output *out);
/* Returns the present contents as a string that shares the buffer. The caller may still append to
 * the buffer, but must not remove from it. */
ag_jstr *ag_jbuf_string(ag_jctx *c, ag_jbuf *b);
static inline ag_jv ag_jbuf_value(ag_jctx *c, ag_jbuf *b) {
    return ag_jstring(ag_jbuf_string(c, b));
}

#endif
