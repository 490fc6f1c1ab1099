/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/parse/lexer.h"

#include "core/fail.h"
#include "core/hex.h"
#include "jinja/value/number.h"
#include "jinja/value/unicode.h"
#include "text/utf8.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NESTING = 200, MAX_TOKENS = 1 << 20 };

typedef struct lexer {
    ag_jinja_arena *arena;
    const char *name, *text;
    size_t n, at;
    uint32_t line;
    bool line_starting; /* the previous token ended with a newline, or there was none */
    char closers[MAX_NESTING];
    size_t n_closers;
    ag_jtokens *out;
    ag_error *err;
} lexer;

#define LEX_FAIL(x, ...) lex_fail((x), AG_FORMAT, __VA_ARGS__)

static ag_status lex_fail(lexer *x, ag_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static ag_status lex_fail(lexer *x, ag_status status, const char *fmt, ...) {
    char message[200];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    return ag_fail(x->err, status, __FILE__, __LINE__, "%s, line %u: %s", x->name, x->line,
                   message);
}

static ag_status lex_fail_memory(lexer *x) {
    if (x->arena->memory->over_limit)
        return lex_fail(x, AG_LIMIT, "the template exceeds the memory limit of the parser");
    return lex_fail(x, AG_NOMEM, "tokens of the template");
}

static ag_status push_token(lexer *x, ag_jtoken_kind kind, const char *text, size_t len) {
    ag_jtokens *o = x->out;
    if (o->n == MAX_TOKENS)
        return lex_fail(x, AG_LIMIT, "the template has more than %d tokens", MAX_TOKENS);
    if (!ag_jinja_grow(x->arena, &o->items, o->n, &o->cap, sizeof *o->items))
        return lex_fail_memory(x);
    o->items[o->n++] = (ag_jtoken){.kind = kind, .line = x->line, .text = text, .len = len};
    return AG_OK;
}

static bool starts_with(const lexer *x, size_t at, const char *s) {
    size_t n = strlen(s);
    return n <= x->n - at && !memcmp(x->text + at, s, n);
}

static void count_lines(lexer *x, size_t begin, size_t end) {
    for (size_t i = begin; i < end; i++) x->line += x->text[i] == '\n';
}

static void advance(lexer *x, size_t to) {
    count_lines(x, x->at, to);
    if (to > x->at) x->line_starting = x->text[to - 1] == '\n';
    x->at = to;
}

static size_t skip_spaces(const lexer *x, size_t at) {
    while (at < x->n) {
        uint32_t cp;
        size_t n = ag_utf8_get(x->text + at, &cp);
        if (!ag_jchar_is_space(cp)) break;
        at += n;
    }
    return at;
}

static bool only_spaces(const lexer *x, size_t begin, size_t end) {
    return skip_spaces(x, begin) >= end;
}

/* Returns the end of x->text[begin..end) without trailing spaces. */
static size_t without_spaces(const lexer *x, size_t begin, size_t end) {
    while (end > begin) {
        uint32_t cp;
        size_t last = begin + ag_utf8_last(x->text + begin, end - begin);
        ag_utf8_get(x->text + last, &cp);
        if (!ag_jchar_is_space(cp)) break;
        end = last;
    }
    return end;
}

/* Pushes the text before a tag, stripped as the tag's sign or lstrip_blocks requires. */
static ag_status push_data(lexer *x, size_t end, char sign, bool is_block) {
    size_t begin = x->at;
    size_t stop = end;
    if (sign == '-') {
        stop = without_spaces(x, begin, end);
    } else if (sign != '+' && is_block) {
        size_t line = end;
        while (line > begin && x->text[line - 1] != '\n') line--;
        if ((line > begin || x->line_starting) && line < end && only_spaces(x, line, end)) {
            stop = line;
        }
    }
    if (stop > begin) AG_TRY(push_token(x, AG_JT_DATA, x->text + begin, stop - begin));
    advance(x, end);
    return AG_OK;
}

/* Returns the length of a tag's end at `at`, including its sign and the newline or spaces that it
 * strips; 0 if there is none. */
static size_t tag_end(const lexer *x, size_t at, const char *end, bool plus, bool newline) {
    size_t n = strlen(end);
    if (at < x->n && x->text[at] == '-' && starts_with(x, at + 1, end)) {
        return skip_spaces(x, at + 1 + n) - at;
    }
    if (plus && at < x->n && x->text[at] == '+' && starts_with(x, at + 1, end)) return n + 1;
    if (!starts_with(x, at, end)) return 0;
    return n + (newline && at + n < x->n && x->text[at + n] == '\n');
}

/* Returns the start of the text of a {% raw %} tag at `at`; 0 if it is another tag. */
static size_t raw_begin(const lexer *x, size_t at) {
    at += 2;
    if (at < x->n && (x->text[at] == '-' || x->text[at] == '+')) at++;
    at = skip_spaces(x, at);
    if (!starts_with(x, at, "raw")) return 0;
    at = skip_spaces(x, at + 3);
    size_t n = tag_end(x, at, "%}", false, false);
    return n ? at + n : 0;
}

static ag_status lex_raw(lexer *x, size_t begin) {
    advance(x, begin);
    for (size_t at = begin; at + 1 < x->n; at++) {
        if (!starts_with(x, at, "{%")) continue;
        size_t p = at + 2;
        char sign = p < x->n && (x->text[p] == '-' || x->text[p] == '+') ? x->text[p++] : 0;
        p = skip_spaces(x, p);
        if (!starts_with(x, p, "endraw")) continue;
        p = skip_spaces(x, p + 6);
        size_t n = tag_end(x, p, "%}", true, true);
        if (!n) continue;
        AG_TRY(push_data(x, at, sign, true));
        advance(x, p + n);
        return AG_OK;
    }
    return LEX_FAIL(x, "{%% raw %%} has no {%% endraw %%}");
}

static ag_status lex_comment(lexer *x) {
    for (size_t at = x->at; at < x->n; at++) {
        size_t n = tag_end(x, at, "#}", true, true);
        if (!n) continue;
        advance(x, at + n);
        return AG_OK;
    }
    return LEX_FAIL(x, "comment has no #}");
}

/* Returns the value of n hexadecimal digits at s; -1 if there are fewer. */
static int64_t hex_number(const char *s, const char *end, size_t n) {
    int64_t v = 0;
    if ((size_t)(end - s) < n) return -1;
    for (size_t i = 0; i < n; i++) {
        int d = ag_hex_digit(s[i]);
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

static const char simple_escapes[] = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v";

/* Decodes an escape; s is after the backslash. Returns its end, NULL if it is malformed. */
static const char *unescape(const char *s, const char *end, char *out, size_t *n) {
    for (const char *e = simple_escapes; *e; e += 2) {
        if (*s == *e) return out[(*n)++] = e[1], s + 1;
    }
    if (*s == '\n') return s + 1;
    int64_t cp = 0;
    if (*s >= '0' && *s <= '7') {
        const char *stop = end - s > 3 ? s + 3 : end;
        while (s < stop && *s >= '0' && *s <= '7') cp = cp * 8 + (*s++ - '0');
    } else if (*s == 'x' || *s == 'u' || *s == 'U') {
        size_t digits = *s == 'x' ? 2 : *s == 'u' ? 4 : 8;
        cp = hex_number(s + 1, end, digits);
        s += 1 + digits;
    } else if (*s == 'N') {
        return NULL;
    } else { /* an unknown escape stays unchanged */
        out[(*n)++] = '\\';
        return s;
    }
    if (cp < 0 || cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)) return NULL;
    *n += ag_utf8_put(out + *n, (uint32_t)cp);
    return s;
}

static ag_status lex_string(lexer *x) {
    char quote = x->text[x->at];
    size_t begin = x->at + 1, end = begin;
    bool escaped = false;
    while (end < x->n && x->text[end] != quote) {
        if (x->text[end] == '\\') escaped = true, end++;
        end++;
    }
    if (end >= x->n) return LEX_FAIL(x, "string has no closing quote");
    const char *text = x->text + begin;
    size_t len = end - begin;
    if (escaped) {
        char *out = ag_jinja_alloc(x->arena, len * 2 + 4); /* an escape at most doubles in size */
        if (!out) return lex_fail_memory(x);
        size_t n = 0;
        for (const char *s = text, *stop = text + len; s < stop;) {
            if (*s != '\\') {
                out[n++] = *s++;
                continue;
            }
            s = unescape(s + 1, stop, out, &n);
            if (!s) return LEX_FAIL(x, "string has an invalid escape");
        }
        text = out;
        len = n;
    }
    AG_TRY(push_token(x, AG_JT_STRING, text, len));
    advance(x, end + 1);
    return AG_OK;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Returns the end of digits with single underscores between them. */
static size_t digits_end(const lexer *x, size_t at) {
    while (at < x->n && (is_digit(x->text[at]) ||
                         (x->text[at] == '_' && at + 1 < x->n && is_digit(x->text[at + 1])))) {
        at++;
    }
    return at;
}

/* Returns the end of a float literal at `at`, which is a digit; 0 if it is an integer. */
static size_t float_end(const lexer *x, size_t at) {
    if (at > 0 && x->text[at - 1] == '.') return 0;
    size_t p = digits_end(x, at), integer_end = p;
    if (p + 1 < x->n && x->text[p] == '.' && is_digit(x->text[p + 1])) p = digits_end(x, p + 1);
    if (p < x->n && (x->text[p] == 'e' || x->text[p] == 'E')) {
        size_t q = p + 1;
        if (q < x->n && (x->text[q] == '+' || x->text[q] == '-')) q++;
        if (q < x->n && is_digit(x->text[q])) return digits_end(x, q);
    }
    return p > integer_end ? p : 0;
}

static bool digit_of(char c, int base) {
    int d = ag_hex_digit(c);
    return d >= 0 && d < base;
}

static size_t based_end(const lexer *x, size_t at, int base) {
    while (at < x->n && (digit_of(x->text[at], base) || (x->text[at] == '_' && at + 1 < x->n &&
                                                         digit_of(x->text[at + 1], base)))) {
        at++;
    }
    return at;
}

static int base_of(const lexer *x, size_t at) {
    if (x->text[at] != '0' || at + 2 >= x->n) return 10;
    char c = (char)(x->text[at + 1] | 0x20);
    int base = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
    if (base == 10) return 10;
    size_t first = at + 2 + (x->text[at + 2] == '_');
    return first < x->n && digit_of(x->text[first], base) ? base : 10;
}

static ag_status lex_number(lexer *x) {
    size_t begin = x->at, end = float_end(x, begin);
    if (end) {
        AG_TRY(push_token(x, AG_JT_FLOAT, x->text + begin, end - begin));
        ag_jtoken *t = &x->out->items[x->out->n - 1];
        if (!ag_jparse_float(x->text + begin, end - begin, &t->number)) {
            return LEX_FAIL(x, "invalid number");
        }
        advance(x, end);
        return AG_OK;
    }
    int base = base_of(x, begin);
    if (base == 10) {
        end = x->text[begin] == '0' ? based_end(x, begin, 1) : digits_end(x, begin);
    } else {
        end = based_end(x, begin + 2, base);
    }
    AG_TRY(push_token(x, AG_JT_INTEGER, x->text + begin, end - begin));
    ag_jtoken *t = &x->out->items[x->out->n - 1];
    if (!ag_jparse_int(x->text + begin, end - begin, 0, &t->integer)) {
        return LEX_FAIL(x, "an integer exceeds 64 bits");
    }
    advance(x, end);
    return AG_OK;
}

static ag_status lex_name(lexer *x) {
    size_t end = x->at;
    while (end < x->n) {
        uint32_t cp;
        size_t n = ag_utf8_get(x->text + end, &cp);
        if (!ag_jchar_is_word(cp)) break;
        end += n;
    }
    if (end == x->at) {
        return LEX_FAIL(x, "unexpected character '%.*s'", (int)ag_utf8_len(x->text[end]),
                        x->text + end);
    }
    AG_TRY(push_token(x, AG_JT_NAME, x->text + x->at, end - x->at));
    advance(x, end);
    return AG_OK;
}

static const struct operator_token {
    char text[3];
    ag_jtoken_kind kind;
} operators[] = {
    {"//", AG_JT_FLOORDIV}, {"**", AG_JT_POW},     {"==", AG_JT_EQ},    {"!=", AG_JT_NE},
    {">=", AG_JT_GE},       {"<=", AG_JT_LE},      {"+", AG_JT_ADD},    {"-", AG_JT_SUB},
    {"*", AG_JT_MUL},       {"/", AG_JT_DIV},      {"%", AG_JT_MOD},    {"~", AG_JT_TILDE},
    {"[", AG_JT_LBRACKET},  {"]", AG_JT_RBRACKET}, {"(", AG_JT_LPAREN}, {")", AG_JT_RPAREN},
    {"{", AG_JT_LBRACE},    {"}", AG_JT_RBRACE},   {">", AG_JT_GT},     {"<", AG_JT_LT},
    {"=", AG_JT_ASSIGN},    {".", AG_JT_DOT},      {":", AG_JT_COLON},  {"|", AG_JT_PIPE},
    {",", AG_JT_COMMA},     {";", AG_JT_SEMICOLON}};

const char *ag_jtoken_name(ag_jtoken_kind kind) {
    static const char *const others[] = {
        "end of template", "text", "{%", "%}", "{{", "}}", "name", "string", "integer", "float"};
    if (kind <= AG_JT_FLOAT) return others[kind];
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (operators[i].kind == kind) return operators[i].text;
    }
    return "operator";
}

static ag_status balance(lexer *x, char c) {
    const char *open = strchr("{}()[]", c);
    if (!open) return AG_OK;
    size_t i = (size_t)(open - "{}()[]");
    if (i > 5) return AG_OK;
    if (i % 2 == 0) {
        if (x->n_closers == MAX_NESTING) {
            return lex_fail(x, AG_LIMIT, "brackets are nested more than %d deep", MAX_NESTING);
        }
        x->closers[x->n_closers++] = "{}()[]"[i + 1];
        return AG_OK;
    }
    if (!x->n_closers) return LEX_FAIL(x, "unexpected '%c'", c);
    char expected = x->closers[--x->n_closers];
    return expected == c ? AG_OK : LEX_FAIL(x, "unexpected '%c', expected '%c'", c, expected);
}

static ag_status lex_operator(lexer *x, bool *found) {
    *found = false;
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (!starts_with(x, x->at, operators[i].text)) continue;
        *found = true;
        size_t n = strlen(operators[i].text);
        if (n == 1) AG_TRY(balance(x, operators[i].text[0]));
        AG_TRY(push_token(x, operators[i].kind, x->text + x->at, n));
        advance(x, x->at + n);
        return AG_OK;
    }
    return AG_OK;
}

static ag_status lex_code(lexer *x, ag_jtoken_kind end_kind) {
    const char *end = end_kind == AG_JT_BLOCK_END ? "%}" : "}}";
    bool is_block = end_kind == AG_JT_BLOCK_END;
    x->n_closers = 0;
    while (x->at < x->n) {
        size_t n = x->n_closers ? 0 : tag_end(x, x->at, end, is_block, is_block);
        if (n) {
            AG_TRY(push_token(x, end_kind, x->text + x->at, 2));
            advance(x, x->at + n);
            return AG_OK;
        }
        size_t spaces = skip_spaces(x, x->at);
        char c = x->text[x->at];
        bool found;
        if (spaces > x->at) {
            advance(x, spaces);
        } else if (is_digit(c)) {
            AG_TRY(lex_number(x));
        } else if (c == '\'' || c == '"') {
            AG_TRY(lex_string(x));
        } else {
            AG_TRY(lex_operator(x, &found));
            if (!found) AG_TRY(lex_name(x));
        }
    }
    return AG_OK; /* the parser reports the missing end */
}

static size_t find_tag(const lexer *x) {
    for (size_t at = x->at; at + 1 < x->n; at++) {
        const char *brace = memchr(x->text + at, '{', x->n - at - 1);
        if (!brace) break;
        at = (size_t)(brace - x->text);
        if (brace[1] == '%' || brace[1] == '{' || brace[1] == '#') return at;
    }
    return x->n;
}

static ag_status lex_tag(lexer *x, size_t at) {
    char kind = x->text[at + 1];
    size_t raw = kind == '%' ? raw_begin(x, at) : 0;
    char sign = at + 2 < x->n ? x->text[at + 2] : 0;
    if (sign != '-' && sign != '+') sign = 0;
    AG_TRY(push_data(x, at, sign, kind != '{'));
    if (raw) return lex_raw(x, raw);
    advance(x, at + 2 + (sign != 0));
    if (kind == '#') return lex_comment(x);
    AG_TRY(push_token(x, kind == '%' ? AG_JT_BLOCK_BEGIN : AG_JT_VARIABLE_BEGIN, x->text + at, 2));
    return lex_code(x, kind == '%' ? AG_JT_BLOCK_END : AG_JT_VARIABLE_END);
}

ag_status ag_jinja_tokenize(ag_jinja_arena *arena, const char *name, const char *text, size_t n,
                            ag_jtokens *out, ag_error *err) {
    lexer x = {.arena = arena, .name = name, .text = text, .n = n, .line = 1, .err = err};
    x.line_starting = true;
    x.out = out;
    while (x.at < n) {
        size_t at = find_tag(&x);
        if (at < n) {
            AG_TRY(lex_tag(&x, at));
        } else {
            AG_TRY(push_token(&x, AG_JT_DATA, text + x.at, n - x.at));
            advance(&x, n);
        }
    }
    return push_token(&x, AG_JT_EOF, text + n, 0);
}
