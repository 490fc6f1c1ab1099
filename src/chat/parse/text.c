/* SPDX-License-Identifier: Apache-2.0 */
/* Reasoning and content: where they end, and where a call can begin. */
#include "chat/parse/parser.h"
#include "core/fail.h"

#include <string.h>

/* Limits for white space that waits for a delimiter, and for the header of a message. */
enum { MAX_SPACE = 1024, MAX_HEADER = 1024 };

static ag_parser_state after_reasoning, reasoning_space, reasoning_text;

static size_t without_space(const char *s, size_t n) {
    while (n && ag_is_json_space(s[n - 1])) n--;
    return n;
}

/* Compares the start of s[0..n) with a delimiter. */
static ag_match match_prefix(const char *delimiter, const char *s, size_t n) {
    const size_t len = strlen(delimiter);
    if (memcmp(s, delimiter, n < len ? n : len) != 0) return AG_MATCH_NO;
    return n < len ? AG_MATCH_PARTIAL : AG_MATCH_YES;
}

size_t ag_parser_find(const char *delimiter, const char *s, size_t from, size_t n, bool is_final,
                      bool *found) {
    *found = false;
    for (size_t i = from; delimiter && i < n; i++) {
        const char *next = memchr(s + i, delimiter[0], n - i);
        if (!next) return n;
        i = (size_t)(next - s);
        const ag_match m = match_prefix(delimiter, next, n - i);
        if (m == AG_MATCH_YES) *found = true;
        if (m == AG_MATCH_YES || (m == AG_MATCH_PARTIAL && !is_final)) return i;
    }
    return n;
}

/* Compares the start of s[0..n) with a delimiter after white space. *len: the length of both. */
static ag_match match_after_space(const ag_chat_parser *p, const char *delimiter, const char *s,
                                  size_t n, size_t *len) {
    const size_t space = ag_json_space_len(s, n);
    if (!delimiter) return AG_MATCH_NO;
    *len = space + strlen(delimiter);
    const ag_match m = match_prefix(delimiter, s + space, n - space);
    return m == AG_MATCH_PARTIAL && (p->is_final || space > MAX_SPACE) ? AG_MATCH_NO : m;
}

/* State: the start of an answer. A delimiter may open the reasoning. Models also write the closing
 * one alone, for no reasoning. */
ag_status ag_parse_start(ag_chat_parser *p, bool *again, ag_error *err) {
    (void)err;
    size_t n, len;
    const char *s = ag_parser_unread(p, &n);
    const ag_match open = match_after_space(p, p->params.reasoning_open, s, n, &len),
                   close = match_after_space(p, p->params.reasoning_close, s, n, &len);
    if (open == AG_MATCH_PARTIAL || close == AG_MATCH_PARTIAL) return AG_OK;
    *again = n > 0 || p->is_final;
    if (!*again) return AG_OK;
    p->state = open == AG_MATCH_YES ? ag_parse_reasoning : ag_parse_content;
    if (open == AG_MATCH_YES || close == AG_MATCH_NO) return AG_OK;
    ag_parser_decide(p, len);
    p->state = after_reasoning;
    return AG_OK;
}

/* Skips white space, then enters the state `next`. */
static ag_status skip_space(ag_chat_parser *p, ag_parser_state *next, bool *again) {
    size_t n;
    const char *s = ag_parser_unread(p, &n);
    const size_t space = ag_json_space_len(s, n);
    ag_parser_decide(p, space);
    if (space == n && !p->is_final) return AG_OK;
    p->searched = p->at;
    p->state = next;
    *again = true;
    return AG_OK;
}

/* State: white space after the reasoning, which is not content. */
static ag_status after_reasoning(ag_chat_parser *p, bool *again, ag_error *err) {
    (void)err;
    return skip_space(p, ag_parse_content, again);
}

/* State: the start of the reasoning. Skips white space and one opening delimiter, which models
 * write even if the prompt ends with it. */
