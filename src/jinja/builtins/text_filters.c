/* SPDX-License-Identifier: Apache-2.0 */
/* Filters of text. */
#include "jinja/builtins/arguments.h"
#include "jinja/builtins/filters.h"
#include "jinja/builtins/methods.h"
#include "jinja/value/list.h"
#include "jinja/value/ops.h"
#include "jinja/value/string.h"
#include "jinja/value/unicode.h"
#include "text/utf8.h"

#include <string.h>

/* Applies a method of str to soft_str(v). */
static ag_jv by_method(ag_jctx *c, ag_jv v, ag_jmethod_fn *method) {
    const ag_jv none[AG_JMAX_PARAMS] = {{.kind = AG_JFAIL}};
    ag_jstr *s = ag_jsoft_str(c, v);
    return s ? method(c, ag_jstring(s), none) : ag_jfail_value();
}

ag_jv ag_jfilter_upper(ag_jctx *c, ag_jv v, const ag_jv *a) {
    (void)a;
    return by_method(c, v, ag_jstr_upper);
}
ag_jv ag_jfilter_lower(ag_jctx *c, ag_jv v, const ag_jv *a) {
    (void)a;
    return by_method(c, v, ag_jstr_lower);
}
ag_jv ag_jfilter_capitalize(ag_jctx *c, ag_jv v, const ag_jv *a) {
    (void)a;
    return by_method(c, v, ag_jstr_capitalize);
}

ag_jv ag_jfilter_trim(ag_jctx *c, ag_jv v, const ag_jv *a) {
    ag_jstr *s = ag_jsoft_str(c, v);
    return s ? ag_jstr_strip(c, ag_jstring(s), a) : ag_jfail_value();
}

ag_jv ag_jfilter_replace(ag_jctx *c, ag_jv v, const ag_jv *a) {
    ag_jstr *s = ag_jstr_of(c, v), *from = s ? ag_jstr_of(c, a[0]) : NULL;
    ag_jstr *to = from ? ag_jstr_of(c, a[1]) : NULL;
    int64_t limit;
    ag_jv count = a[2].kind == AG_JNONE ? ag_jfail_value() : a[2];
    if (!to || !ag_jargument_int(c, count, -1, &limit)) return ag_jfail_value();
    return ag_jstring(ag_jstr_replaced(c, s, from, to, limit));
}

static bool starts_word(const ag_jstr *s, size_t at) {
    if (at == 0) return true;
    uint32_t cp;
    ag_utf8_get(s->text + ag_utf8_last(s->text, at), &cp);
    return ag_jchar_is_space(cp) || (cp < 0x80 && strchr("-({[<", (int)cp) && cp);
}

/* Writes upper case after spaces, hyphens and opening brackets, lower case elsewhere. */
ag_jv ag_jfilter_title(ag_jctx *c, ag_jv v, const ag_jv *a) {
    (void)a;
    ag_jstr *s = ag_jsoft_str(c, v);
    ag_jbuf *b = s ? ag_jbuf_create(c) : NULL;
    if (!b) return ag_jfail_value();
    for (size_t at = 0; at < s->len;) {
        size_t end = at + ag_utf8_len(s->text[at]);
        const bool upper = starts_word(s, at);
        if (!upper) {
            while (end < s->len && !starts_word(s, end)) end += ag_utf8_len(s->text[end]);
        }
        ag_jstr *part = ag_jstr_slice(c, s, at, end);
        part = part ? ag_jstr_with_case(c, part, upper) : NULL;
        if (!part || !ag_jbuf_append(c, b, part)) return ag_jfail_value();
        at = end;
    }
    return ag_jbuf_value(c, b);
}

/* Finds the end of the line that starts at `begin` and the start of the next one, as if a newline
 * followed s. Returns false if there is no next line. */
static bool next_line(const ag_jstr *s, size_t begin, size_t *end, size_t *next) {
    for (size_t at = begin; at < s->len;) {
        uint32_t cp;
        const size_t n = ag_utf8_get(s->text + at, &cp);
        *end = at;
        *next = at + n;
        if (ag_jchar_is_line_end(cp)) {
            if (cp == '\r' && *next == s->len) return false;
            if (cp == '\r' && s->text[*next] == '\n') ++*next;
            return true;
        }
        at += n;
    }
    *end = s->len;
    return false;
}

