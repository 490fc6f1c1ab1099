/* SPDX-License-Identifier: Apache-2.0 */
/* The mini-language of format() and of '{:>8.2f}'. */
#include "chat/jinja_format.h"

#include "chat/jinja_number.h"
#include "chat/jinja_ops.h"
#include "chat/jinja_string.h"
#include "text/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_WIDTH = 1000000, MAX_PRECISION = 300 };

static bool is_align(char c) { return c && strchr("<>=^", c); }

static bool parse_number(ag_jctx *c, const ag_jstr *s, size_t *at, int64_t *out) {
    int64_t n = -1;
    while (*at < s->len && s->text[*at] >= '0' && s->text[*at] <= '9') {
        n = (n < 0 ? 0 : n) * 10 + (s->text[(*at)++] - '0');
        if (n > MAX_WIDTH) {
            ag_jfail_as(c, AG_LIMIT, "a format of more than %d characters", MAX_WIDTH);
            return false;
        }
    }
    *out = n;
    return true;
}

bool ag_jformat_parse(ag_jctx *c, const ag_jstr *s, ag_jformat_spec *out) {
    *out = (ag_jformat_spec){.width = -1, .precision = -1};
    size_t at = 0;
    size_t n = s->len ? ag_utf8_len(s->text[0]) : 0;
    if (n && n < s->len && is_align(s->text[n])) {
        ag_utf8_get(s->text, &out->fill);
        out->align = s->text[n];
        at = n + 1;
    } else if (n && is_align(s->text[0])) {
        out->align = s->text[0];
        at = 1;
    }
    if (at < s->len && strchr("+- ", s->text[at])) out->sign = s->text[at++];
    if (at < s->len && s->text[at] == '#') out->alternate = true, at++;
    if (at < s->len && s->text[at] == '0') out->zero = true, at++;
    if (!parse_number(c, s, &at, &out->width)) return false;
    if (at < s->len && (s->text[at] == ',' || s->text[at] == '_')) out->grouping = s->text[at++];
    if (at < s->len && s->text[at] == '.') {
        at++;
        if (!parse_number(c, s, &at, &out->precision)) return false;
        if (out->precision < 0) return ag_jfail(c, "Format specifier missing precision"), false;
    }
    if (at < s->len) out->type = s->text[at++];
    if (at < s->len) return ag_jfail(c, "Invalid format specifier"), false;
    return true;
}

static bool append_fill(ag_jctx *c, ag_jbuf *b, uint32_t fill, size_t n) {
    char utf8[4];
    ag_jstr one = {.text = utf8, .len = ag_utf8_put(utf8, fill)};
    return ag_jbuf_append_repeated(c, b, &one, n);
}

bool ag_jappend_padded(ag_jctx *c, ag_jbuf *b, ag_jstr *s, const ag_jformat_spec *spec,
                       char default_align, size_t n_sign) {
    char align = spec->align                          ? spec->align
                 : spec->zero && default_align == '>' ? '='
                                                      : default_align;
    uint32_t fill = spec->fill ? spec->fill : spec->zero ? '0' : ' ';
    size_t len = ag_jstr_chars(s), width = spec->width > 0 ? (size_t)spec->width : 0;
    size_t pad = width > len ? width - len : 0;
    size_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0;
    size_t inside = align == '=' ? pad : 0;
    return append_fill(c, b, fill, left) && ag_jbuf_append_slice(c, b, s, 0, n_sign) &&
           append_fill(c, b, fill, inside) && ag_jbuf_append_slice(c, b, s, n_sign, s->len) &&
           append_fill(c, b, fill, pad - left - inside);
}

/* Digits with a separator in every third (or fourth) place, counted from the right. */
static size_t grouped(const char *digits, size_t n, char separator, size_t every, char *out) {
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        if (i && (n - i) % every == 0) out[len++] = separator;
        out[len++] = digits[i];
    }
    return len;
}

/* Width counts for the groups of zeros too: 000,001. */
static size_t zeros_before(size_t digits, size_t others, int64_t width, size_t every, bool groups) {
    size_t n = digits;
    while (n + (groups ? (n - 1) / every : 0) + others < (size_t)(width > 0 ? width : 0)) n++;
    return n - digits;
}

