/* SPDX-License-Identifier: Apache-2.0 */
/* The patterns of a tokenizer.json: literal strings, and regular expressions in the syntax of
 * Oniguruma, which the tokenizers library uses, run by PCRE2. */
#ifndef AG_TEXT_REGEX_H
#define AG_TEXT_REGEX_H

#include "text/bytes.h"

#include <jansson.h>

typedef struct ag_pattern ag_pattern; /* immutable: any number of cursors at the same time */

/* v: {"String": "..."} or {"Regex": "..."} or a plain string; place names it in messages. */
ag_status ag_pattern_parse(const json_t *v, const char *path, ag_pattern **out, ag_error *err);
ag_status ag_pattern_regex(const char *s, size_t n, const char *path, ag_pattern **out,
                           ag_error *err);
ag_status ag_pattern_literal(const char *s, size_t n, const char *path, ag_pattern **out,
                             ag_error *err);
void ag_pattern_destroy(ag_pattern *p);

/* Walks over the matches of one text after another. */
typedef struct ag_cursor {
    const ag_pattern *pattern;
    struct pcre2_real_match_data_8 *data;
    struct pcre2_real_match_context_8 *context;
    const char *text;
    size_t len;
    size_t next;     /* where the next search begins; beyond len: no more */
    size_t last_end; /* of the match before; SIZE_MAX: none yet */
    size_t n_searches, total_len;
    double began; /* CPU seconds of the thread */
} ag_cursor;

ag_status ag_cursor_open(ag_cursor *c, const ag_pattern *p, ag_error *err);
void ag_cursor_close(ag_cursor *c);
/* text is valid UTF-8, borrowed until the next reset. */
void ag_cursor_reset(ag_cursor *c, const char *text, size_t len);
/* The next match, or *found false. AG_LIMIT when matching takes too many steps or too long. */
ag_status ag_cursor_next(ag_cursor *c, size_t *start, size_t *end, bool *found, ag_error *err);

/* regex_syntax.c: appends the pattern as PCRE2 spells it. AG_UNSUPPORTED names what it cannot. */
ag_status ag_regex_translate(const char *s, size_t n, ag_text *out, ag_error *err);

/* What the regex crate's \w means, as the inside of a PCRE2 class. */
#define AG_REGEX_WORD "\\p{Alphabetic}\\p{L}\\p{M}\\p{Nd}\\p{Pc}\\x{200C}\\x{200D}"

#endif
