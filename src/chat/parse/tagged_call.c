/* SPDX-License-Identifier: Apache-2.0 */
/* Calls whose arguments stand one by one between marks: <parameter=city>Bonn</parameter>. */
#include "chat/json_text.h"
#include "chat/parse/literal.h"
#include "chat/parse/parser.h"
#include "constrain/schema_rules.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <string.h>

enum { MAX_NAME = 256 };

static ag_stream_state parameters, value, take_value, behind_cdata;

static const char cdata_open[] = "<![CDATA[", cdata_close[] = "]]>";

/* What may stand behind the name, or behind an argument. *len: with it. */
typedef enum follows { NOTHING, UNKNOWN, PARAMETER, CLOSE } follows;

static follows what_follows(const ag_chat_parser *p, const char *s, size_t n, size_t *len) {
    const ag_call_format *f = p->params.format;
    const size_t space = ag_json_space_len(s, n);
    const ag_match open = ag_match_loosely(f->param_open, s + space, n - space, len);
    *len += space;
    if (open == AG_MATCH_YES) return PARAMETER;
    const ag_match close = ag_match_loosely(f->call_close, s + space, n - space, len);
    *len += space;
    if (close == AG_MATCH_YES) return CLOSE;
    const bool may_come = open == AG_MATCH_PARTIAL || close == AG_MATCH_PARTIAL;
    return may_come && !p->is_final ? UNKNOWN : NOTHING;
}

ag_status ag_stream_tagged_call(ag_chat_parser *p, bool *again, ag_error *err) {
    const ag_call_format *f = p->params.format;
    size_t n, len = 0, behind;
    const char *s = ag_stream_rest(p, &n);
    const size_t space = ag_json_space_len(s, n), name = ag_stream_name_len(s + space, n - space);
    const size_t end = space + name;
    const bool may_wait = !p->is_final && end <= MAX_NAME;
    const ag_match m = ag_match_loosely(f->name_end, s + end, n - end, &len);
    if (may_wait && (end == n || m == AG_MATCH_PARTIAL)) return AG_OK;
    *again = true;
    if (m == AG_MATCH_NO || name == 0 || end > MAX_NAME) return ag_stream_refuse(p, err);
    const follows next = what_follows(p, s + end + len, n - end - len, &behind);
    *again = next != UNKNOWN;
    if (next == UNKNOWN) return AG_OK;
    if (next == NOTHING) return ag_stream_refuse(p, err);
    AG_TRY(ag_stream_begin_call(p, s + space, name, "", 0, err));
    ag_stream_take(p, end + len);
    p->held = p->at;
    p->is_first_param = true;
    p->state = parameters;
    return AG_OK;
}

/* ---- one argument ---- */

/* What stands between an argument's name and its value begins with this. */
static size_t common_prefix(const char *a, const char *b) {
    size_t i = 0;
    while (a[i] && a[i] == b[i]) i++;
    return i;
}

static ag_status begin_value(ag_chat_parser *p, const char *key, size_t n, bool is_text,
                             ag_error *err) {
    ag_text json = {0};
    ag_status st =
        ag_text_append(&json, p->is_first_param ? "{" : ", ", p->is_first_param ? 1 : 2, err);
    if (st == AG_OK) st = ag_value_quote(key, n, &json, err);
    if (st == AG_OK) st = ag_text_append(&json, is_text ? ": \"" : ": ", is_text ? 3 : 2, err);
    if (st == AG_OK) st = ag_stream_arguments(p, json.data, json.len, err);
    ag_text_free(&json);
    p->is_first_param = false;
    p->is_text_param = is_text;
    p->state = value;
    return st;
}

static bool schema_says_text(const ag_chat_parser *p, const char *key, size_t n) {
    char name[MAX_NAME];
    if (n >= sizeof name) return false;
    memcpy(name, key, n);
    name[n] = '\0';
    return ag_schema_is_text(ag_stream_param_schema(p, name));
}

/* Behind what opens an argument: its name and what leads to the value. */
static ag_status parameter(ag_chat_parser *p, size_t opened, bool *again, ag_error *err) {
    const ag_call_format *f = p->params.format;
    size_t n, len = 0;
    const char *s = ag_stream_rest(p, &n) + opened;
    n -= opened;
    const size_t prefix = common_prefix(f->param_text, f->param_json);
    const char first = f->param_text[ag_json_space_len(f->param_text, strlen(f->param_text))];
    size_t key = 0;
    while (key < n && s[key] != first && s[key] != '\n') key++;
    ag_match as_text = ag_match_loosely(f->param_text, s + key, n - key, &len);
    ag_match m = as_text;
    if (m == AG_MATCH_NO) m = ag_match_loosely(f->param_json, s + key, n - key, &len);
    if ((key == n || m == AG_MATCH_PARTIAL) && !p->is_final && key < MAX_NAME) return AG_OK;
    *again = true;
    if (m != AG_MATCH_YES || key == 0) {
        ag_stream_end_call(p, false);
        return AG_OK;
    }
    /* The two ways differ where the format says of what type a value is. */
    const bool is_told = f->param_text[prefix] != f->param_json[prefix];
    const bool is_text = is_told ? as_text == AG_MATCH_YES : schema_says_text(p, s, key);
    AG_TRY(begin_value(p, s, key, is_text, err));
    ag_stream_take(p, opened + key + len);
    p->held = p->at;
    return AG_OK;
}