enum { NUMBER_BYTES = 2048 };

/* sign, prefix, whole digits (grouped), rest */
static bool append_parts(ag_jctx *c, ag_jbuf *b, const ag_jformat_spec *spec, bool negative,
                         const char *prefix, const char *whole, size_t n_whole, const char *rest) {
    char text[NUMBER_BYTES], padded[NUMBER_BYTES];
    size_t len = 0,
           every = spec->grouping == '_' && spec->type && strchr("bxXo", spec->type) ? 4 : 3;
    if (negative) text[len++] = '-';
    else if (spec->sign == '+' || spec->sign == ' ') text[len++] = spec->sign;
    len += (size_t)snprintf(text + len, sizeof text - len, "%s", prefix);
    size_t n_sign = len, zeros = 0;
    bool fills = spec->grouping && (spec->zero || (spec->align == '=' && spec->fill == '0'));
    if (fills && (!spec->align || spec->align == '=')) {
        zeros = zeros_before(n_whole, len + strlen(rest), spec->width, every, true);
    }
    if (zeros + n_whole > 1000)
        return ag_jfail_as(c, AG_LIMIT, "a number of too many digits"), false;
    memset(padded, '0', zeros);
    memcpy(padded + zeros, whole, n_whole);
    if (spec->grouping) {
        len += grouped(padded, zeros + n_whole, spec->grouping, every, text + len);
    } else {
        memcpy(text + len, padded, zeros + n_whole);
        len += zeros + n_whole;
    }
    size_t n_rest = strlen(rest);
    if (len + n_rest > sizeof text)
        return ag_jfail_as(c, AG_LIMIT, "a number of too many digits"), false;
    memcpy(text + len, rest, n_rest);
    ag_jstr s = {.text = text, .len = len + n_rest, .n_chars = len + n_rest};
    return ag_jappend_padded(c, b, &s, spec, '>', n_sign);
}

static bool bad_type(ag_jctx *c, const ag_jformat_spec *spec, ag_jv v) {
    ag_jfail(c, "Unknown format code '%c' for object of type '%s'", spec->type, ag_jtype_name(v));
    return false;
}

static bool append_char_code(ag_jctx *c, ag_jbuf *b, int64_t cp, const ag_jformat_spec *spec) {
    if (cp < 0 || cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)) {
        ag_jfail(c, "a character code must be in range(0x110000)");
        return false;
    }
    char utf8[4];
    ag_jstr s = {.text = utf8, .len = ag_utf8_put(utf8, (uint32_t)cp), .n_chars = 1};
    return ag_jappend_padded(c, b, &s, spec, '<', 0);
}

static bool append_integer(ag_jctx *c, ag_jbuf *b, int64_t i, const ag_jformat_spec *spec) {
    char digits[70];
    size_t n = sizeof digits;
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    unsigned base = spec->type == 'b'            ? 2
                    : spec->type == 'o'          ? 8
                    : (spec->type | 0x20) == 'x' ? 16
                                                 : 10;
    const char *symbols = spec->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    do digits[--n] = symbols[u % base];
    while (u /= base);
    char prefix[3] = {'0', base == 10 ? 0 : spec->type, 0};
    return append_parts(c, b, spec, i < 0, spec->alternate && base != 10 ? prefix : "", digits + n,
                        sizeof digits - n, "");
}

static void upper_case(char *s) {
    for (; *s; s++) {
        if (*s >= 'a' && *s <= 'z') *s = (char)(*s - 32);
    }
}

/* Without a type: as repr, but %g where a precision is given, at least one digit behind the point.
 */
