/* SPDX-License-Identifier: Apache-2.0 */
/* str methods about letter case, kinds of characters and width. */
#include "chat/jinja_list.h"
#include "chat/jinja_methods.h"
#include "chat/jinja_ops.h"
#include "chat/jinja_string.h"
#include "chat/jinja_unicode.h"
#include "text/utf8.h"

#include <string.h>

/* Greek capital sigma becomes a final one behind a letter and before none, others skipped. */
static bool is_final_sigma(const ag_jstr *s, size_t at) {
    uint32_t cp = 0;
    size_t i = at;
    bool before = false;
    while (i > 0 && !before) {
        i = ag_utf8_last(s->text, i);
        ag_utf8_get(s->text + i, &cp);
        before = ag_jchar_is_cased(cp);
        if (!before && cp != '\'' && cp != '.' && cp != 0xB7 && cp != 0x301) return false;
    }
    if (!before) return false;
    for (i = at + 2; i < s->len;) {
        i += ag_utf8_get(s->text + i, &cp);
        if (ag_jchar_is_cased(cp)) return false;
        if (cp != '\'' && cp != '.' && cp != 0xB7 && cp != 0x301) return true;
    }
    return true;
}

static bool append_cased(ag_jctx *c, ag_jbuf *b, const ag_jstr *s, size_t at, ag_jcase to,
                         size_t *n) {
    uint32_t cp, out[3];
    *n = ag_utf8_get(s->text + at, &cp);
    size_t count = ag_jchar_case(cp, to, out);
    if (cp == 0x3A3 && to == AG_JCASE_LOWER && is_final_sigma(s, at)) out[0] = 0x3C2;
    bool ours = ag_jstr_is_conversation(s, at);
    for (size_t i = 0; i < count; i++) {
        if (!ag_jbuf_append_char(c, b, out[i], ours)) return false;
    }
    return true;
}

/* ASCII letters keep their place and length: one copy, changed in place. */
static ag_jstr *ascii_cased(ag_jctx *c, ag_jstr *s, ag_jcase to) {
    ag_jbuf *b = ag_jbuf_create(c);
    if (!b || !ag_jbuf_append(c, b, s)) return NULL;
    for (size_t i = 0; i < b->len; i++) {
        char ch = b->text[i];
        if (to == AG_JCASE_UPPER ? ch >= 'a' && ch <= 'z' : ch >= 'A' && ch <= 'Z') {
            b->text[i] = (char)(ch ^ 0x20);
        }
    }
    ag_jstr *r = ag_jbuf_string(c, b);
    return r ? ag_jstr_as_markup(c, r, s->markup) : NULL;
}

ag_jstr *ag_jstr_with_case(ag_jctx *c, ag_jstr *s, int to) {
    if (!ag_jwork_bytes(c, s->len)) return NULL;
    if (ag_jstr_is_ascii(s) && to != AG_JCASE_TITLE) return ascii_cased(c, s, (ag_jcase)to);
    ag_jbuf *b = ag_jbuf_create(c);
    for (size_t at = 0, n; b && at < s->len; at += n) {
        if (!ag_jwork(c, 1) || !append_cased(c, b, s, at, (ag_jcase)to, &n)) return NULL;
    }
    ag_jstr *r = b ? ag_jbuf_string(c, b) : NULL;
    return r ? ag_jstr_as_markup(c, r, s->markup) : NULL;
}

ag_jv ag_jstr_upper(ag_jctx *c, ag_jv self, const ag_jv *a) {
    (void)a;
    return ag_jstring(ag_jstr_with_case(c, self.as.string, AG_JCASE_UPPER));
}
ag_jv ag_jstr_lower(ag_jctx *c, ag_jv self, const ag_jv *a) {
    (void)a;
    return ag_jstring(ag_jstr_with_case(c, self.as.string, AG_JCASE_LOWER));
}
ag_jv ag_jstr_casefold(ag_jctx *c, ag_jv self, const ag_jv *a) {
    (void)a;
    return ag_jstring(ag_jstr_with_case(c, self.as.string, AG_JCASE_FOLD));
}

