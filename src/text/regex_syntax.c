/* SPDX-License-Identifier: Apache-2.0 */
/* Translates Oniguruma patterns (Ruby syntax, UTF-8) to PCRE2 (UTF, UCP). Rewrites features that
 * differ and rejects those that PCRE2 cannot express. */
#include "text/regex.h"

#include "core/fail.h"
#include "text/unicode_recent.h"

#include <string.h>

/* Characters of Oniguruma's \w besides letters, marks, digits and connectors. */
#define ONIG_WORD "\\p{Alphabetic}\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}"

typedef struct scanner {
    const char *s;
    size_t n, at;
    bool in_class;
    ag_text *out;
    ag_error *err;
} scanner;

static ag_status reject_pattern(const scanner *sc, const char *feature) {
    return AG_FAIL(sc->err, UNSUPPORTED, "offset %zu: %s is not supported", sc->at, feature);
}

static ag_status put_text(scanner *sc, const char *s, size_t consumed) {
    sc->at += consumed;
    return ag_text_append(sc->out, s, strlen(s), sc->err);
}

static ag_status copy_source(scanner *sc, size_t n) {
    sc->at += n;
    return ag_text_append(sc->out, sc->s + sc->at - n, n, sc->err);
}

static ag_status put_n(scanner *sc, const char *s, size_t n) {
    return ag_text_append(sc->out, s, n, sc->err);
}

/* Appends a class of general categories ("L", "Nd"), including characters newer than PCRE2's
 * tables. open and close are its brackets, empty within another class. */
static ag_status put_categories(scanner *sc, const char *open, const char *const *names,
                                const char *close) {
    AG_TRY(put_text(sc, open, 0));
    for (; *names; names++) {
        AG_TRY(put_text(sc, "\\p{", 0));
        AG_TRY(put_text(sc, *names, 0));
        AG_TRY(put_text(sc, "}", 0));
        AG_TRY(ag_unicode_recent_class(*names, strlen(*names), sc->out, sc->err));
    }
    return put_text(sc, close, 0);
}

/* Translates \p{...}, \P{...} and \p{^...} at sc->at. */
static ag_status property(scanner *sc) {
    const char *s = sc->s + sc->at, *end = memchr(s, '}', sc->n - sc->at);
    if (sc->n - sc->at < 4 || s[2] != '{' || !end)
        return reject_pattern(sc, "\\p without a {name}");
    const char *name = s + 3;
    bool negative = s[1] == 'P';
    if (*name == '^') {
        negative = !negative;
        name++;
    }
    size_t n = (size_t)(end - name), consumed = (size_t)(end + 1 - s);
    if (n == 1 || n == 2) {
        const char category[] = {name[0], n == 2 ? name[1] : '\0', '\0'};
        const char *const names[] = {category, NULL};
        sc->at += consumed;
        /* A class within a class cannot exclude characters. Only here the newest characters count
         * as unassigned. */
        if (sc->in_class && negative) {
            AG_TRY(put_text(sc, "\\P{", 0));
            AG_TRY(put_text(sc, category, 0));
            return put_text(sc, "}", 0);
        }
        if (sc->in_class) return put_categories(sc, "", names, "");
        return put_categories(sc, negative ? "[^" : "[", names, "]");
    }
    /* In PCRE2 a script's name alone means Script_Extensions. */
    static const char *const plain[] = {"Any",       "Alphabetic", "White_Space",
                                        "Lowercase", "Uppercase",  "Emoji"};
    bool script = true;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        script &= strlen(plain[i]) != n || strncmp(plain[i], name, n) != 0;
    }
    AG_TRY(put_text(sc, negative ? "\\P{" : "\\p{", consumed));
    if (script) AG_TRY(put_text(sc, "sc:", 0));
    AG_TRY(put_n(sc, name, n));
    return put_text(sc, "}", 0);
}

static ag_status word(scanner *sc, const char *open, const char *close) {
    static const char *const names[] = {"L", "M", "Nd", "Pc", NULL};
    AG_TRY(put_text(sc, open, 0));
    AG_TRY(put_text(sc, ONIG_WORD, 0));
    return put_categories(sc, "", names, close);
}

/* Translates \b and \B, because PCRE2 uses another set of word characters. */
static ag_status boundary(scanner *sc, const char *word_then, const char *none_then) {
    AG_TRY(put_text(sc, "(?:(?<=", 0));
    AG_TRY(word(sc, "[", "]"));
    AG_TRY(put_text(sc, word_then, 0));
    AG_TRY(word(sc, "[", "]"));
    AG_TRY(put_text(sc, ")|(?<!", 0));
    AG_TRY(word(sc, "[", "]"));
    AG_TRY(put_text(sc, none_then, 0));
    AG_TRY(word(sc, "[", "]"));
    return put_text(sc, "))", 0);
}

