/* SPDX-License-Identifier: Apache-2.0 */
/* Calls as code: f(a=1, b='x') and f{a:1,b:QUOTExQUOTE}. */
#include "chat/json_text.h"
#include "chat/parse/literal.h"
#include "chat/parse/parser.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <string.h>

enum { MAX_NAME = 256 };

static ag_parser_state argument, braces;

/* Reads NAME and the bracket that opens the arguments. */
static ag_status begin_arguments(ag_chat_parser *p, char opening, ag_parser_state *next,
                                 bool *again, ag_error *err) {
    size_t n;
    const char *s = ag_parser_unread(p, &n);
    const size_t space = ag_json_space_len(s, n), name = ag_call_name_len(s + space, n - space);
    const size_t end = space + name;
    if (end == n && !p->is_final && end <= MAX_NAME) return AG_OK;
    const bool is_known = !p->is_bare || ag_parser_has_tool(p, s + space, name);
    *again = true;
    if (end == n || end > MAX_NAME || name == 0 || s[end] != opening || !is_known)
        return ag_parser_reject_call(p, err);
    AG_TRY(ag_parser_begin_call(p, s + space, name, "", 0, err));
    ag_parser_decide(p, end + 1);
    p->scanned = 0;
    p->depth = 0;
    p->quote = '\0';
    p->is_first_param = true;
    p->state = next;
    return AG_OK;
}

ag_status ag_parse_python_call(ag_chat_parser *p, bool *again, ag_error *err) {
    return begin_arguments(p, '(', argument, again, err);
}

/* Finds the ',' or ')' that ends an argument; returns false if it has not arrived. */
static bool find_argument_end(ag_chat_parser *p, const char *s, size_t n, size_t *end) {
    for (size_t i = p->scanned; i < n; i++) {
        const char c = s[i];
        if (p->quote) {
            if (c == '\\' && i + 1 == n) {
                p->scanned = i;
                return false;
            }
            if (c == '\\') i++;
            else if (c == p->quote) p->quote = '\0';
            continue;
        }
        if (c == '\'' || c == '"') p->quote = c;
        if (p->depth == 0 && (c == ',' || c == ')')) {
            *end = i;
            return true;
        }
        if (c == '(' || c == '[' || c == '{') p->depth++;
        if ((c == ')' || c == ']' || c == '}') && p->depth) p->depth--;
    }
    p->scanned = n;
    return false;
}

/* Appends text that is not a literal as a string, without quotation marks at both ends. */
static ag_status quote_raw(const char *s, size_t n, ag_text *json, ag_error *err) {
    ag_json_trim(&s, &n);
    const bool is_quoted = n > 1 && (s[0] == '\'' || s[0] == '"') && s[n - 1] == s[0];
    return is_quoted ? ag_json_text_quote(s + 1, n - 2, json, err)
                     : ag_json_text_quote(s, n, json, err);
}

/* Emits a=1, or 1 alone, whose name becomes "value". */
static ag_status put_argument(ag_chat_parser *p, const char *s, size_t n, ag_error *err) {
    const size_t space = ag_json_space_len(s, n), name = ag_call_name_len(s + space, n - space);
    size_t at = space + name;
    at += ag_json_space_len(s + at, n - at);
    const bool is_named = name && at < n && s[at] == '=';
    const char *value = is_named ? s + at + 1 : s, *key = is_named ? s + space : "value";
    const size_t n_value = n - (size_t)(value - s), n_key = is_named ? name : 5;
    ag_text json = {0};
    bool ok = false;
    ag_status st = ag_text_append_string(&json, p->is_first_param ? "{" : ", ", err);
    if (st == AG_OK) st = ag_json_text_quote(key, n_key, &json, err);
    if (st == AG_OK) st = ag_text_append(&json, ": ", 2, err);
    if (st == AG_OK) st = ag_python_to_json(value, n_value, &json, &ok, err);
    if (st == AG_OK && !ok) st = quote_raw(value, n_value, &json, err);
    if (st == AG_OK) st = ag_parser_emit_arguments(p, json.data, json.len, err);
    ag_text_free(&json);
    p->is_first_param = false;
    return st;
}

/* State: one argument. */
static ag_status argument(ag_chat_parser *p, bool *again, ag_error *err) {
    size_t n, end = 0;
    const char *s = ag_parser_unread(p, &n);
    const bool found = find_argument_end(p, s, n, &end);
    if (!found && !p->is_final) return AG_OK;
    *again = true;
    if (!found) end = n;
    if (ag_json_space_len(s, end) < end) AG_TRY(put_argument(p, s, end, err));
    const bool is_last = !found || s[end] == ')';
    p->scanned = 0;
    ag_parser_decide(p, end + found);
    if (!is_last) return AG_OK;
    if (found) {
        AG_TRY(ag_parser_emit_arguments(p, p->is_first_param ? "{}" : "}",
                                        p->is_first_param ? 2 : 1, err));
    }
    ag_parser_end_call(p, found);
    return AG_OK;
}

/* ---- braces ---- */

ag_status ag_parse_braces_call(ag_chat_parser *p, bool *again, ag_error *err) {
    return begin_arguments(p, '{', braces, again, err);
}

/* Finds the '}' that ends the arguments; returns false if it has not arrived. */
static bool find_closing_brace(ag_chat_parser *p, const char *s, size_t n, size_t *end) {
    const char *delimiter = p->params.format->quote;
    const size_t len = strlen(delimiter);
    for (size_t i = p->scanned; i < n; i++) {
        if (s[i] == delimiter[0]) {
            const size_t have = n - i < len ? n - i : len;
            const bool fits = !memcmp(s + i, delimiter, have);
            if (fits && have < len) {
                p->scanned = i;
                return false;
            }
            if (fits) {
                p->quote = p->quote ? '\0' : delimiter[0];
                i += len - 1;
                continue;
            }
        }
        if (p->quote) continue;
        if (s[i] == '}' && p->depth == 0) {
            *end = i;
            return true;
        }
        if (s[i] == '{') p->depth++;
        if (s[i] == '}') p->depth--;
    }
    p->scanned = n;
    return false;
}

/* State: all arguments in braces. Emits them when they are complete. */
static ag_status braces(ag_chat_parser *p, bool *again, ag_error *err) {
    size_t n, end = 0;
    const char *s = ag_parser_unread(p, &n);
    const bool found = find_closing_brace(p, s, n, &end);
    if (!found && !p->is_final) return AG_OK;
    if (!found) end = n;
    *again = true;
    ag_text json = {0}, object = {0};
    bool ok = false;
    ag_status st = ag_text_append(&object, "{", 1, err);
    if (st == AG_OK) st = ag_text_append(&object, s, end, err);
    if (st == AG_OK) st = ag_text_append(&object, "}", 1, err);
    if (st == AG_OK) {
        st = ag_braces_to_json(object.data, object.len, p->params.format->quote, &json, &ok, err);
    }
    /* Arguments that cannot be read are kept as a string. */
    if (st == AG_OK && !ok) st = ag_json_text_quote(s, end, &json, err);
    if (st == AG_OK) st = ag_parser_emit_arguments(p, json.data, json.len, err);
    ag_text_free(&json);
    ag_text_free(&object);
    AG_TRY(st);
    ag_parser_consume(p, end + found);
    ag_parser_end_call(p, found && ok);
    return AG_OK;
}
