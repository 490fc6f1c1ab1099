/* SPDX-License-Identifier: Apache-2.0 */
/* A section of calls: the marks around and between them. */
#include "chat/parse/parser.h"
#include "core/fail.h"

#include <string.h>

ag_status ag_stream_refuse(ag_chat_parser *p, ag_error *err) {
    p->is_bare_refused = true;
    p->state = ag_stream_content;
    p->at = p->held;
    p->seen = p->at;
    if (p->n_made > p->made_before) return AG_OK;
    const size_t left = p->pending.len - p->held;
    const size_t n = p->refuse_len < left ? p->refuse_len : left;
    AG_TRY(ag_stream_put(p, AG_CHAT_DELTA_CONTENT, p->pending.data + p->held, n, err));
    p->at = p->held += n;
    p->seen = p->at;
    return AG_OK;
}

void ag_stream_end_call(ag_chat_parser *p, bool is_whole) {
    p->made[p->n_made - 1].is_whole = is_whole;
    p->held = p->at;
    p->scan = (ag_json_scan){0};
    p->scanned = 0;
    p->state = ag_stream_section;
}

size_t ag_stream_name_len(const char *s, size_t n) {
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

typedef enum mark { NO_MARK, MORE_NEEDED, SECTION_OPEN, CALL_OPEN, CALL_CLOSE, SECTION_CLOSE } mark;

/* Which of the marks stands at s: the longest. */
static mark mark_at(const ag_call_format *f, const char *s, size_t n, bool is_final, size_t *len) {
    const char *const marks[] = {[SECTION_OPEN] = f->section_open,
                                 [CALL_OPEN] = f->call_open,
                                 [CALL_CLOSE] = f->call_close,
                                 [SECTION_CLOSE] = f->section_close};
    mark best = NO_MARK;
    *len = 0;
    for (mark i = SECTION_OPEN; i <= SECTION_CLOSE; i++) {
        size_t taken;
        if (!marks[i] || !marks[i][0]) continue;
        const ag_match m = ag_match_loosely(marks[i], s, n, &taken);
        if (m == AG_MATCH_PARTIAL && !is_final) return MORE_NEEDED;
        if (m == AG_MATCH_YES && taken > *len) {
            best = i;
            *len = taken;
        }
    }
    return best;
}

/* The end of the fence that the calls stand in counts as the end of a call. */
static mark fence_at(const char *s, size_t n, bool is_final, size_t *len) {
    const ag_match m = ag_match_loosely("```", s, n, len);
    if (m == AG_MATCH_PARTIAL && !is_final) return MORE_NEEDED;
    return m == AG_MATCH_YES ? CALL_CLOSE : NO_MARK;
}

static bool may_stand_between(const ag_call_format *f, char c) {
    if (ag_is_json_space(c)) return true;
    const bool is_list = f->kind == AG_CALLS_JSON || f->kind == AG_CALLS_PYTHON;
    return is_list && (c == ',' || c == '[' || c == ']');
}

static ag_stream_state *call_state(ag_call_kind kind) {
    switch (kind) {
    case AG_CALLS_JSON:
        return ag_stream_json_call;
    case AG_CALLS_NAMED:
        return ag_stream_named_call;
    case AG_CALLS_TAGGED:
        return ag_stream_tagged_call;
    case AG_CALLS_PYTHON:
        return ag_stream_python_call;
    case AG_CALLS_BRACES:
        return ag_stream_braces_call;
    case AG_CALLS_HARMONY:
        break;
    }
    return ag_stream_harmony;
}

/* Whether a call may begin here without a mark. */
static bool begins_call(const ag_call_format *f, const char *s, size_t n) {
    if (f->kind == AG_CALLS_JSON) return s[0] == '{';
    return f->kind == AG_CALLS_PYTHON && ag_stream_name_len(s, n) > 0;
}

ag_status ag_stream_section(ag_chat_parser *p, bool *again, ag_error *err) {
    const ag_call_format *f = p->params.format;
    size_t n, i = 0, len;
    const char *s = ag_stream_rest(p, &n);
    const bool has_calls = p->n_made > p->made_before;
    while (i < n) {
        mark m = mark_at(f, s + i, n - i, p->is_final, &len);
        if (m == NO_MARK && p->is_fenced && has_calls)
            m = fence_at(s + i, n - i, p->is_final, &len);
        if (m == MORE_NEEDED) return AG_OK;
        if (m == CALL_OPEN || (m == NO_MARK && begins_call(f, s + i, n - i))) {
            ag_stream_take(p, i + len);
            p->state = call_state(f->kind);
            *again = true;
            return AG_OK;
        }
        if (m == SECTION_CLOSE && has_calls) {
            ag_stream_take(p, i + len);
            p->seen = p->held = p->at;
            p->state = ag_stream_content;
            *again = true;
            return AG_OK;
        }
        if (m == NO_MARK && !may_stand_between(f, s[i])) break;
        const bool closes = m == CALL_CLOSE || (m == NO_MARK && s[i] == ']');
        i += m == NO_MARK ? 1 : len;
        /* What closes a call is accounted for; white space behind may be content's. */
        if (closes && has_calls) {
            ag_stream_take(p, i);
            p->held = p->at;
            s = ag_stream_rest(p, &n);
            i = 0;
        }
    }
    if (i == n && !p->is_final) return AG_OK;
    *again = true;
    return ag_stream_refuse(p, err);
}