static ag_status digit(scanner *sc, const char *open, const char *close) {
    static const char *const names[] = {"Nd", NULL};
    return put_categories(sc, open, names, close);
}

/* Translates an escape. \s becomes \p{White_Space}: PCRE2's \s includes U+180E, which is no white
 * space since Unicode 6.3. */
static ag_status escape(scanner *sc) {
    if (sc->at + 1 == sc->n) return reject_pattern(sc, "a trailing backslash");
    char c = sc->s[sc->at + 1];
    if (sc->in_class && strchr("WHD", c) && c)
        return reject_pattern(sc, "\\W, \\H or \\D in a class");
    switch (c) {
    case 's':
        return put_text(sc, "\\p{White_Space}", 2);
    case 'S':
        return put_text(sc, "\\P{White_Space}", 2);
    case 'w':
        sc->at += 2;
        return sc->in_class ? word(sc, "", "") : word(sc, "[", "]");
    case 'W':
        sc->at += 2;
        return word(sc, "[^", "]");
    case 'b':
        if (sc->in_class) return copy_source(sc, 2);
        sc->at += 2;
        return boundary(sc, ")(?!", ")(?=");
    case 'B':
        sc->at += 2;
        return boundary(sc, ")(?=", ")(?!");
    case 'd':
        sc->at += 2;
        return sc->in_class ? digit(sc, "", "") : digit(sc, "[", "]");
    case 'D':
        sc->at += 2;
        return digit(sc, "[^", "]");
    case 'h':
        return put_text(sc, sc->in_class ? "0-9A-Fa-f" : "[0-9A-Fa-f]", 2);
    case 'H':
        return put_text(sc, "[^0-9A-Fa-f]", 2);
    case 'p':
    case 'P':
        return property(sc);
    case 'C':
    case 'K':
    case 'Q':
    case 'E':
        return reject_pattern(sc, "the escape \\C, \\K, \\Q or \\E");
    default:
        return copy_source(sc, 2);
    }
}

/* Rejects (?m) and (?s): (?m) in Ruby means (?s) elsewhere. */
static ag_status group(scanner *sc) {
    size_t i = sc->at + 1;
    if (i < sc->n && sc->s[i] == '*') return reject_pattern(sc, "a verb (*...)");
    if (i < sc->n && sc->s[i] == '?') {
        for (i++; i < sc->n && strchr("imsxn-", sc->s[i]) && sc->s[i]; i++) {
            if (sc->s[i] == 'm' || sc->s[i] == 's')
                return reject_pattern(sc, "the option (?m) or (?s)");
        }
    }
    return copy_source(sc, 1);
}

static ag_status open_class(scanner *sc) {
    if (sc->in_class) {
        const char *end = sc->at + 1 < sc->n && sc->s[sc->at + 1] == ':'
                              ? memmem(sc->s + sc->at, sc->n - sc->at, ":]", 2)
                              : NULL;
        if (!end) return reject_pattern(sc, "a class within a class");
        return copy_source(sc, (size_t)(end + 2 - (sc->s + sc->at)));
    }
    sc->in_class = true;
    size_t n = 1;
    if (sc->at + n < sc->n && sc->s[sc->at + n] == '^') n++;
    if (sc->at + n < sc->n && sc->s[sc->at + n] == ']') n++;
    return copy_source(sc, n);
}

static ag_status translate_one(scanner *sc) {
    const char *s = sc->s + sc->at;
    size_t left = sc->n - sc->at;
    switch (*s) {
    case '\\':
        return escape(sc);
    case '[':
        return open_class(sc);
    case ']':
        sc->in_class = false;
        return copy_source(sc, 1);
    case '(':
        return sc->in_class ? copy_source(sc, 1) : group(sc);
    case '&':
        if (sc->in_class && left > 1 && s[1] == '&')
            return reject_pattern(sc, "&& in a character class");
        return copy_source(sc, 1);
    case '{': /* {,n} means {0,n} in Oniguruma, but is literal in PCRE2 before 10.43 */
        if (!sc->in_class && left > 1 && s[1] == ',') return put_text(sc, "{0", 1);
        return copy_source(sc, 1);
    default:
        return copy_source(sc, 1);
    }
}

ag_status ag_regex_translate(const char *s, size_t n, ag_text *out, ag_error *err) {
    scanner sc = {.s = s, .n = n, .out = out, .err = err};
    AG_TRY(ag_text_reserve(out, n, err));
    while (sc.at < n) AG_TRY(translate_one(&sc));
    return AG_OK;
}
