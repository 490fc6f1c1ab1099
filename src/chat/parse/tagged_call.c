/* SPDX-License-Identifier: Apache-2.0 */
/* Calls with one delimited text per argument: <parameter=city>Bonn</parameter>. */
#include "chat/json_text.h"
#include "chat/parse/literal.h"
#include "chat/parse/parser.h"
#include "constrain/schema/schema.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <string.h>

enum { MAX_NAME = 256 };

static ag_parser_state parameters, value_start, value_text, after_cdata;

static const char cdata_open[] = "<![CDATA[", cdata_close[] = "]]>";

/* Compares the start of s[0..n) with a delimiter that has a word for the type of a value. It is
 * `text` for text and `json` for one other type; a third word is that of another type. */
static ag_match match_typed(const char *text, const char *json, const char *s, size_t n,
                            size_t *len, bool *is_text) {
    const size_t n_text = strlen(text), n_json = strlen(json);
    size_t before = 0, after = 0, end;
    const ag_match m = ag_match_delimiter(text, s, n, len);
    *is_text = m == AG_MATCH_YES;
    while (text[before] && text[before] == json[before]) before++;
    if (m != AG_MATCH_NO || before == n_text) return m;
    while (before + after < n_text && before + after < n_json &&
           text[n_text - 1 - after] == json[n_json - 1 - after]) {
        after++;
    }
    while (before && ag_call_name_len(text + before - 1, 1)) before--;
    while (after && ag_call_name_len(text + n_text - after, 1)) after--;
    char first[MAX_NAME];
    if (before >= sizeof first) return AG_MATCH_NO;
    memcpy(first, text, before);
    first[before] = '\0';
    const ag_match begins = ag_match_delimiter(first, s, n, &end);
    if (begins != AG_MATCH_YES) return begins;
    if (before && ag_is_json_space(text[before - 1])) end += ag_json_space_len(s + end, n - end);
    end += ag_call_name_len(s + end, n - end);
    if (end == n) return AG_MATCH_PARTIAL;
    const ag_match ends = ag_match_delimiter(text + n_text - after, s + end, n - end, len);
    *len += end;
    return ends;
}

/* Kinds of text after the name or an argument; next_part() returns the kind and the length. */
typedef enum part { NOTHING, UNKNOWN, PARAMETER, CLOSE } part;

/* is_text: of PARAMETER, whether what opens it is that of text. */
static part next_part(const ag_chat_parser *p, const char *s, size_t n, size_t *len,
                      bool *is_text) {
    const ag_call_format *f = p->params.format;
    const size_t space = ag_json_space_len(s, n);
    const ag_match open =
        match_typed(f->param_open, f->param_open_json ? f->param_open_json : f->param_open,
                    s + space, n - space, len, is_text);
    *len += space;
    if (open == AG_MATCH_YES) return PARAMETER;
    const ag_match close = ag_match_delimiter(f->call_close, s + space, n - space, len);
    *len += space;
    if (close == AG_MATCH_YES) return CLOSE;
    const bool may_come = open == AG_MATCH_PARTIAL || close == AG_MATCH_PARTIAL;
    return may_come && !p->is_final ? UNKNOWN : NOTHING;
}

ag_status ag_parse_tagged_call(ag_chat_parser *p, bool *again, ag_error *err) {
    const ag_call_format *f = p->params.format;
    size_t n, len = 0, next_len;
    const char *s = ag_parser_unread(p, &n);
    const size_t space = ag_json_space_len(s, n), name = ag_call_name_len(s + space, n - space);
    const size_t end = space + name;
    const bool may_wait = !p->is_final && end <= MAX_NAME;
    const ag_match m = ag_match_delimiter(f->name_end, s + end, n - end, &len);
    if (may_wait && (end == n || m == AG_MATCH_PARTIAL)) return AG_OK;
    *again = true;
    if (m == AG_MATCH_NO || name == 0 || end > MAX_NAME) return ag_parser_reject_call(p, err);
    bool is_text;
    const part next = next_part(p, s + end + len, n - end - len, &next_len, &is_text);
    *again = next != UNKNOWN;
    if (next == UNKNOWN) return AG_OK;
    if (next == NOTHING) return ag_parser_reject_call(p, err);
    AG_TRY(ag_parser_begin_call(p, s + space, name, "", 0, err));
    ag_parser_decide(p, end + len);
    p->is_first_param = true;
    p->state = parameters;
    return AG_OK;
}