/* Which case each character gets, told from it and the one before. */
static ag_jv recased(ag_jctx *c, ag_jstr *s,
                     ag_jcase (*choose)(uint32_t cp, size_t at, bool after_cased)) {
    ag_jbuf *b = ag_jbuf_create(c);
    bool after_cased = false;
    for (size_t at = 0, n; b && at < s->len; at += n) {
        uint32_t cp;
        ag_utf8_get(s->text + at, &cp);
        if (!ag_jwork(c, 1) || !append_cased(c, b, s, at, choose(cp, at, after_cased), &n)) {
            return ag_jfail_value();
        }
        after_cased = ag_jchar_is_cased(cp);
    }
    ag_jstr *r = b ? ag_jbuf_string(c, b) : NULL;
    return ag_jstring(r ? ag_jstr_as_markup(c, r, s->markup) : NULL);
}

static ag_jcase first_title(uint32_t cp, size_t at, bool after_cased) {
    (void)cp;
    (void)after_cased;
    return at == 0 ? AG_JCASE_TITLE : AG_JCASE_LOWER;
}
static ag_jcase words_title(uint32_t cp, size_t at, bool after_cased) {
    (void)cp;
    (void)at;
    return after_cased ? AG_JCASE_LOWER : AG_JCASE_TITLE;
}
static ag_jcase swapped(uint32_t cp, size_t at, bool after_cased) {
    (void)at;
    (void)after_cased;
    return ag_jchar_is_upper(cp) ? AG_JCASE_LOWER : AG_JCASE_UPPER;
}

ag_jv ag_jstr_capitalize(ag_jctx *c, ag_jv self, const ag_jv *a) {
    (void)a;
    return recased(c, self.as.string, first_title);
}
ag_jv ag_jstr_title(ag_jctx *c, ag_jv self, const ag_jv *a) {
    (void)a;
    return recased(c, self.as.string, words_title);
}
ag_jv ag_jstr_swapcase(ag_jctx *c, ag_jv self, const ag_jv *a) {
    (void)a;
    return recased(c, self.as.string, swapped);
}

/* Whether there is a character and all are of the kind. */
static ag_jv all_are(ag_jctx *c, ag_jv self, bool (*is)(uint32_t cp)) {
    const ag_jstr *s = self.as.string;
    if (!ag_jwork_bytes(c, s->len)) return ag_jfail_value();
    for (size_t at = 0; at < s->len;) {
        uint32_t cp;
        at += ag_utf8_get(s->text + at, &cp);
        if (!is(cp)) return ag_jbool(false);
    }
    return ag_jbool(s->len > 0);
}

static bool is_alnum(uint32_t cp) { return ag_jchar_is_alpha(cp) || ag_jchar_is_numeric(cp); }

#define ALL_ARE(name, is)                                \
    ag_jv name(ag_jctx *c, ag_jv self, const ag_jv *a) { \
        (void)a;                                         \
        return all_are(c, self, is);                     \
    }
ALL_ARE(ag_jstr_isalnum, is_alnum)
ALL_ARE(ag_jstr_isalpha, ag_jchar_is_alpha)
ALL_ARE(ag_jstr_isdecimal, ag_jchar_is_decimal)
ALL_ARE(ag_jstr_isdigit, ag_jchar_is_digit)
ALL_ARE(ag_jstr_isnumeric, ag_jchar_is_numeric)
ALL_ARE(ag_jstr_isspace, ag_jchar_is_space)

ag_jv ag_jstr_isascii(ag_jctx *c, ag_jv self, const ag_jv *a) {
    (void)c;
    (void)a;
    return ag_jbool(ag_jstr_is_ascii(self.as.string));
}

ag_jv ag_jstr_isprintable(ag_jctx *c, ag_jv self, const ag_jv *a) {
    (void)a;
    return self.as.string->len ? all_are(c, self, ag_jchar_is_printable) : ag_jbool(true);
}

