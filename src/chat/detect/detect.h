/* SPDX-License-Identifier: Apache-2.0 */
/* Detection: fills a format with what its template does, found by probes (probe.h). All functions
 * fail with AG_LIMIT if the budget for probes is exceeded. Call them in this order. */
#ifndef AG_CHAT_DETECT_H
#define AG_CHAT_DETECT_H

#include "chat/template/format.h"

/* features.c: sets features, `accepts` and reasoning_key. */
ag_status ag_detect_features(ag_chat_format *f, ag_error *err);
/* delimiters.c: sets turn_end, the stops and the delimiters of reasoning and content. */
ag_status ag_detect_delimiters(ag_chat_format *f, const char *jinja, ag_error *err);
/* calls.c: sets `calls`. */
ag_status ag_detect_calls(ag_chat_format *f, ag_error *err);

/* Sets the delimiters of reasoning to a usual pair: one in the template's text, else <think>. */
ag_status ag_detect_reasoning_by_text(ag_chat_format *f, const char *jinja, ag_error *err);

/* ---- for delimiters.c and calls.c ---- */

/* Returns the number of bytes of the delimiter that s begins with after white space: a special
 * token, <...>, [...], or else the rest of the line. *space: bytes of that white space. */
size_t ag_detect_delimiter_len(const ag_chat_format *f, const char *s, size_t *space);
/* Returns the length of the common prefix of a and b; it does not end inside a tag. */
size_t ag_detect_common_prefix(const char *a, const char *b);
/* Adds a text that ends an answer, and its id if it is one token. Ignores a text that is known, and
 * more than AG_CHAT_STOPS of them. */
ag_status ag_detect_add_stop(ag_chat_format *f, const char *s, size_t n, ag_error *err);

#endif
