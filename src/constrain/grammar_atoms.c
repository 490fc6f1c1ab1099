/* SPDX-License-Identifier: Apache-2.0 */
/* Extensions of GBNF: special tokens, <[151657]>, and JSON schemas:
 *   %json SCHEMA                                      the value as JSON
 *   %python SCHEMA                                    its properties as a=1, b="x"
 *   %braces(QUOTE, STOP) SCHEMA                       its properties as a:1,b:QUOTExQUOTE
 *   %tags(OPEN, TEXT, OPEN_VALUE, VALUE, CLOSE, BETWEEN, STOP) SCHEMA
 *                                                     as OPEN_VALUEaVALUE1CLOSE OPENbTEXTxCLOSE
 * Delimiters are literals and tokens. STOP is a regular expression that no text contains. */
#include "constrain/grammar_atoms.h"

#include "constrain/schema/schema.h"
#include "core/fail.h"
#include "core/hex.h"
#include "text/bytes.h"
#include "text/utf8.h"

#include <string.h>

enum { DELIMITERS_MAX = 7 };

typedef struct reader {
    const ag_grammar_scope *scope;
    const char *s;
    size_t n, at;
    ag_text delimiters[DELIMITERS_MAX];
    ag_error *err;
} reader;

const char *ag_grammar_read_char(const char *s, size_t n, size_t *at, uint32_t *cp) {
    static const char from[] = "nrt\"\\[]-^/", to[] = "\n\r\t\"\\[]-^/";
    if (*at >= n || s[*at] == '\n') return "the line ends inside a literal or a class";
    if (s[*at] != '\\') {
        *at += ag_utf8_get(s + *at, cp);
        return NULL;
    }
    const char c = ++*at < n ? s[*at] : '\0';
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits) {
        *cp = 0;
        for (size_t i = 1; i <= digits; i++) {
            const int digit = *at + i < n ? ag_hex_digit(s[*at + i]) : -1;
            if (digit < 0) return "invalid escape: hexadecimal digits are missing";
            *cp = *cp << 4 | (uint32_t)digit;
        }
        if (*cp > AG_CHAR_MAX) return "invalid escape: the character is beyond U+10FFFF";
        *at += digits + 1;
        return NULL;
    }
    const char *found = c ? strchr(from, c) : NULL;
    if (!found) return "invalid escape: unknown character after the backslash";
    *cp = (unsigned char)to[found - from];
    ++*at;
    return NULL;
}

static void skip_space(reader *r) {
    while (r->at < r->n && memchr(" \t\r\n", r->s[r->at], 4)) r->at++;
}

static bool accept_char(reader *r, char c) {
    skip_space(r);
    if (r->at == r->n || r->s[r->at] != c) return false;
    r->at++;
    return true;
}

/* ---- delimiters ---- */

static ag_status read_token(reader *r, ag_text *out) {
    uint32_t id = 0;
    size_t i = r->at + 2, digits = 0;
    for (; i < r->n && digits < 9 && r->s[i] >= '0' && r->s[i] <= '9'; i++, digits++) {
        id = id * 10 + (uint32_t)(r->s[i] - '0');
    }
    const bool fits = digits && r->n - r->at > digits + 3 && r->s[r->at + 1] == '[' &&
                      r->s[i] == ']' && r->s[i + 1] == '>';
    if (!fits) return AG_FAIL(r->err, FORMAT, "invalid token; expected <[id]>");
    if (!ag_token_tree_is_special(r->scope->tokens, (int32_t)id)) {
        return AG_FAIL(r->err, INVALID, "token %u: not a special token of the vocabulary", id);
    }
    char text[AG_SPECIAL_TEXT_BYTES];
    ag_special_token_text((int32_t)id, text);
    r->at = i + 2;
    return ag_text_append(out, text, sizeof text, r->err);
}

static ag_status read_quoted(reader *r, ag_text *out) {
    for (r->at++; r->at < r->n && r->s[r->at] != '"';) {
        uint32_t cp;
        char bytes[4];
        const char *message = ag_grammar_read_char(r->s, r->n, &r->at, &cp);
        if (message) return AG_FAIL(r->err, FORMAT, "%s", message);
        AG_TRY(ag_text_append(out, bytes, ag_utf8_put(bytes, cp), r->err));
    }
    if (r->at == r->n) return AG_FAIL(r->err, FORMAT, "missing closing quote");
    r->at++;
    return AG_OK;
}

/* Reads literals and tokens in a row. */
static ag_status read_delimiter(reader *r, ag_text *out) {
    for (skip_space(r); r->at < r->n && (r->s[r->at] == '"' || r->s[r->at] == '<');) {
        AG_TRY(r->s[r->at] == '"' ? read_quoted(r, out) : read_token(r, out));
        skip_space(r);
    }
    return AG_OK;
}