ag_status ag_parse_reasoning(ag_chat_parser *p, bool *again, ag_error *err) {
    (void)err;
    size_t n;
    const char *s = ag_parser_unread(p, &n), *open = p->params.reasoning_open;
    const size_t space = ag_json_space_len(s, n);
    const ag_match m = open ? match_prefix(open, s + space, n - space) : AG_MATCH_NO;
    ag_parser_decide(p, space + (m == AG_MATCH_YES ? strlen(open) : 0));
    if (m == AG_MATCH_PARTIAL && !p->is_final) return AG_OK;
    p->state = reasoning_space;
    *again = true;
    return AG_OK;
}

/* State: white space after the opening delimiter. */
static ag_status reasoning_space(ag_chat_parser *p, bool *again, ag_error *err) {
    (void)err;
    return skip_space(p, reasoning_text, again);
}

/* State: the text of the reasoning, to its closing delimiter. */
static ag_status reasoning_text(ag_chat_parser *p, bool *again, ag_error *err) {
    bool found;
    size_t n;
    const char *s = ag_parser_unread(p, &n), *close = p->params.reasoning_close;
    const size_t from = p->searched > p->at ? p->searched - p->at : 0;
    const size_t delimiter = ag_parser_find(close, s, from, n, p->is_final, &found);
    size_t end = without_space(s, delimiter);
    if (!found && delimiter - end > MAX_SPACE) end = delimiter;
    AG_TRY(ag_parser_emit_text(p, AG_CHAT_DELTA_REASONING, s, end, err));
    ag_parser_decide(p, found ? delimiter + strlen(close) : p->is_final ? n : end);
    p->searched = p->at + (found || p->is_final ? 0 : delimiter - end);
    if (found) p->state = after_reasoning;
    *again = found;
    return AG_OK;
}

/* ---- content ---- */

/* Returns the first position where a section of calls begins, or can begin when more text arrives;
 * n if there is none. *found: the trigger; NULL if it is incomplete or missing. */
static size_t find_trigger(const ag_chat_parser *p, const char *s, size_t from, size_t n,
                           const char **found) {
    const ag_call_format *f = p->params.format;
    size_t first = n;
    *found = NULL;
    for (size_t i = 0; f && i < AG_CALL_TRIGGERS && f->triggers[i]; i++) {
        bool is_found;
        const size_t at = ag_parser_find(f->triggers[i], s, from, n, p->is_final, &is_found);
        if (at > first || at == n) continue;
        if (at == first && !is_found) continue;
        if (at == first && *found && strlen(*found) > strlen(f->triggers[i])) continue;
        first = at;
        *found = is_found ? f->triggers[i] : NULL;
    }
    return first;
}

/* Matches an answer that begins with a call without a delimiter: JSON, perhaps in a fence, as small
 * models write it whatever their template, or a list of code, if the template writes it so. *len:
 * length of what comes before. */
static ag_match match_bare_call(const ag_chat_parser *p, const char *s, size_t n, size_t *len,
                                bool *is_fenced) {
    static const char *const fences[] = {"```json", "```"};
    const ag_call_format *f = p->params.format;
    *len = ag_json_space_len(s, n);
    *is_fenced = false;
    const bool is_code = f && f->kind == AG_CALLS_PYTHON && f->is_bare;
    if (!f || (f->kind != AG_CALLS_JSON && !is_code) || !p->params.tools || p->is_bare_excluded ||
        p->content.len || p->n_calls || *len == n)
        return AG_MATCH_NO;
    for (size_t i = 0; i < 2 && !*is_fenced && !is_code; i++) {
        const ag_match m = match_prefix(fences[i], s + *len, n - *len);
        if (m == AG_MATCH_PARTIAL && !p->is_final) return m;
        *is_fenced = m == AG_MATCH_YES;
        if (*is_fenced) *len += strlen(fences[i]);
    }
    *len += ag_json_space_len(s + *len, n - *len);
    if (*len == n) return p->is_final ? AG_MATCH_NO : AG_MATCH_PARTIAL;
    return (s[*len] == '{' && !is_code) || s[*len] == '[' ? AG_MATCH_YES : AG_MATCH_NO;
}

