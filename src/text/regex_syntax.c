/* SPDX-License-Identifier: Apache-2.0 */
/* Oniguruma (Ruby syntax, UTF-8) to PCRE2 (UTF, UCP). The two agree on most of what tokenizers use;
 * what differs is rewritten here, or refused where it cannot be. */
#include "text/regex.h"

#include "core/fail.h"

#include <string.h>

/* Oniguruma's \w, unlike the regex crate's, leaves out the joiners. */
#define ONIG_WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"

typedef struct scanner {
    const char *s;
    size_t n, at;
    bool in_class;
    ag_text *out;
    ag_error *err;
} scanner;

static ag_status refuse(const scanner *sc, const char *what) {
    return AG_FAIL(sc->err, UNSUPPORTED, "%s at offset %zu of the pattern is not supported", what,
                   sc->at);
}

static ag_status put(scanner *sc, const char *s, size_t consumed) {
    sc->at += consumed;
    return ag_text_append(sc->out, s, strlen(s), sc->err);
}

static ag_status copy(scanner *sc, size_t n) {
    sc->at += n;
    return ag_text_append(sc->out, sc->s + sc->at - n, n, sc->err);
}

/* PCRE2's \s has U+180E, which lost the property White_Space in Unicode 6.3. */
static ag_status escape(scanner *sc) {
    if (sc->at + 1 == sc->n) return refuse(sc, "a trailing backslash");
    switch (sc->s[sc->at + 1]) {
    case 's':
        return put(sc, "\\p{White_Space}", 2);
    case 'S':
        return put(sc, "\\P{White_Space}", 2);
    case 'w':
        return put(sc, sc->in_class ? ONIG_WORD : "[" ONIG_WORD "]", 2);
    case 'W':
        if (sc->in_class) return refuse(sc, "\\W in a character class");
        return put(sc, "[^" ONIG_WORD "]", 2);
    case 'h':
        return put(sc, sc->in_class ? "0-9A-Fa-f" : "[0-9A-Fa-f]", 2);
    case 'H':
        if (sc->in_class) return refuse(sc, "\\H in a character class");
        return put(sc, "[^0-9A-Fa-f]", 2);
    case 'C':
    case 'K':
    case 'Q':
    case 'E':
        return refuse(sc, "the escape \\C, \\K, \\Q or \\E");
    default:
        return copy(sc, 2);
    }
}

/* "(?m)" means in Ruby what "(?s)" means elsewhere. */
static ag_status group(scanner *sc) {
    size_t i = sc->at + 1;
    if (i < sc->n && sc->s[i] == '*') return refuse(sc, "a verb (*...)");
    if (i < sc->n && sc->s[i] == '?') {
        for (i++; i < sc->n && strchr("imsxn-", sc->s[i]) && sc->s[i]; i++) {
            if (sc->s[i] == 'm' || sc->s[i] == 's') return refuse(sc, "the option (?m) or (?s)");
        }
    }
    return copy(sc, 1);
}

static ag_status open_class(scanner *sc) {
    if (sc->in_class) {
        const char *end = sc->at + 1 < sc->n && sc->s[sc->at + 1] == ':'
                              ? memmem(sc->s + sc->at, sc->n - sc->at, ":]", 2)
                              : NULL;
        if (!end) return refuse(sc, "a class within a class");
        return copy(sc, (size_t)(end + 2 - (sc->s + sc->at)));
    }
    sc->in_class = true;
    size_t n = 1;
    if (sc->at + n < sc->n && sc->s[sc->at + n] == '^') n++;
    if (sc->at + n < sc->n && sc->s[sc->at + n] == ']') n++;
    return copy(sc, n);
}

static ag_status one(scanner *sc) {
    const char *s = sc->s + sc->at;
    size_t left = sc->n - sc->at;
    switch (*s) {
    case '\\':
        return escape(sc);
    case '[':
        return open_class(sc);
    case ']':
        sc->in_class = false;
        return copy(sc, 1);
    case '(':
        return sc->in_class ? copy(sc, 1) : group(sc);
    case '&':
        if (sc->in_class && left > 1 && s[1] == '&') return refuse(sc, "&& in a character class");
        return copy(sc, 1);
    case '{': /* {,n} is {0,n} there, and plain text in PCRE2 before 10.43 */
        if (!sc->in_class && left > 1 && s[1] == ',') return put(sc, "{0", 1);
        return copy(sc, 1);
    default:
        return copy(sc, 1);
    }
}

ag_status ag_regex_translate(const char *s, size_t n, ag_text *out, ag_error *err) {
    scanner sc = {.s = s, .n = n, .out = out, .err = err};
    AG_TRY(ag_text_reserve(out, n, err));
    while (sc.at < n) AG_TRY(one(&sc));
    return AG_OK;
}
