/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns of a tokenizer.json: literal strings, and regular expressions in Oniguruma's syntax,
 * which the tokenizers library uses, matched by PCRE2. */
#ifndef AG_TEXT_REGEX_H
#define AG_TEXT_REGEX_H

#include "text/bytes.h"

#include <jansson.h>

typedef struct ag_pattern
    ag_pattern; /* immutable; any number of cursors may use it at the same time */

/* Parses {"String": "..."}, {"Regex": "..."} or a plain string. `path` names it in messages. */
ag_status ag_pattern_parse(const json_t *v, const char *path, ag_pattern **out, ag_error *err);
ag_status ag_pattern_regex(const char *s, size_t n, const char *path, ag_pattern **out,
                           ag_error *err);
ag_status ag_pattern_literal(const char *s, size_t n, const char *path, ag_pattern **out,
                             ag_error *err);
void ag_pattern_destroy(ag_pattern *p);

/* Iterates over the matches in one text after another. */
typedef struct ag_cursor {
    const ag_pattern *pattern;
    struct pcre2_real_match_data_8 *data;
    struct pcre2_real_match_context_8 *context;
    const char *text;
    size_t len;
    size_t next;     /* offset of the next search; above len: none */
    size_t last_end; /* end of the previous match; SIZE_MAX: none */
    size_t n_searches, total_len;
    double began; /* thread CPU time of the first search, in seconds */
} ag_cursor;

ag_status ag_cursor_open(ag_cursor *c, const ag_pattern *p, ag_error *err);
void ag_cursor_close(ag_cursor *c);
/* text must be valid UTF-8 and is borrowed until the next reset. */
void ag_cursor_reset(ag_cursor *c, const char *text, size_t len);
/* Finds the next match; *found is false if there is none. Fails with AG_LIMIT if matching takes too
 * many steps or too long. */
ag_status ag_cursor_next(ag_cursor *c, size_t *start, size_t *end, bool *found, ag_error *err);

/* regex_syntax.c: appends the pattern in PCRE2's syntax. Fails with AG_UNSUPPORTED and names the
 * feature that PCRE2 does not have. */
ag_status ag_regex_translate(const char *s, size_t n, ag_text *out, ag_error *err);

/* \w of Rust's regex crate, as the inside of a PCRE2 class. */
#define AG_REGEX_WORD "\\p{Alphabetic}\\p{L}\\p{M}\\p{Nd}\\p{Pc}\\x{200C}\\x{200D}"

#endif
