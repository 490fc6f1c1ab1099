/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/parse/literal.h"

#include "chat/json_scan.h"
#include "chat/json_text.h"
#include "core/hex.h"
#include "text/bytes.h"

#include <stdio.h>
#include <string.h>

enum { MAX_DEPTH = 60 };

typedef struct reader {
    const char *s;
    size_t at, n, depth;
    const char *quote; /* before and after strings; NULL: as in Python */
    ag_text *out;
    ag_error *err;
    ag_status status; /* AG_OK or AG_NOMEM */
} reader;

static bool read_value(reader *r);

/* Sets the status; returns whether it is AG_OK. All callers return after a failure. */
static bool set_status(reader *r, ag_status status) {
    r->status = status;
    return status == AG_OK;
}

static bool emit(reader *r, const char *s, size_t n) {
    return set_status(r, ag_text_append(r->out, s, n, r->err));
}

static void skip_space(reader *r) {
    while (r->at < r->n && ag_is_json_space(r->s[r->at])) r->at++;
}

static bool next_is(reader *r, char c) {
    skip_space(r);
    if (r->at == r->n || r->s[r->at] != c) return false;
    r->at++;
    return true;
}

static int hex_of(const reader *r, size_t digits) {
    int v = 0;
    if (digits > r->n - r->at) return -1;
    for (size_t i = 0; i < digits; i++) {
        const int digit = ag_hex_digit(r->s[r->at + i]);
        if (digit < 0) return -1;
        v = v * 16 + digit;
    }
    return v;
}

/* Reads the digits of \x or \u. A surrogate without its other half becomes U+FFFD, as JSON has no
 * such character. */
static bool read_code(reader *r, size_t digits) {
    char escape[16];
    int v = hex_of(r, digits), low = 0;
    if (v < 0) return false;
    r->at += digits;
    if ((v & 0xfc00) == 0xd800 && r->n - r->at > 2 && !memcmp(r->s + r->at, "\\u", 2)) {
        r->at += 2;
        low = hex_of(r, 4);
        if ((low & 0xfc00) != 0xdc00) low = 0;
        if (low) r->at += 4;
        else r->at -= 2;
    }
    if (!low && (v & 0xf800) == 0xd800) v = 0xfffd;
    const int n = snprintf(escape, sizeof escape, "\\u%04x", (unsigned)v & 0xffffu);
    if (low) snprintf(escape + n, sizeof escape - (size_t)n, "\\u%04x", (unsigned)low & 0xffffu);
    return emit(r, escape, strlen(escape));
}

/* Reads an escape after its backslash. */
static bool read_escape(reader *r) {
    static const char from[] = "nrtbf0\\'\"av/", to[] = "\n\r\t\b\f\0\\'\"\a\v/";
    const char c = r->s[r->at++];
    if (c == '\n') return true;
    if (c == 'x' || c == 'u') return read_code(r, c == 'x' ? 2 : 4);
    const char *at = memchr(from, c, sizeof from - 1);
    /* An unknown escape stays as it is, with its backslash. */
    return set_status(r, at ? ag_json_text_escape(&to[at - from], 1, r->out, r->err)
                            : ag_json_text_escape(&r->s[r->at - 2], 2, r->out, r->err));
}

static bool read_python_string(reader *r) {
    const char quote = r->s[r->at++];
    if (!emit(r, "\"", 1)) return false;
    while (r->at < r->n && r->s[r->at] != quote) {
        if (r->s[r->at] == '\\' && r->at + 1 < r->n) {
            r->at++;
            if (!read_escape(r)) return false;
            continue;
        }
        if (!set_status(r, ag_json_text_escape(&r->s[r->at++], 1, r->out, r->err))) return false;
    }
    return r->at++ < r->n && emit(r, "\"", 1);
}

static bool read_delimited_string(reader *r) {
    const size_t len = strlen(r->quote);
    const char *begin = r->s + r->at + len,
               *end = ag_find_bytes(begin, r->n - r->at - len, r->quote);
    if (!end) return false;
    r->at = (size_t)(end - r->s) + len;
    return set_status(r, ag_json_text_quote(begin, (size_t)(end - begin), r->out, r->err));
}

static bool begins_string(const reader *r) {
    if (!r->quote) return r->s[r->at] == '\'' || r->s[r->at] == '"';
    const size_t len = strlen(r->quote);
    return len <= r->n - r->at && !memcmp(r->s + r->at, r->quote, len);
}

static bool read_string(reader *r) {
    return r->quote ? read_delimited_string(r) : read_python_string(r);
}

static bool read_key(reader *r) {
    skip_space(r);
    if (r->at == r->n) return false;
    if (begins_string(r)) return read_string(r);
    const size_t begin = r->at;
    while (r->at < r->n && r->s[r->at] != ':') r->at++;
    size_t end = r->at;
    while (end > begin && ag_is_json_space(r->s[end - 1])) end--;
    if (!r->quote || end == begin) return false;
    return set_status(r, ag_json_text_quote(r->s + begin, end - begin, r->out, r->err));
}

static bool read_list(reader *r, char close, bool is_object) {
    r->at++;
    if (++r->depth > MAX_DEPTH || !emit(r, is_object ? "{" : "[", 1)) return false;
    for (bool first = true; !next_is(r, close); first = false) {
        if (!first && !next_is(r, ',')) return false;
        if (!first && next_is(r, close)) break;
        if (!first && !emit(r, ", ", 2)) return false;
        if (is_object && !(read_key(r) && next_is(r, ':') && emit(r, ": ", 2))) return false;
        if (!read_value(r)) return false;
    }
    r->depth--;
    return emit(r, is_object ? "}" : "]", 1);
}

static bool read_scalar(reader *r) {
    static const char *const scalars[][2] = {
        {"True", "true"}, {"False", "false"}, {"None", "null"}};
    const char *s = r->s + r->at;
    size_t n = 0;
    while (r->at + n < r->n && !strchr(",]}):\t\n\r ", s[n])) n++;
    r->at += n;
    for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++) {
        if (n == strlen(scalars[i][0]) && !memcmp(s, scalars[i][0], n)) {
            return emit(r, scalars[i][1], strlen(scalars[i][1]));
        }
    }
    return ag_is_json_value(s, n) && emit(r, s, n);
}

static bool read_value(reader *r) {
    skip_space(r);
    if (r->at == r->n) return false;
    const char c = r->s[r->at];
    if (begins_string(r)) return read_string(r);
    if (c == '[') return read_list(r, ']', false);
    if (c == '(') return read_list(r, ')', false);
    if (c == '{') return read_list(r, '}', true);
    return read_scalar(r);
}

static ag_status convert(reader r, bool *ok) {
    const size_t before = r.out->len;
    *ok = read_value(&r);
    skip_space(&r);
    *ok = *ok && r.at == r.n && r.status == AG_OK;
    if (!*ok) r.out->len = before;
    return r.status;
}

ag_status ag_python_to_json(const char *s, size_t n, ag_text *out, bool *ok, ag_error *err) {
    return convert((reader){.s = s, .n = n, .out = out, .err = err}, ok);
}

ag_status ag_braces_to_json(const char *s, size_t n, const char *quote, ag_text *out, bool *ok,
                            ag_error *err) {
    return convert((reader){.s = s, .n = n, .quote = quote, .out = out, .err = err}, ok);
}