static size_t general_text(double d, const ag_jformat_spec *spec, char *text, size_t cap) {
    if (spec->precision < 0) return ag_jfloat_repr(d, text);
    int precision = spec->precision ? (int)spec->precision : 1;
    int n = ag_jformat_double(text, cap, 'g', spec->alternate, precision, d);
    if (!strpbrk(text, ".en")) {
        size_t digits = (size_t)n - (text[0] == '-');
        if (digits >= (size_t)precision) { /* no room for a digit behind the point */
            n = ag_jformat_double(text, cap, 'e', false, precision - 1, d);
            char *e = strchr(text, 'e');
            char *end = e;
            while (end && strchr(text, '.') && end[-1] == '0') end--;
            if (end && end[-1] == '.') end--;
            if (end) memmove(end, e, strlen(e) + 1);
        } else {
            n += snprintf(text + n, cap - (size_t)n, ".0");
        }
    }
    return strlen(text);
}

static bool append_float(ag_jctx *c, ag_jbuf *b, double d, const ag_jformat_spec *spec) {
    char text[NUMBER_BYTES / 2];
    char type = spec->type;
    double value = type == '%' ? d * 100 : d;
    if (spec->precision > MAX_PRECISION)
        return ag_jfail_as(c, AG_LIMIT, "a precision of more than %d", MAX_PRECISION), false;
    bool negative = signbit(value) && !isnan(value);
    value = fabs(value);
    if (isnan(value) || isinf(value)) {
        snprintf(text, sizeof text, "%s", isnan(value) ? "nan" : "inf");
    } else if (type == 0) {
        general_text(value, spec, text, sizeof text);
    } else {
        char conversion = type == '%' || type == 'F' ? 'f'
                          : type == 'n'              ? 'g'
                                                     : (char)(type | 0x20);
        int precision = spec->precision < 0 ? 6 : (int)spec->precision;
        if (conversion == 'g' && precision == 0) precision = 1;
        ag_jformat_double(text, sizeof text, conversion, spec->alternate, precision, value);
    }
    if (type == '%') strcat(text, "%");
    if (type == 'E' || type == 'F' || type == 'G') upper_case(text);
    size_t n_whole = strspn(text, "0123456789");
    char rest[NUMBER_BYTES / 2];
    strcpy(rest, text + n_whole);
    return append_parts(c, b, spec, negative, "", text, n_whole, rest);
}

static bool append_text(ag_jctx *c, ag_jbuf *b, ag_jstr *s, const ag_jformat_spec *spec) {
    if ((spec->type && spec->type != 's') || spec->sign || spec->alternate || spec->grouping ||
        spec->align == '=') {
        return bad_type(c, spec, ag_jstring(s));
    }
    if (spec->precision >= 0 && (size_t)spec->precision < ag_jstr_chars(s)) {
        s = ag_jstr_slice(c, s, 0, ag_jstr_offset(s, (size_t)spec->precision));
    }
    return s && ag_jappend_padded(c, b, s, spec, '<', 0);
}

static bool is_plain(const ag_jformat_spec *spec) {
    return !spec->type && !spec->align && !spec->sign && !spec->alternate && !spec->zero &&
           !spec->grouping && spec->width < 0 && spec->precision < 0;
}

bool ag_jappend_format(ag_jctx *c, ag_jbuf *b, ag_jv v, const ag_jformat_spec *spec) {
    if (is_plain(spec)) return ag_jappend_str(c, b, v);
    if (v.kind == AG_JSTRING) return append_text(c, b, v.as.string, spec);
    if (!ag_jis_number(v)) {
        ag_jfail(c, "unsupported format string passed to %s.__format__", ag_jtype_name(v));
        return false;
    }
    bool integer_type = !spec->type || strchr("bcdoxXn", spec->type);
    if (spec->type && strchr("eEfFgG%", spec->type)) {
        return append_float(c, b, ag_jnumber(v), spec);
    }
    if (v.kind == AG_JFLOAT) {
        if (spec->type && spec->type != 'n') return bad_type(c, spec, v);
        return append_float(c, b, v.as.number, spec);
    }
    if (!integer_type) return bad_type(c, spec, v);
    if (spec->precision >= 0)
        return ag_jfail(c, "Precision not allowed in integer format specifier"), false;
    if (spec->type == 'c') {
        if (spec->sign || spec->grouping) return bad_type(c, spec, v);
        return append_char_code(c, b, ag_jinteger(v), spec);
    }
    return append_integer(c, b, ag_jinteger(v), spec);
}