ag_jv ag_jfilter_indent(ag_jctx *c, ag_jv v, const ag_jv *a) {
    ag_jstr newline = {.text = "\n", .len = 1, .n_chars = 1};
    ag_jstr spaces = {.text = " ", .len = 1, .n_chars = 1};
    if (v.kind == AG_JUNDEFINED) return ag_jfail_undefined(c, v);
    if (v.kind != AG_JSTRING)
        return ag_jfail(c, "indent needs a string, not '%s'", ag_jtype_name(v));
    ag_jbuf *indent = ag_jbuf_create(c);
    int64_t width;
    if (!indent) return ag_jfail_value();
    if (a[0].kind == AG_JSTRING) {
        if (!ag_jbuf_append(c, indent, a[0].as.string)) return ag_jfail_value();
    } else if (!ag_jargument_int(c, a[0], 4, &width) ||
               !ag_jbuf_append_repeated(c, indent, &spaces, width > 0 ? (size_t)width : 0)) {
        return ag_jfail_value();
    }
    const ag_jstr *s = v.as.string, *by = ag_jbuf_string(c, indent);
    ag_jbuf *b = by ? ag_jbuf_create(c) : NULL;
    bool ok = b && (!ag_jtruth(a[1]) || ag_jbuf_append(c, b, by)), more = true;
    for (size_t begin = 0, end, next = 0; ok && more; begin = next) {
        more = next_line(s, begin, &end, &next);
        if (begin) ok = ag_jbuf_append(c, b, &newline);
        if (ok && begin && (end > begin || ag_jtruth(a[2]))) ok = ag_jbuf_append(c, b, by);
        ok = ok && ag_jwork(c, 1) && ag_jbuf_append_slice(c, b, s, begin, end);
    }
    ag_jstr *r = ok ? ag_jbuf_string(c, b) : NULL;
    return ag_jstring(r ? ag_jstr_as_markup(c, r, v.as.string->markup) : NULL);
}

ag_jv ag_jfilter_truncate(ag_jctx *c, ag_jv v, const ag_jv *a) {
    int64_t length, leeway;
    ag_jstr dots = {.text = "...", .len = 3, .n_chars = 3}, space = {.text = " ", .len = 1};
    ag_jv given_leeway = a[3].kind == AG_JNONE ? ag_jfail_value() : a[3];
    if (!ag_jargument_int(c, a[0], 255, &length) ||
        !ag_jargument_int(c, given_leeway, 5, &leeway)) {
        return ag_jfail_value();
    }
    if (!ag_jfailed(a[2]) && a[2].kind != AG_JSTRING)
        return ag_jfail(c, "truncate: end must be a string");
    ag_jstr *end = ag_jfailed(a[2]) ? &dots : a[2].as.string;
    int64_t n_end = (int64_t)ag_jstr_chars(end);
    if (length < n_end || leeway < 0) return ag_jfail(c, "truncate: length or leeway is too small");
    int64_t n = ag_jlength(v);
    if (n >= 0 && n <= length + leeway) return v;
    if (v.kind != AG_JSTRING) {
        return ag_jfail(c, "truncate needs a string, not '%s'", ag_jtype_name(v));
    }
    ag_jstr *s = v.as.string;
    ag_jstr *head = ag_jstr_slice(c, s, 0, ag_jstr_offset(s, (size_t)(length - n_end)));
    if (!head) return ag_jfail_value();
    if (!ag_jtruth(a[1])) {
        int64_t at = ag_jstr_rfind(c, head, 0, head->len, &space);
        if (at != AG_JNOT_FOUND) head = ag_jstr_slice(c, head, 0, (size_t)at);
    }
    return head && c->status == AG_OK ? ag_jstring(ag_jstr_concat(c, head, end)) : ag_jfail_value();
}

ag_jv ag_jfilter_wordcount(ag_jctx *c, ag_jv v, const ag_jv *a) {
    (void)a;
    const ag_jstr *s = ag_jsoft_str(c, v);
    if (!s || !ag_jwork_bytes(c, s->len)) return ag_jfail_value();
    int64_t n = 0;
    bool in_word = false;
    for (size_t at = 0; at < s->len;) {
        uint32_t cp;
        at += ag_utf8_get(s->text + at, &cp);
        bool word = ag_jchar_is_word(cp);
        n += word && !in_word;
        in_word = word;
    }
    return ag_jint(n);
}