ag_jv ag_jstr_isidentifier(ag_jctx *c, ag_jv self, const ag_jv *a) {
    (void)c;
    (void)a;
    const ag_jstr *s = self.as.string;
    for (size_t at = 0; at < s->len;) {
        uint32_t cp;
        size_t n = ag_utf8_get(s->text + at, &cp);
        if (!ag_jchar_is_identifier(cp, at == 0)) return ag_jbool(false);
        at += n;
    }
    return ag_jbool(s->len > 0);
}

/* islower and isupper: some character has a case, and none has the other. */
static ag_jv cased_alike(ag_jctx *c, const ag_jstr *s, bool (*is)(uint32_t),
                         bool (*other)(uint32_t)) {
    bool any = false;
    if (!ag_jwork_bytes(c, s->len)) return ag_jfail_value();
    for (size_t at = 0; at < s->len;) {
        uint32_t cp;
        at += ag_utf8_get(s->text + at, &cp);
        if (other(cp) || ag_jchar_is_title(cp)) return ag_jbool(false);
        any |= is(cp);
    }
    return ag_jbool(any);
}

ag_jv ag_jstr_islower(ag_jctx *c, ag_jv self, const ag_jv *a) {
    (void)a;
    return cased_alike(c, self.as.string, ag_jchar_is_lower, ag_jchar_is_upper);
}
ag_jv ag_jstr_isupper(ag_jctx *c, ag_jv self, const ag_jv *a) {
    (void)a;
    return cased_alike(c, self.as.string, ag_jchar_is_upper, ag_jchar_is_lower);
}
ag_jv ag_jstr_istitle(ag_jctx *c, ag_jv self, const ag_jv *a) {
    (void)a;
    const ag_jstr *s = self.as.string;
    bool after_cased = false, any = false;
    if (!ag_jwork_bytes(c, s->len)) return ag_jfail_value();
    for (size_t at = 0; at < s->len;) {
        uint32_t cp;
        at += ag_utf8_get(s->text + at, &cp);
        bool upper = ag_jchar_is_upper(cp) || ag_jchar_is_title(cp);
        if (upper ? after_cased : ag_jchar_is_lower(cp) && !after_cased) return ag_jbool(false);
        after_cased = upper || ag_jchar_is_lower(cp);
        any |= after_cased;
    }
    return ag_jbool(any);
}

static ag_jv padded(ag_jctx *c, ag_jstr *s, const ag_jstr *fill, size_t left, size_t right) {
    ag_jbuf *b = ag_jbuf_create(c);
    bool ok = b && ag_jbuf_append_repeated(c, b, fill, left) && ag_jbuf_append(c, b, s) &&
              ag_jbuf_append_repeated(c, b, fill, right);
    ag_jstr *r = ok ? ag_jbuf_string(c, b) : NULL;
    return ag_jstring(r ? ag_jstr_as_markup(c, r, s->markup) : NULL);
}

/* How many characters are missing to the width, and what to fill with. */
static bool padding(ag_jctx *c, ag_jv self, const ag_jv *a, int64_t *missing, ag_jstr **fill) {
    int64_t width;
    static const char space[] = " ";
    if (!ag_jargument_int(c, a[0], 0, &width)) return false;
    *missing = width - (int64_t)ag_jstr_chars(self.as.string);
    if (ag_jfailed(a[1])) {
        *fill = ag_jstr_create(c, space, 1, false);
        return *fill != NULL;
    }
    if (a[1].kind != AG_JSTRING || ag_jstr_chars(a[1].as.string) != 1) {
        ag_jfail(c, "the fill character must be exactly one character long");
        return false;
    }
    *fill = a[1].as.string;
    return true;
}

ag_jv ag_jstr_ljust(ag_jctx *c, ag_jv self, const ag_jv *a) {
    int64_t n;
    ag_jstr *fill;
    if (!padding(c, self, a, &n, &fill)) return ag_jfail_value();
    return n <= 0 ? self : padded(c, self.as.string, fill, 0, (size_t)n);
}
ag_jv ag_jstr_rjust(ag_jctx *c, ag_jv self, const ag_jv *a) {
    int64_t n;
    ag_jstr *fill;
    if (!padding(c, self, a, &n, &fill)) return ag_jfail_value();
    return n <= 0 ? self : padded(c, self.as.string, fill, (size_t)n, 0);
}
/* The odd one goes left if the width is odd. */
ag_jv ag_jstr_center(ag_jctx *c, ag_jv self, const ag_jv *a) {
    int64_t n;
    ag_jstr *fill;
    if (!padding(c, self, a, &n, &fill)) return ag_jfail_value();
    if (n <= 0) return self;
    int64_t width = n + (int64_t)ag_jstr_chars(self.as.string);
    int64_t left = n / 2 + (n & width & 1);
    return padded(c, self.as.string, fill, (size_t)left, (size_t)(n - left));
}