static ag_status parameters(ag_chat_parser *p, bool *again, ag_error *err) {
    size_t n, len;
    const char *s = ag_stream_rest(p, &n);
    const follows next = what_follows(p, s, n, &len);
    if (next == UNKNOWN) return AG_OK;
    if (next == PARAMETER) return parameter(p, len, again, err);
    *again = true;
    AG_TRY(ag_stream_arguments(p, p->is_first_param ? "{}" : "}", p->is_first_param ? 2 : 1, err));
    if (next == CLOSE) ag_stream_take(p, len);
    ag_stream_end_call(p, next == CLOSE);
    return AG_OK;
}

/* ---- its value ---- */

/* The white space that a mark ends with. What the format puts around every value is not its own. */
static const char *trailing_space(const char *mark) {
    size_t len = strlen(mark);
    while (len && ag_is_json_space(mark[len - 1])) len--;
    return mark + len;
}

static ag_status put_whole(ag_chat_parser *p, const char *s, size_t n, ag_error *err) {
    const size_t space = ag_json_space_len(s, n);
    ag_text json = {0};
    bool ok = false;
    ag_status st = AG_OK;
    if (ag_is_json_value(s, n) && s[space] != '"') {
        while (n && ag_is_json_space(s[n - 1])) n--;
        ok = true;
        st = ag_text_append(&json, s + space, n - space, err);
    } else if (space < n && strchr("[{(TFN", s[space])) {
        st = ag_python_to_json(s, n, &json, &ok, err);
    }
    if (st == AG_OK && !ok) st = ag_value_quote(s, n, &json, err);
    if (st == AG_OK) st = ag_stream_arguments(p, json.data, json.len, err);
    ag_text_free(&json);
    return st;
}

static ag_status put_text(ag_chat_parser *p, const char *s, size_t n, bool is_end, ag_error *err) {
    ag_text json = {0};
    ag_status st = ag_value_escape(s, n, &json, err);
    if (st == AG_OK && is_end) st = ag_text_append(&json, "\"", 1, err);
    if (st == AG_OK) st = ag_stream_arguments(p, json.data, json.len, err);
    ag_text_free(&json);
    return st;
}

/* How much of s[0..n) may be the white space that what closes the value begins with. */
static size_t own_space(const char *close, size_t own, const char *s, size_t n, bool is_end) {
    for (size_t k = own < n ? own : n; k; k--) {
        if (!memcmp(s + n - k, close, k) && (k == own || !is_end)) return k;
    }
    return 0;
}

static ag_status take_value(ag_chat_parser *p, bool *again, ag_error *err) {
    const char *close = p->is_cdata ? cdata_close : p->params.format->param_close;
    const size_t own = ag_json_space_len(close, strlen(close));
    size_t n;
    bool is_end;
    const char *s = ag_stream_rest(p, &n);
    const size_t from = !p->is_text_param && !p->is_cdata && p->seen > p->at ? p->seen - p->at : 0;
    const size_t mark = ag_stream_find(close + own, s, from, n, p->is_final, &is_end);
    const size_t space = p->is_final && !is_end ? 0 : own_space(close, own, s, mark, is_end);
    *again = is_end || p->is_final;
    p->seen = p->at + mark;
    if (!p->is_text_param && !p->is_cdata && !*again) return AG_OK;
    const bool as_text = p->is_text_param || p->is_cdata;
    AG_TRY(as_text ? put_text(p, s, mark - space, is_end, err)
                   : put_whole(p, s, mark - space, err));
    ag_stream_take(p, is_end ? mark + strlen(close + own) : mark - space);
    p->held = p->at;
    if (is_end) p->state = p->is_cdata ? behind_cdata : parameters;
    else if (p->is_final) ag_stream_end_call(p, false);
    return AG_OK;
}

static ag_status behind_cdata(ag_chat_parser *p, bool *again, ag_error *err) {
    (void)err;
    size_t n, len;
    const char *s = ag_stream_rest(p, &n);
    const ag_match m = ag_match_loosely(p->params.format->param_close, s, n, &len);
    if (m == AG_MATCH_PARTIAL && !p->is_final) return AG_OK;
    if (m == AG_MATCH_YES) ag_stream_take(p, len);
    p->held = p->at;
    p->state = parameters;
    *again = true;
    return AG_OK;
}

static ag_status value(ag_chat_parser *p, bool *again, ag_error *err) {
    size_t n, i = 0;
    const char *s = ag_stream_rest(p, &n), *own = trailing_space(p->params.format->param_text);
    while (own[i] && i < n && s[i] == own[i]) i++;
    if (i == n && own[i] && !p->is_final) return AG_OK;
    const size_t wanted = sizeof cdata_open - 1, have = n - i < wanted ? n - i : wanted;
    const bool may_be = !memcmp(s + i, cdata_open, have);
    if (may_be && have < wanted && !p->is_final) return AG_OK;
    p->is_cdata = may_be && have == wanted;
    ag_stream_take(p, p->is_cdata ? i + wanted : i);
    p->seen = p->held = p->at;
    p->state = take_value;
    *again = true;
    /* What is marked as text is text, whatever its schema says. */
    return p->is_cdata && !p->is_text_param ? ag_stream_arguments(p, "\"", 1, err) : AG_OK;
}
