/* SPDX-License-Identifier: Apache-2.0 */
/* Calls with JSON arguments: an object that has the name, or a name and an object. */
#include "chat/parse/parser.h"
#include "core/fail.h"

#include <string.h>

/* Limit for the text before the arguments: a name, an id and little else. */
enum { MAX_HEAD = 1 << 16 };

typedef struct range {
    size_t begin, end; /* end == 0: none */
} range;

/* Head of a call: the members before its arguments, or all members. */
typedef struct head {
    range name, id, arguments; /* values with their quotes; arguments.end == 0: not complete yet */
    size_t begin;              /* start of the arguments; 0: none */
} head;

typedef enum head_result { HEAD_NO, HEAD_MORE, HEAD_YES } head_result;

static bool key_is(const char *s, range key, const char *name) {
    const size_t n = key.end - key.begin;
    return name && n == strlen(name) + 2 && !memcmp(s + key.begin + 1, name, n - 2);
}

static bool is_one_of(const char *s, range key, const char *detected, const char *const usual[]) {
    if (key_is(s, key, detected)) return true;
    for (size_t i = 0; usual[i]; i++) {
        if (key_is(s, key, usual[i])) return true;
    }
    return false;
}

/* Continues a scan at s[at]. Returns false if the value does not end in s[0..n), else sets its end.
 */
static bool value_end(ag_json_scan *scan, const char *s, size_t at, size_t n, size_t *end,
                      bool *is_bad) {
    for (size_t i = at; i < n; i++) {
        const ag_json_scan_result r = ag_json_scan_byte(scan, s[i]);
        if (r == AG_JSON_SCAN_MORE) continue;
        *end = i + (r == AG_JSON_SCAN_END);
        *is_bad = r == AG_JSON_SCAN_BAD && !ag_json_scan_is_complete(scan);
        return true;
    }
    return false;
}

/* Finds the value that begins at s[at]. Returns false if it does not end in s[0..n). */
static bool value_at(const char *s, size_t at, size_t n, range *out, bool *is_bad) {
    ag_json_scan scan = {0};
    out->begin = at;
    return value_end(&scan, s, at, n, &out->end, is_bad);
}

static size_t space_end(const char *s, size_t at, size_t n) {
    while (at < n && ag_is_json_space(s[at])) at++;
    return at;
}

/* Reads one key and its value, and moves *at to their end. An object "function" is entered. */
static head_result read_member(const ag_call_format *f, const char *s, size_t n, size_t *at,
                               head *h) {
    static const char *const names[] = {"name", "tool_name", NULL};
    static const char *const arguments[] = {"arguments", "parameters", NULL};
    static const char *const ids[] = {"id", "tool_call_id", NULL};
    range key, value;
    bool is_bad;
    if (*at < n && s[*at] != '"') return HEAD_NO;
    if (*at == n || !value_at(s, *at, n, &key, &is_bad)) return HEAD_MORE;
    if (is_bad) return HEAD_NO;
    size_t i = space_end(s, key.end, n);
    if (i < n && s[i] != ':') return HEAD_NO;
    i = i < n ? space_end(s, i + 1, n) : n;
    if (i == n) return HEAD_MORE;
    const bool is_arguments = is_one_of(s, key, f->arguments_key, arguments);
    if (is_arguments) h->begin = i;
    if (is_arguments && h->name.end) return HEAD_YES;
    if (key_is(s, key, "function") && s[i] == '{') {
        *at = i + 1;
        return HEAD_YES;
    }
    if (!value_at(s, i, n, &value, &is_bad)) return HEAD_MORE;
    if (is_bad) return HEAD_NO;
    if (is_arguments) h->arguments = value;
    else if (s[i] == '"' && is_one_of(s, key, f->name_key, names)) h->name = value;
    else if (s[i] == '"' && is_one_of(s, key, NULL, ids)) h->id = value;
    *at = value.end;
    return HEAD_YES;
}

/* Reads the head of the object at s[0]. HEAD_YES: the name is known, and h->begin is where the
 * arguments begin, or 0 if there are none. */
static head_result read_head(const ag_call_format *f, const char *s, size_t n, head *h) {
    *h = (head){0};
    for (size_t at = 1;;) {
        at = space_end(s, at, n);
        if (at == n) return HEAD_MORE;
        if (s[at] == '}') return h->name.end ? HEAD_YES : HEAD_NO;
        const head_result r = read_member(f, s, n, &at, h);
        if (r != HEAD_YES) return r;
        if (h->begin && h->name.end) return HEAD_YES;
        at = space_end(s, at, n);
        if (at < n && s[at] == ',') at++;
    }
}