/* ---- one argument ---- */

static ag_status begin_value(ag_chat_parser *p, const char *key, size_t n, bool is_text,
                             ag_error *err) {
    ag_text json = {0};
    ag_status st = ag_text_append_string(&json, p->is_first_param ? "{" : ", ", err);
    if (st == AG_OK) st = ag_json_text_quote(key, n, &json, err);
    if (st == AG_OK) st = ag_text_append_string(&json, is_text ? ": \"" : ": ", err);
    if (st == AG_OK) st = ag_parser_emit_arguments(p, json.data, json.len, err);
    ag_text_free(&json);
    p->is_first_param = false;
    p->is_text_param = is_text;
    p->state = value_start;
    return st;
}

/* Returns whether the schema of this argument allows strings only. */
static bool schema_is_text(const ag_chat_parser *p, const char *key, size_t n) {
    char name[MAX_NAME];
    if (n >= sizeof name) return false;
    memcpy(name, key, n);
    name[n] = '\0';
    return ag_schema_is_text(ag_parser_param_schema(p, name));
}

/* Reads an argument after what opens it: its name, and the delimiter before the value. */
static ag_status parameter(ag_chat_parser *p, size_t opened, bool opens_text, bool *again,
                           ag_error *err) {
    const ag_call_format *f = p->params.format;
    size_t n, len = 0;
    const char *s = ag_parser_unread(p, &n) + opened;
    n -= opened;
    const char first = f->param_text[ag_json_space_len(f->param_text, strlen(f->param_text))];
    size_t key = 0;
    bool is_text;
    while (key < n && key < MAX_NAME && s[key] != first && s[key] != '\n') key++;
    const ag_match m = match_typed(f->param_text, f->param_json, s + key, n - key, &len, &is_text);
    if ((key == n || m == AG_MATCH_PARTIAL) && !p->is_final && key < MAX_NAME) return AG_OK;
    *again = true;
    if (m != AG_MATCH_YES || key == 0 || key == MAX_NAME) {
        ag_parser_end_call(p, false);
        return AG_OK;
    }
    /* A format without a word for the type leaves it to the schema. */
    if (f->param_open_json) is_text = opens_text;
    else if (!strcmp(f->param_text, f->param_json)) is_text = schema_is_text(p, s, key);
    AG_TRY(begin_value(p, s, key, is_text, err));
    ag_parser_decide(p, opened + key + len);
    return AG_OK;
}

/* State: between arguments. */
static ag_status parameters(ag_chat_parser *p, bool *again, ag_error *err) {
    size_t n, len;
    const char *s = ag_parser_unread(p, &n);
    bool is_text;
    const part next = next_part(p, s, n, &len, &is_text);
    if (next == UNKNOWN) return AG_OK;
    if (next == PARAMETER) return parameter(p, len, is_text, again, err);
    *again = true;
    AG_TRY(ag_parser_emit_arguments(p, p->is_first_param ? "{}" : "}", p->is_first_param ? 2 : 1,
                                    err));
    if (next == CLOSE) ag_parser_consume(p, len);
    ag_parser_end_call(p, next == CLOSE);
    return AG_OK;
}

/* ---- its value ---- */

/* Returns the white space at the end of a delimiter. White space that the format writes around
 * every value is not part of the value. */
static const char *trailing_space(const char *end) {
    size_t len = strlen(end);
    while (len && ag_is_json_space(end[len - 1])) len--;
    return end + len;
}

/* Emits a value that is not known to be text: JSON, a Python literal, or else a string. */
static ag_status emit_value(ag_chat_parser *p, const char *s, size_t n, ag_error *err) {
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
    if (st == AG_OK && !ok) st = ag_json_text_quote(s, n, &json, err);
    if (st == AG_OK) st = ag_parser_emit_arguments(p, json.data, json.len, err);
    ag_text_free(&json);
    return st;
}