/* Matches the header of a message: white space, `open`, a name, and what closes the header. */
static ag_match match_header(const ag_call_format *f, const char *open, const char *s, size_t n,
                             size_t *len) {
    size_t close, at;
    const ag_match m = ag_match_delimiter(open, s, n, &at);
    if (m != AG_MATCH_YES) return m;
    const size_t name = ag_call_name_len(s + at, n - at);
    if (at + name == n) return AG_MATCH_PARTIAL;
    if (name == 0) return AG_MATCH_NO;
    const ag_match end = ag_match_delimiter(f->header_close, s + at + name, n - at - name, &close);
    *len = at + name + close;
    return end;
}

/* Skips a header. One can come first, after a call, and after the delimiter that ends the
 * reasoning; it is never content, whatever its name. */
static ag_match skip_header(ag_chat_parser *p) {
    const ag_call_format *f = p->params.headers;
    const char *close = p->params.reasoning_close, *between = f ? f->header_between : NULL;
    if (!f || !f->header_close || p->content.len) return AG_MATCH_NO;
    const size_t skip =
        close && between && !strncmp(between, close, strlen(close)) ? strlen(close) : 0;
    const char *const opens[] = {f->header_open, between, between ? between + skip : NULL};
    size_t n, len;
    const char *s = ag_parser_unread(p, &n);
    if (n > MAX_HEADER) n = MAX_HEADER;
    const size_t space = ag_json_space_len(s, n);
    bool may_come = false;
    for (size_t i = 0; i < 3; i++) {
        if (!opens[i]) continue;
        const ag_match m = match_header(f, opens[i], s + space, n - space, &len);
        may_come = may_come || m == AG_MATCH_PARTIAL;
        if (m != AG_MATCH_YES) continue;
        ag_parser_decide(p, space + len);
        return m;
    }
    return may_come && n < MAX_HEADER && !p->is_final ? AG_MATCH_PARTIAL : AG_MATCH_NO;
}

/* Emits the content before a trigger and enters the section after it. */
static ag_status begin_section(ag_chat_parser *p, size_t content, size_t trigger, size_t len,
                               bool is_bare, bool *again, ag_error *err) {
    AG_TRY(ag_parser_emit_text(p, AG_CHAT_DELTA_CONTENT, p->pending.data + p->at, content, err));
    p->decided = p->at + content;
    p->at += trigger;
    p->fallback_len = trigger - content + len;
    p->is_bare = is_bare;
    p->n_calls_before = p->n_calls;
    p->state = ag_parse_section;
    *again = true;
    return AG_OK;
}

/* State: content, to the start of a section of calls. */
ag_status ag_parse_content(ag_chat_parser *p, bool *again, ag_error *err) {
    const ag_match header = skip_header(p);
    /* Another header may follow, in this piece of text or in a later one. */
    *again = header == AG_MATCH_YES;
    if (header != AG_MATCH_NO) return AG_OK;
    size_t n;
    const char *s = ag_parser_unread(p, &n), *trigger;
    const char *open = p->content.len == 0 ? p->params.content_open : NULL;
    if (open) {
        size_t len;
        const ag_match m = match_after_space(p, open, s, n, &len);
        if (m == AG_MATCH_PARTIAL) return AG_OK;
        if (m == AG_MATCH_YES) {
            ag_parser_decide(p, len);
            s = ag_parser_unread(p, &n);
        }
    }
    size_t before;
    const ag_match bare = match_bare_call(p, s, n, &before, &p->is_fenced);
    p->is_fenced = p->is_fenced && bare == AG_MATCH_YES;
    if (bare == AG_MATCH_PARTIAL) return AG_OK;
    if (bare == AG_MATCH_YES) return begin_section(p, 0, before, 1, true, again, err);
    const size_t from = p->searched > p->at ? p->searched - p->at : 0;
    const size_t delimiter = find_trigger(p, s, from, n, &trigger);
    size_t end = without_space(s, delimiter);
    if (trigger) return begin_section(p, end, delimiter, strlen(trigger), false, again, err);
    if (delimiter - end > MAX_SPACE) end = delimiter;
    /* White space after calls is not content. */
    if (p->is_final) end = p->n_calls && without_space(s, n) == 0 ? 0 : n;
    AG_TRY(ag_parser_emit_text(p, AG_CHAT_DELTA_CONTENT, s, end, err));
    ag_parser_decide(p, p->is_final ? n : end);
    p->searched = p->at + (p->is_final ? 0 : delimiter - end);
    return AG_OK;
}
