/* SPDX-License-Identifier: Apache-2.0 */
/* Detection: fills a format with what its template does, found by probes (probe.h). Call the
 * functions in this order. Each fails with AG_NOMEM, AG_CANCELLED or, if the budget for probes is
 * exceeded, AG_LIMIT. */
#ifndef AG_CHAT_DETECT_H
#define AG_CHAT_DETECT_H

#include "chat/template/format.h"

/* Sets features, `accepts` and reasoning_key (features.c). */
ag_status ag_detect_features(ag_chat_format *f, ag_error *err);
/* Sets turn_end, the stops and the delimiters of reasoning and content (delimiters.c). */
ag_status ag_detect_delimiters(ag_chat_format *f, const char *jinja, ag_error *err);
/* Sets `calls` and has_detected_calls (calls.c). */
ag_status ag_detect_calls(ag_chat_format *f, ag_error *err);

/* Sets the delimiters of reasoning without probes: to a known pair that the template's text
 * contains, else to <think> and </think>. */
ag_status ag_detect_reasoning_by_text(ag_chat_format *f, const char *jinja, ag_error *err);

/* ---- for delimiters.c and calls.c ---- */

/* Returns the length of the delimiter that follows the white space at the start of s: a special
 * token, <...>, [...], or else the rest of the line. *space: the length of that white space. */
size_t ag_detect_delimiter_len(const ag_chat_format *f, const char *s, size_t *space);
/* Returns the length of the common prefix of a and b, shortened if it ends inside a <tag>. */
size_t ag_detect_common_prefix(const char *a, const char *b);
/* Adds a text that ends an answer, and its id if it is one token. Ignores an empty text, a known
 * one, and more than AG_CHAT_STOPS texts. */
ag_status ag_detect_add_stop(ag_chat_format *f, const char *s, size_t n, ag_error *err);

#endif