static json_t *string_at(const char *s, range r) {
    json_t *v =
        r.end ? json_loadb(s + r.begin, r.end - r.begin, JSON_DECODE_ANY, NULL) : json_string("");
    if (json_is_string(v)) return v;
    json_decref(v);
    return NULL;
}

/* Adds the call if it has a name, and, without a delimiter before it, if the tool exists. */
static ag_status begin_call(ag_chat_parser *p, const char *s, const head *h, bool *is_call,
                            ag_error *err) {
    json_t *name = string_at(s, h->name), *id = string_at(s, h->id);
    const size_t n = name ? json_string_length(name) : 0;
    const bool is_known = n && ag_parser_has_tool(p, json_string_value(name), n);
    ag_status st = AG_OK;
    *is_call = id && n && (is_known || !p->is_bare);
    if (*is_call) {
        st = ag_parser_begin_call(p, json_string_value(name), n, json_string_value(id),
                                  json_string_length(id), err);
    }
    json_decref(name);
    json_decref(id);
    return st;
}

/* ---- arguments ---- */

/* State: after the arguments, to the end of the object. */
static ag_status json_tail(ag_chat_parser *p, bool *again, ag_error *err) {
    (void)err;
    size_t n;
    const char *s = ag_parser_unread(p, &n);
    for (size_t i = 0; i < n; i++) {
        const ag_json_scan_result r = ag_json_scan_byte(&p->scan, s[i]);
        if (r == AG_JSON_SCAN_MORE) continue;
        ag_parser_consume(p, i + (r == AG_JSON_SCAN_END));
        ag_parser_end_call(p, true);
        *again = true;
        return AG_OK;
    }
    ag_parser_decide(p, n);
    *again = p->is_final;
    if (p->is_final) ag_parser_end_call(p, true);
    return AG_OK;
}

/* State: arguments that are an object. Emits them as they arrive. */
static ag_status json_arguments(ag_chat_parser *p, bool *again, ag_error *err) {
    size_t n, i = 0;
    const char *s = ag_parser_unread(p, &n);
    ag_json_scan_result r = AG_JSON_SCAN_MORE;
    bool is_done = false;
    while (i < n && !is_done && r == AG_JSON_SCAN_MORE) {
        const bool is_space = ag_is_json_space(s[i]);
        r = ag_json_scan_byte(&p->scan, s[i]);
        if (r == AG_JSON_SCAN_BAD) break;
        i++;
        is_done =
            !is_space && p->scan.depth == p->args_depth && (s[i - 1] == '}' || s[i - 1] == ']');
    }
    AG_TRY(ag_parser_emit_arguments(p, s, i, err));
    ag_parser_decide(p, i);
    *again = is_done || r != AG_JSON_SCAN_MORE || p->is_final;
    if (r == AG_JSON_SCAN_END) ag_parser_end_call(p, true);
    else if (is_done) p->state = json_tail;
    else if (*again) ag_parser_end_call(p, false);
    return AG_OK;
}

/* State: arguments that are a string with JSON, or another value. Emits them when they are
 * complete. */
static ag_status buffered_arguments(ag_chat_parser *p, bool *again, ag_error *err) {
    size_t n;
    const char *s = ag_parser_unread(p, &n);
    range value = {0};
    bool is_bad = false;
    const bool has_ended = value_end(&p->value, s, p->scanned, n, &value.end, &is_bad);
    p->scanned = n;
    if (!has_ended && !p->is_final) return AG_OK;
    *again = true;
    if (value.end == 0 || is_bad) {
        ag_parser_end_call(p, false);
        return AG_OK;
    }
    json_t *text = string_at(s, value);
    json_t *object = text ? json_loads(json_string_value(text), 0, NULL) : NULL;
    ag_status st;
    if (object)
        st = ag_parser_emit_arguments(p, json_string_value(text), json_string_length(text), err);
    else if (s[0] == 'n') st = ag_parser_emit_arguments(p, "{}", 2, err);
    else st = ag_parser_emit_arguments(p, s, value.end, err);
    json_decref(text);
    json_decref(object);
    AG_TRY(st);
    for (size_t i = 0; i < value.end; i++) (void)ag_json_scan_byte(&p->scan, s[i]);
    ag_parser_decide(p, value.end);
    p->state = json_tail;
    return AG_OK;
}

