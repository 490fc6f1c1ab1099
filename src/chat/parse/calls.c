/* SPDX-License-Identifier: Apache-2.0 */
/* Sections of calls: the delimiters around and between calls. */
#include "chat/parse/parser.h"
#include "core/fail.h"

#include <string.h>

ag_status ag_parser_reject_call(ag_chat_parser *p, ag_error *err) {
    p->is_bare_excluded = true;
    p->state = ag_parse_content;
    p->at = p->decided;
    p->searched = p->at;
    if (p->n_calls > p->n_calls_before) return AG_OK;
    const size_t left = p->pending.len - p->decided;
    const size_t n = p->fallback_len < left ? p->fallback_len : left;
    AG_TRY(ag_parser_emit_text(p, AG_CHAT_DELTA_CONTENT, p->pending.data + p->decided, n, err));
    p->at = p->decided += n;
    p->searched = p->at;
    return AG_OK;
}

void ag_parser_end_call(ag_chat_parser *p, bool is_complete) {
    p->calls[p->n_calls - 1].is_complete = is_complete;
    p->decided = p->at;
    p->scan = (ag_json_scan){0};
    p->scanned = 0;
    p->state = ag_parse_section;
}

size_t ag_call_name_len(const char *s, size_t n) {
    size_t i = 0;
    while (i < n) {
        const char c = s[i];
        const bool fits = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                          (c >= 'a' && c <= 'z') || c == '_' || c == '-' || c == '.' || c == '/' ||
                          (unsigned char)c >= 0x80;
        if (!fits) break;
        i++;
    }
    return i;
}

typedef enum delimiter {
    NO_DELIMITER,
    MORE_NEEDED,
    CUT_SHORT,
    SECTION_OPEN,
    CALL_OPEN,
    CALL_CLOSE,
    SECTION_CLOSE
} delimiter;

/* Returns the longest of the format's delimiters that s begins with, and its length. MORE_NEEDED: s
 * ends inside one. CUT_SHORT: so does the answer. */
static delimiter match_any_delimiter(const ag_call_format *f, const char *s, size_t n,
                                     bool is_final, size_t *len) {
    const char *const delimiters[] = {[SECTION_OPEN] = f->section_open,
                                      [CALL_OPEN] = f->call_open,
                                      [CALL_CLOSE] = f->call_close,
                                      [SECTION_CLOSE] = f->section_close};
    delimiter best = NO_DELIMITER;
    bool is_cut = false;
    *len = 0;
    for (delimiter i = SECTION_OPEN; i <= SECTION_CLOSE; i++) {
        size_t taken;
        if (!delimiters[i] || !delimiters[i][0]) continue;
        const ag_match m = ag_match_delimiter(delimiters[i], s, n, &taken);
        if (m == AG_MATCH_PARTIAL && !is_final) return MORE_NEEDED;
        is_cut = is_cut || m == AG_MATCH_PARTIAL;
        if (m == AG_MATCH_YES && taken > *len) {
            best = i;
            *len = taken;
        }
    }
    return best == NO_DELIMITER && is_cut ? CUT_SHORT : best;
}

/* Takes the end of a ``` fence for the end of a call. */
static delimiter match_fence(const char *s, size_t n, bool is_final, size_t *len) {
    const ag_match m = ag_match_delimiter("```", s, n, len);
    if (m == AG_MATCH_PARTIAL && !is_final) return MORE_NEEDED;
    return m == AG_MATCH_YES ? CALL_CLOSE : NO_DELIMITER;
}

static bool may_stand_between(const ag_call_format *f, char c) {
    if (ag_is_json_space(c)) return true;
    const bool is_list = f->kind == AG_CALLS_JSON || f->kind == AG_CALLS_PYTHON;
    return is_list && (c == ',' || c == '[' || c == ']');
}

static ag_parser_state *call_state(ag_call_kind kind) {
    switch (kind) {
    case AG_CALLS_JSON:
        return ag_parse_json_call;
    case AG_CALLS_NAMED:
        return ag_parse_named_call;
    case AG_CALLS_TAGGED:
        return ag_parse_tagged_call;
    case AG_CALLS_PYTHON:
        return ag_parse_python_call;
    case AG_CALLS_BRACES:
        return ag_parse_braces_call;
    case AG_CALLS_HARMONY:
        break;
    }
    return ag_parse_harmony;
}

/* Returns whether a call can begin here without a delimiter. */
static bool begins_call(const ag_call_format *f, const char *s, size_t n) {
    if (f->kind == AG_CALLS_JSON) return s[0] == '{';
    return f->kind == AG_CALLS_PYTHON && ag_call_name_len(s, n) > 0;
}

ag_status ag_parse_section(ag_chat_parser *p, bool *again, ag_error *err) {
    const ag_call_format *f = p->params.format;
    size_t n, i = 0, len;
    const char *s = ag_parser_unread(p, &n);
    const bool has_calls = p->n_calls > p->n_calls_before;
    while (i < n) {
        delimiter m = match_any_delimiter(f, s + i, n - i, p->is_final, &len);
        if (m == NO_DELIMITER && p->is_fenced && has_calls)
            m = match_fence(s + i, n - i, p->is_final, &len);
        if (m == MORE_NEEDED) return AG_OK;
        if (m == CUT_SHORT && has_calls) {
            ag_parser_decide(p, n);
            return AG_OK;
        }
        if (m == CUT_SHORT) m = NO_DELIMITER;
        if (m == CALL_OPEN || (m == NO_DELIMITER && begins_call(f, s + i, n - i))) {
            ag_parser_consume(p, i + len);
            p->state = call_state(f->kind);
            *again = true;
            return AG_OK;
        }
        if (m == SECTION_CLOSE && has_calls) {
            ag_parser_consume(p, i + len);
            p->searched = p->decided = p->at;
            p->state = ag_parse_content;
            *again = true;
            return AG_OK;
        }
        if (m == NO_DELIMITER && !may_stand_between(f, s[i])) break;
        const bool closes = m == CALL_CLOSE || (m == NO_DELIMITER && s[i] == ']');
        i += m == NO_DELIMITER ? 1 : len;
        /* The closing delimiter is decided; white space after it can be content. */
        if (closes && has_calls) {
            ag_parser_decide(p, i);
            s = ag_parser_unread(p, &n);
            i = 0;
        }
    }
    if (i == n && !p->is_final) return AG_OK;
    *again = true;
    return ag_parser_reject_call(p, err);
}