ag_jv ag_jstr_zfill(ag_jctx *c, ag_jv self, const ag_jv *a) {
    int64_t n;
    ag_jstr *s = self.as.string, *fill;
    ag_jv width[2] = {a[0], ag_jfail_value()};
    if (!padding(c, self, width, &n, &fill)) return ag_jfail_value();
    if (n <= 0) return self;
    size_t sign = s->len && (s->text[0] == '-' || s->text[0] == '+');
    ag_jstr zero = {.text = "0", .len = 1, .n_chars = 1};
    ag_jbuf *b = ag_jbuf_create(c);
    bool ok = b && ag_jbuf_append_slice(c, b, s, 0, sign) &&
              ag_jbuf_append_repeated(c, b, &zero, (size_t)n) &&
              ag_jbuf_append_slice(c, b, s, sign, s->len);
    return ok ? ag_jbuf_value(c, b) : ag_jfail_value();
}

ag_jv ag_jstr_expandtabs(ag_jctx *c, ag_jv self, const ag_jv *a) {
    ag_jstr *s = self.as.string;
    int64_t size, column = 0;
    if (!ag_jargument_int(c, a[0], 8, &size)) return ag_jfail_value();
    ag_jbuf *b = ag_jbuf_create(c);
    ag_jstr space = {.text = " ", .len = 1, .n_chars = 1};
    for (size_t at = 0, n; b && at < s->len; at += n) {
        n = ag_utf8_len(s->text[at]);
        bool ok;
        if (s->text[at] == '\t') {
            int64_t spaces = size > 0 ? size - column % size : 0;
            ok = ag_jbuf_append_repeated(c, b, &space, (size_t)spaces);
            column += spaces;
        } else {
            ok = ag_jbuf_append_slice(c, b, s, at, at + n);
            column = s->text[at] == '\n' || s->text[at] == '\r' ? 0 : column + 1;
        }
        if (!ok || !ag_jwork(c, 1)) return ag_jfail_value();
    }
    return b ? ag_jbuf_value(c, b) : ag_jfail_value();
}

static bool append_translated(ag_jctx *c, ag_jbuf *b, ag_jv v) {
    if (v.kind == AG_JNONE) return true;
    if (v.kind == AG_JSTRING) return ag_jbuf_append(c, b, v.as.string);
    int64_t cp = ag_jis_integer(v) ? ag_jinteger(v) : -1;
    if (cp < 0 || cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)) {
        ag_jfail(c, "translate(): a character must become a string, None or a code point");
        return false;
    }
    return ag_jbuf_append_char(c, b, (uint32_t)cp, false);
}

ag_jv ag_jstr_translate(ag_jctx *c, ag_jv self, const ag_jv *a) {
    const ag_jstr *s = self.as.string;
    if (a[0].kind != AG_JDICT) return ag_jfail(c, "translate() needs a dict");
    ag_jbuf *b = ag_jbuf_create(c);
    for (size_t at = 0, n; b && at < s->len; at += n) {
        uint32_t cp;
        n = ag_utf8_get(s->text + at, &cp);
        ag_jv v = ag_jdict_find(c, a[0].as.dict, ag_jint(cp));
        if (c->status != AG_OK || !ag_jwork(c, 1)) return ag_jfail_value();
        bool ok =
            ag_jfailed(v) ? ag_jbuf_append_slice(c, b, s, at, at + n) : append_translated(c, b, v);
        if (!ok) return ag_jfail_value();
    }
    return b ? ag_jbuf_value(c, b) : ag_jfail_value();
}