/* Scans the object up to its arguments, consumes this, and sets the state for them. */
static ag_status start_arguments(ag_chat_parser *p, const head *h, ag_error *err) {
    const char *s = p->pending.data + p->at;
    p->scan = (ag_json_scan){0};
    for (size_t i = 0; i < h->begin; i++) (void)ag_json_scan_byte(&p->scan, s[i]);
    p->args_depth = p->scan.depth;
    const char first = h->begin ? s[h->begin] : '\0';
    ag_parser_decide(p, h->begin);
    p->value = (ag_json_scan){0};
    p->scanned = 0;
    if (h->begin == 0) {
        p->state = json_tail;
        return ag_parser_emit_arguments(p, "{}", 2, err);
    }
    p->state = first == '{' || first == '[' ? json_arguments : buffered_arguments;
    return AG_OK;
}

ag_status ag_parse_json_call(ag_chat_parser *p, bool *again, ag_error *err) {
    size_t n;
    const char *s = ag_parser_unread(p, &n);
    const size_t space = space_end(s, 0, n);
    ag_parser_consume(p, space);
    s += space;
    n -= space;
    if (n == 0 && !p->is_final) return AG_OK;
    if (n > MAX_HEAD) n = MAX_HEAD;
    head h = {0};
    const head_result r = n && s[0] == '{' ? read_head(p->params.format, s, n, &h) : HEAD_NO;
    if (r == HEAD_MORE && !p->is_final && n < MAX_HEAD) return AG_OK;
    bool is_call = r == HEAD_YES;
    *again = true;
    if (is_call) AG_TRY(begin_call(p, s, &h, &is_call, err));
    return is_call ? start_arguments(p, &h, err) : ag_parser_reject_call(p, err);
}

/* ---- a name, then an object ---- */

/* Returns the length of ":0" at the start of s[0..n), 0 if it has none. */
static size_t index_len(const char *s, size_t n) {
    size_t i = n && s[0] == ':';
    while (i && i < n && s[i] >= '0' && s[i] <= '9') i++;
    return i;
}

typedef struct named {
    size_t name, end; /* lengths of the name, and of all text before the arguments */
    range id;
} named;

/* Matches NAME [:0] [id_open ID] name_end. */
static ag_match read_name(const ag_call_format *f, const char *s, size_t n, named *out) {
    size_t len;
    out->name = ag_call_name_len(s, n);
    size_t at = out->name + index_len(s + out->name, n - out->name);
    if (at == n) return AG_MATCH_PARTIAL;
    if (f->id_is_name) out->id = (range){0, at};
    if (f->id_open) {
        const ag_match m = ag_match_delimiter(f->id_open, s + at, n - at, &len);
        if (m == AG_MATCH_PARTIAL) return m;
        if (m == AG_MATCH_YES) {
            out->id.begin = at + len;
            at += len + ag_call_name_len(s + at + len, n - at - len);
            out->id.end = at;
        }
    }
    const ag_match m = ag_match_delimiter(f->name_end, s + at, n - at, &len);
    out->end = at + len;
    return m;
}

ag_status ag_parse_named_call(ag_chat_parser *p, bool *again, ag_error *err) {
    const ag_call_format *f = p->params.format;
    size_t n;
    const char *s = ag_parser_unread(p, &n);
    const size_t space = space_end(s, 0, n);
    ag_parser_consume(p, space);
    s += space;
    n = n - space < MAX_HEAD ? n - space : MAX_HEAD;
    named part = {0};
    ag_match m = read_name(f, s, n, &part);
    const size_t begin = m == AG_MATCH_YES ? space_end(s, part.end, n) : n;
    if (m != AG_MATCH_NO && begin == n && !p->is_final && n < MAX_HEAD) return AG_OK;
    size_t closing;
    const ag_match close = begin < n && s[begin] != '{' && f->call_close[0]
                               ? ag_match_delimiter(f->call_close, s + begin, n - begin, &closing)
                               : AG_MATCH_NO;
    if (close == AG_MATCH_PARTIAL && !p->is_final) return AG_OK;
    const bool is_empty = close == AG_MATCH_YES;
    *again = true;
    if (m != AG_MATCH_YES || begin == n || part.name == 0) return ag_parser_reject_call(p, err);
    if (s[begin] != '{' && !is_empty) return ag_parser_reject_call(p, err);
    char id[160];
    size_t n_id = part.id.end - part.id.begin;
    if (n_id > 120) n_id = 0;
    const size_t prefix = f->id_is_name && n_id ? 10 : 0;
    memcpy(id, "functions.", prefix);
    memcpy(id + prefix, s + part.id.begin, n_id);
    AG_TRY(ag_parser_begin_call(p, s, part.name, id, prefix + n_id, err));
    ag_parser_decide(p, begin);
    p->scan = (ag_json_scan){0};
    p->args_depth = 0;
    p->state = json_arguments;
    if (!is_empty) return AG_OK;
    ag_parser_end_call(p, true);
    return ag_parser_emit_arguments(p, "{}", 2, err);
}