ag_status ag_grammar_delimiter(const ag_grammar_scope *scope, const char *s, size_t n, ag_text *out,
                               ag_error *err) {
    reader r = {.scope = scope, .s = s, .n = n, .err = err};
    AG_TRY(read_delimiter(&r, out));
    return r.at == n ? AG_OK : AG_FAIL(err, FORMAT, "expected literals and tokens");
}

/* Reads n delimiters in parentheses, separated by commas. */
static ag_status read_delimiters(reader *r, size_t n) {
    if (!accept_char(r, '('))
        return AG_FAIL(r->err, FORMAT, "expected %zu delimiters in parentheses", n);
    for (size_t i = 0; i < n; i++) {
        if (i && !accept_char(r, ',')) return AG_FAIL(r->err, FORMAT, "expected %zu delimiters", n);
        AG_TRY(read_delimiter(r, &r->delimiters[i]));
    }
    return accept_char(r, ')') ? AG_OK
                               : AG_FAIL(r->err, FORMAT, "expected %zu delimiters, then )", n);
}

static ag_delimiter delimiter(const reader *r, size_t i) {
    return (ag_delimiter){r->delimiters[i].data ? r->delimiters[i].data : "", r->delimiters[i].len};
}

#define LITERAL(s) \
    { (s), sizeof(s) - 1 }

static ag_status read_notation(reader *r, ag_schema_notation *out, bool *is_json) {
    static const struct {
        const char *name;
        size_t n_delimiters;
    } notations[] = {{"json", 0}, {"python", 0}, {"braces", 2}, {"tags", DELIMITERS_MAX}};
    const char *name = r->s + r->at;
    size_t n = 0, kind = 0;
    while (r->at + n < r->n && name[n] >= 'a' && name[n] <= 'z') n++;
    while (kind < 4 && (strlen(notations[kind].name) != n || memcmp(name, notations[kind].name, n)))
        kind++;
    if (kind == 4) {
        return AG_FAIL(r->err, FORMAT,
                       "unknown notation %%%.*s; use json, python, braces, tags, regex or grammar",
                       (int)(n < 20 ? n : 20), name);
    }
    r->at += n;
    if (notations[kind].n_delimiters) AG_TRY(read_delimiters(r, notations[kind].n_delimiters));
    *is_json = kind == 0;
    const ag_schema_notation all[] = {
        {.values = AG_SPELL_JSON},
        {.values = AG_SPELL_PYTHON, .before_value = LITERAL("="), .between = LITERAL(", ")},
        {.values = AG_SPELL_DELIMITED,
         .before_value = LITERAL(":"),
         .between = LITERAL(","),
         .quote = delimiter(r, 0),
         .stop = delimiter(r, 1)},
        {.values = AG_SPELL_JSON,
         .raw_texts = true,
         .open = delimiter(r, 0),
         .before_text = delimiter(r, 1),
         .open_value = delimiter(r, 2),
         .before_value = delimiter(r, 3),
         .close = delimiter(r, 4),
         .between = delimiter(r, 5),
         .stop = delimiter(r, 6)},
    };
    *out = all[kind];
    return AG_OK;
}

/* ---- schemas ---- */

static ag_status read_schema(reader *r, ag_pda *pda, uint32_t *start) {
    ag_schema_notation notation;
    bool is_json = false;
    r->at++;
    AG_TRY(read_notation(r, &notation, &is_json));
    skip_space(r);
    json_error_t e;
    json_t *v =
        json_loadb(r->s + r->at, r->n - r->at, JSON_DISABLE_EOF_CHECK | JSON_DECODE_ANY, &e);
    if (!v) return AG_FAIL(r->err, FORMAT, "expected a JSON schema: %.120s", e.text);
    json_decref(v);
    const size_t len = (size_t)e.position;
    const ag_status st =
        ag_schema_compile(pda, r->scope->json, r->s + r->at, len, is_json ? NULL : &notation,
                          r->scope->objects, start, r->err);
    r->at += len;
    return st;
}

ag_status ag_grammar_atom(ag_pda *pda, const ag_grammar_scope *scope, const char *s, size_t n,
                          size_t *at, uint32_t *start, ag_error *err) {
    reader r = {.scope = scope, .s = s, .n = n, .at = *at, .err = err};
    ag_status st;
    *start = AG_PDA_FAIL;
    if (s[*at] == '%') {
        st = read_schema(&r, pda, start);
    } else {
        st = read_token(&r, &r.delimiters[0]);
        if (st == AG_OK) {
            *start =
                ag_pda_literal(pda, r.delimiters[0].data, r.delimiters[0].len, ag_pda_end(pda));
        }
    }
    *at = r.at;
    for (size_t i = 0; i < DELIMITERS_MAX; i++) ag_text_free(&r.delimiters[i]);
    return st;
}
