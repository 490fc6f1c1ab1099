/* SPDX-License-Identifier: Apache-2.0 */
/* str methods for letter case and character classes. */
#include "jinja/builtins/methods.h"
#include "jinja/value/string.h"
#include "jinja/value/unicode.h"
#include "text/utf8.h"

/* Returns whether the Greek capital sigma at s[at] becomes a final one: after a letter and before
 * none, case-ignorable characters skipped. */
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

/* Appends the character of s that starts at *at in upper or lower case and advances *at. */
static bool append_cased(ag_jctx *c, ag_jbuf *b, const ag_jstr *s, size_t *at, bool upper) {
    uint32_t cp, out[3];
    const size_t begin = *at;
    *at += ag_utf8_get(s->text + begin, &cp);
    size_t count = ag_jchar_case(cp, upper, out);
    if (cp == 0x3A3 && !upper && is_final_sigma(s, begin)) out[0] = 0x3C2;
    bool is_input = ag_jstr_is_input(s, begin);
    for (size_t i = 0; i < count; i++) {
        if (!ag_jbuf_append_char(c, b, out[i], is_input)) return false;
    }
    return ag_jwork(c, 1);
}

/* Changes the case of ASCII letters in one copy: their length stays the same. */
static ag_jstr *ascii_cased(ag_jctx *c, ag_jstr *s, bool upper) {
    ag_jbuf *b = ag_jbuf_create(c);
    if (!b || !ag_jbuf_append(c, b, s)) return NULL;
    for (size_t i = 0; i < b->len; i++) {
        char ch = b->text[i];
        if (upper ? ch >= 'a' && ch <= 'z' : ch >= 'A' && ch <= 'Z') b->text[i] = (char)(ch ^ 0x20);
    }
    ag_jstr *r = ag_jbuf_string(c, b);
    return r ? ag_jstr_as_markup(c, r, s->markup) : NULL;
}

ag_jstr *ag_jstr_with_case(ag_jctx *c, ag_jstr *s, bool upper) {
    if (!ag_jwork_bytes(c, s->len)) return NULL;
    if (ag_jstr_is_ascii(s)) return ascii_cased(c, s, upper);
    ag_jbuf *b = ag_jbuf_create(c);
    for (size_t at = 0; b && at < s->len;) {
        if (!append_cased(c, b, s, &at, upper)) return NULL;
    }
    ag_jstr *r = b ? ag_jbuf_string(c, b) : NULL;
    return r ? ag_jstr_as_markup(c, r, s->markup) : NULL;
}

ag_jv ag_jstr_upper(ag_jctx *c, ag_jv self, const ag_jv *a) {
    (void)a;
    return ag_jstring(ag_jstr_with_case(c, self.as.string, true));
}
ag_jv ag_jstr_lower(ag_jctx *c, ag_jv self, const ag_jv *a) {
    (void)a;
    return ag_jstring(ag_jstr_with_case(c, self.as.string, false));
}

/* Capitalizes the first character of s, or of each run of letters; other letters become lower
 * case. */
static ag_jv capitalized(ag_jctx *c, ag_jstr *s, bool each_word) {
    ag_jbuf *b = ag_jbuf_create(c);
    bool upper = true;
    for (size_t at = 0; b && at < s->len;) {
        uint32_t cp;
        ag_utf8_get(s->text + at, &cp);
        if (!append_cased(c, b, s, &at, upper)) return ag_jfail_value();
        upper = each_word && !ag_jchar_is_cased(cp);
    }
    ag_jstr *r = b ? ag_jbuf_string(c, b) : NULL;
    return ag_jstring(r ? ag_jstr_as_markup(c, r, s->markup) : NULL);
}

ag_jv ag_jstr_capitalize(ag_jctx *c, ag_jv self, const ag_jv *a) {
    (void)a;
    return capitalized(c, self.as.string, false);
}
ag_jv ag_jstr_title(ag_jctx *c, ag_jv self, const ag_jv *a) {
    (void)a;
    return capitalized(c, self.as.string, true);
}

ag_jv ag_jstr_isdigit(ag_jctx *c, ag_jv self, const ag_jv *a) {
    (void)a;
    const ag_jstr *s = self.as.string;
    if (!ag_jwork_bytes(c, s->len)) return ag_jfail_value();
    for (size_t at = 0; at < s->len;) {
        uint32_t cp;
        at += ag_utf8_get(s->text + at, &cp);
        if (!ag_jchar_is_digit(cp)) return ag_jbool(false);
    }
    return ag_jbool(s->len > 0);
}

/* Returns whether s has a character for which `is` holds and none for which `other` holds. */
static ag_jv has_only_case(ag_jctx *c, const ag_jstr *s, bool (*is)(uint32_t),
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
    return has_only_case(c, self.as.string, ag_jchar_is_lower, ag_jchar_is_upper);
}
ag_jv ag_jstr_isupper(ag_jctx *c, ag_jv self, const ag_jv *a) {
    (void)a;
    return has_only_case(c, self.as.string, ag_jchar_is_upper, ag_jchar_is_lower);
}