/* Emits a piece of a string; is_end: with the closing quotation mark. */
static ag_status emit_text(ag_chat_parser *p, const char *s, size_t n, bool is_end, ag_error *err) {
    ag_text json = {0};
    ag_status st = ag_json_text_escape(s, n, &json, err);
    if (st == AG_OK && is_end) st = ag_text_append(&json, "\"", 1, err);
    if (st == AG_OK) st = ag_parser_emit_arguments(p, json.data, json.len, err);
    ag_text_free(&json);
    return st;
}

/* Returns how many bytes at the end of s[0..n) may be the white space that the closing delimiter
 * begins with. */
static size_t close_space_len(const char *close, size_t n_space, const char *s, size_t n,
                              bool is_end) {
    for (size_t k = n_space < n ? n_space : n; k; k--) {
        if (!memcmp(s + n - k, close, k) && (k == n_space || !is_end)) return k;
    }
    return 0;
}

/* State: the value, to its closing delimiter. Emits a string as it arrives. */
static ag_status value_text(ag_chat_parser *p, bool *again, ag_error *err) {
    const char *close = p->is_cdata ? cdata_close : p->params.format->param_close;
    const size_t n_space = ag_json_space_len(close, strlen(close));
    size_t n;
    bool is_end;
    const char *s = ag_parser_unread(p, &n);
    const size_t from =
        !p->is_text_param && !p->is_cdata && p->searched > p->at ? p->searched - p->at : 0;
    const size_t end = ag_parser_find(close + n_space, s, from, n, p->is_final, &is_end);
    const size_t space =
        p->is_final && !is_end ? 0 : close_space_len(close, n_space, s, end, is_end);
    *again = is_end || p->is_final;
    p->searched = p->at + end;
    if (!p->is_text_param && !p->is_cdata && !*again) return AG_OK;
    const bool as_text = p->is_text_param || p->is_cdata;
    AG_TRY(as_text ? emit_text(p, s, end - space, is_end, err)
                   : emit_value(p, s, end - space, err));
    ag_parser_decide(p, is_end ? end + strlen(close + n_space) : end - space);
    if (is_end) p->state = p->is_cdata ? after_cdata : parameters;
    else if (p->is_final) ag_parser_end_call(p, false);
    return AG_OK;
}

/* State: after CDATA, before what closes the argument. */
static ag_status after_cdata(ag_chat_parser *p, bool *again, ag_error *err) {
    (void)err;
    size_t n, len;
    const char *s = ag_parser_unread(p, &n);
    const ag_match m = ag_match_delimiter(p->params.format->param_close, s, n, &len);
    if (m == AG_MATCH_PARTIAL && !p->is_final) return AG_OK;
    if (m == AG_MATCH_YES) ag_parser_decide(p, len);
    p->state = parameters;
    *again = true;
    return AG_OK;
}

/* State: before the value. Skips white space that the format writes, and enters CDATA. */
static ag_status value_start(ag_chat_parser *p, bool *again, ag_error *err) {
    size_t n, i = 0;
    const char *s = ag_parser_unread(p, &n), *space = trailing_space(p->params.format->param_text);
    while (space[i] && i < n && s[i] == space[i]) i++;
    if (i == n && space[i] && !p->is_final) return AG_OK;
    const size_t wanted = sizeof cdata_open - 1, have = n - i < wanted ? n - i : wanted;
    const bool may_be = !memcmp(s + i, cdata_open, have);
    if (may_be && have < wanted && !p->is_final) return AG_OK;
    p->is_cdata = may_be && have == wanted;
    ag_parser_consume(p, p->is_cdata ? i + wanted : i);
    p->searched = p->decided = p->at;
    p->state = value_text;
    *again = true;
    /* A value that is marked as text is text, whatever its schema. */
    return p->is_cdata && !p->is_text_param ? ag_parser_emit_arguments(p, "\"", 1, err) : AG_OK;
}
