/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/regex/tree.h"

#include "constrain/interrupts.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "core/hex.h"
#include "text/bytes.h"
#include "text/utf8.h"

#include <string.h>

enum { MAX_GROUPS_DEEP = 100, MAX_REPEAT = 100000, MAX_PROPERTIES = 100 };

typedef struct parser {
    ag_regex_tree *t;
    const char *s;
    size_t n, at;
    int depth, n_properties;
    ag_error *err;
} parser;

void ag_regex_tree_free(ag_regex_tree *t) {
    for (size_t i = 0; i < t->n_sets; i++) ag_char_set_free(&t->sets[i]);
    ag_free(t->sets);
    ag_free(t->nodes);
    *t = (ag_regex_tree){0};
}

ag_status ag_regex_tree_add(ag_regex_tree *t, ag_regex_node node, uint32_t *id, ag_error *err) {
    AG_TRY(ag_compile_steps(1, err));
    if (t->n == AG_REGEX_NODES_MAX)
        return AG_FAIL(err, LIMIT, "too large: more than %d nodes", AG_REGEX_NODES_MAX);
    AG_TRY(AG_GROW(t->nodes, &t->cap, t->n + 1, err));
    t->nodes[t->n] = node;
    *id = (uint32_t)t->n++;
    return AG_OK;
}

ag_status ag_regex_tree_add_set(ag_regex_tree *t, ag_char_set **out, ag_error *err) {
    AG_TRY(AG_GROW(t->sets, &t->sets_cap, t->n_sets + 1, err));
    *out = &t->sets[t->n_sets++];
    **out = (ag_char_set){0};
    return AG_OK;
}

static ag_status add_node(parser *p, ag_regex_node node, uint32_t *id) {
    return ag_regex_tree_add(p->t, node, id, p->err);
}

static ag_status finish_set(parser *p, uint32_t *id) {
    ag_regex_tree *t = p->t;
    ag_char_set_sort(&t->sets[t->n_sets - 1]);
    return add_node(p, (ag_regex_node){.kind = AG_REGEX_SET, .set = (uint32_t)t->n_sets - 1}, id);
}

static bool more(const parser *p) { return p->at < p->n; }
static bool next_is(const parser *p, const char *what) {
    const size_t n = strlen(what);
    return p->n - p->at >= n && !memcmp(p->s + p->at, what, n);
}
static bool skip_if(parser *p, const char *what) {
    if (!next_is(p, what)) return false;
    p->at += strlen(what);
    return true;
}

static uint32_t read_char(parser *p) {
    uint32_t cp;
    p->at += ag_utf8_get(p->s + p->at, &cp);
    return cp;
}

/* ---- escapes ---- */

/* Reads n digits. Returns false and reads nothing if they are missing. */
static bool read_hex(parser *p, size_t n, uint32_t *out) {
    *out = 0;
    if (p->n - p->at < n) return false;
    for (size_t i = 0; i < n; i++) {
        const int digit = ag_hex_digit(p->s[p->at + i]);
        if (digit < 0) return false;
        *out = *out << 4 | (uint32_t)digit;
    }
    p->at += n;
    return true;
}

/* Reads what follows \u: XXXX, a surrogate pair, or {X...}. */
static ag_status read_unicode(parser *p, uint32_t *cp) {
    const size_t start = p->at;
    if (skip_if(p, "{")) {
        *cp = 0;
        while (more(p) && ag_hex_digit(p->s[p->at]) >= 0 && *cp <= AG_CHAR_MAX) {
            *cp = *cp << 4 | (uint32_t)ag_hex_digit(p->s[p->at++]);
        }
        if (skip_if(p, "}") && *cp <= AG_CHAR_MAX) return AG_OK;
    } else if (read_hex(p, 4, cp)) {
        uint32_t low;
        if (*cp >= 0xD800 && *cp < 0xDC00 && skip_if(p, "\\u")) {
            if (!read_hex(p, 4, &low) || low < 0xDC00 || low > 0xDFFF) goto bad;
            *cp = 0x10000 + ((*cp - 0xD800) << 10 | (low - 0xDC00));
        }
        return AG_OK;
    }
bad:
    return AG_FAIL(p->err, FORMAT, "byte %zu: \\u needs four hexadecimal digits or {...}", start);
}

static ag_status read_property(parser *p, bool negative, ag_char_set *set) {
    const size_t start = p->at;
    const char *end = more(p) ? memchr(p->s + p->at, '}', p->n - p->at) : NULL;
    if (!skip_if(p, "{") || !end) {
        return AG_FAIL(p->err, FORMAT, "byte %zu: \\p needs {NAME}", start);
    }
    if (++p->n_properties > MAX_PROPERTIES) { /* each has hundreds of ranges */
        return AG_FAIL(p->err, LIMIT, "byte %zu: too many \\p properties; the maximum is %d", start,
                       MAX_PROPERTIES);
    }
    const size_t n = (size_t)(end - (p->s + p->at));
    ag_char_set named = {0};
    ag_status st = ag_char_set_add_property(&named, p->s + p->at, n, p->err);
    if (st == AG_OK && negative) {
        ag_char_set_sort(&named);
        st = ag_char_set_invert(&named, p->err);
    }
    if (st == AG_OK) st = ag_char_set_add_all(set, &named, p->err);
    ag_char_set_free(&named);
    p->at += n + 1;
    return st;
}

/* Reads what follows a backslash: adds a class to the set, or returns a character (*is_class
 * false). */
static ag_status read_escape(parser *p, ag_char_set *set, bool *is_class, uint32_t *cp) {
    static const char from[] = "nrtvf0", to[] = "\n\r\t\v\f";
    const size_t start = p->at - 1;
    *is_class = false;
    if (!more(p)) return AG_FAIL(p->err, FORMAT, "byte %zu: nothing follows the backslash", start);
    const char c = p->s[p->at];
    if (c && strchr("dDwWsS", c)) {
        p->at++;
        *is_class = true;
        return ag_char_set_add_class(set, c, p->err);
    }
    if (c == 'p' || c == 'P') {
        p->at++;
        *is_class = true;
        return read_property(p, c == 'P', set);
    }
    if (c == 'u') {
        p->at++;
        return read_unicode(p, cp);
    }
    if (c == 'x') {
        p->at++;
        if (read_hex(p, 2, cp)) return AG_OK;
        return AG_FAIL(p->err, FORMAT, "byte %zu: \\x needs two hexadecimal digits", start);
    }
    if (c == 'c' && p->n - p->at > 1) {
        *cp = (uint32_t)p->s[p->at + 1] & 31u;
        p->at += 2;
        return AG_OK;
    }
    const char *found = c ? strchr(from, c) : NULL;
    if (found) {
        p->at++;
        *cp = (unsigned char)to[found - from];
        return AG_OK;
    }
    *cp = read_char(p);
    return AG_OK;
}

/* ---- classes ---- */

static ag_status class_atom(parser *p, ag_char_set *set, bool *is_class, uint32_t *cp) {
    *is_class = false;
    if (skip_if(p, "\\")) {
        if (skip_if(p, "b")) {
            *cp = '\b';
            return AG_OK;
        }
        return read_escape(p, set, is_class, cp);
    }
    *cp = read_char(p);
    return AG_OK;
}

/* Reads what follows [. */
static ag_status parse_class(parser *p, uint32_t *id) {
    const size_t start = p->at - 1;
    const bool negative = skip_if(p, "^");
    ag_char_set *set;
    AG_TRY(ag_regex_tree_add_set(p->t, &set, p->err));
    while (more(p) && !next_is(p, "]")) {
        bool is_class, high_class;
        uint32_t lo, hi;
        AG_TRY(class_atom(p, set, &is_class, &lo));
        if (is_class) continue;
        hi = lo;
        if (next_is(p, "-") && p->n - p->at > 1 && p->s[p->at + 1] != ']') {
            p->at++;
            AG_TRY(class_atom(p, set, &high_class, &hi));
            if (high_class) { /* [a-\d]: the hyphen is a character */
                hi = lo;
                AG_TRY(ag_char_set_add(set, '-', '-', p->err));
            }
        }
        if (hi < lo) {
            return AG_FAIL(p->err, FORMAT,
                           "byte %zu: invalid character range: its end precedes its start", p->at);
        }
        AG_TRY(ag_char_set_add(set, lo, hi, p->err));
    }
    if (!skip_if(p, "]")) return AG_FAIL(p->err, FORMAT, "byte %zu: [ without ]", start);
    ag_char_set_sort(set);
    if (negative) AG_TRY(ag_char_set_invert(set, p->err));
    return finish_set(p, id);
}

/* ---- groups, atoms, quantifiers ---- */

static ag_status parse_alternatives(parser *p, uint32_t *id);

static ag_status skip_name(parser *p) {
    const char *end = memchr(p->s + p->at, '>', p->n - p->at);
    if (!end)
        return AG_FAIL(p->err, FORMAT, "byte %zu: missing > after the name of a group", p->at);
    p->at = (size_t)(end - p->s) + 1;
    return AG_OK;
}

/* Reads what follows (. */
static ag_status parse_group(parser *p, uint32_t *id) {
    const size_t start = p->at - 1;
    bool ahead = false, negative = false;
    if (skip_if(p, "?=")) {
        ahead = true;
    } else if (skip_if(p, "?!")) {
        ahead = negative = true;
    } else if (next_is(p, "?<=") || next_is(p, "?<!")) {
        return AG_FAIL(p->err, UNSUPPORTED, "byte %zu: lookbehind is not supported", start);
    } else if (skip_if(p, "?<") || skip_if(p, "?P<")) {
        AG_TRY(skip_name(p));
    } else if (next_is(p, "?") && !skip_if(p, "?:")) {
        return AG_FAIL(p->err, UNSUPPORTED, "byte %zu: this kind of group is not supported", start);
    }
    if (++p->depth > MAX_GROUPS_DEEP) {
        return AG_FAIL(p->err, LIMIT, "byte %zu: groups are nested deeper than %d", start,
                       MAX_GROUPS_DEEP);
    }
    AG_TRY(parse_alternatives(p, id));
    p->depth--;
    if (!skip_if(p, ")")) return AG_FAIL(p->err, FORMAT, "byte %zu: ( without )", start);
    if (!ahead) return AG_OK;
    return add_node(p, (ag_regex_node){.kind = AG_REGEX_AHEAD, .left = *id, .negative = negative},
                    id);
}

static ag_status parse_single(parser *p, uint32_t cp, uint32_t *id) {
    ag_char_set *set;
    AG_TRY(ag_regex_tree_add_set(p->t, &set, p->err));
    AG_TRY(ag_char_set_add(set, cp, cp, p->err));
    return finish_set(p, id);
}

/* Any character except line ends. */
static ag_status parse_dot(parser *p, uint32_t *id) {
    static const uint32_t lines[] = {'\n', '\r', 0x2028, 0x2029};
    ag_char_set *set;
    AG_TRY(ag_regex_tree_add_set(p->t, &set, p->err));
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        AG_TRY(ag_char_set_add(set, lines[i], lines[i], p->err));
    }
    ag_char_set_sort(set);
    AG_TRY(ag_char_set_invert(set, p->err));
    return finish_set(p, id);
}

static ag_status parse_backslash(parser *p, uint32_t *id) {
    const size_t start = p->at - 1;
    const char c = more(p) ? p->s[p->at] : '\0';
    if (c == 'b' || c == 'B') {
        return AG_FAIL(p->err, UNSUPPORTED, "byte %zu: \\%c is not supported", start, c);
    }
    if ((c >= '1' && c <= '9') || c == 'k') {
        return AG_FAIL(p->err, UNSUPPORTED, "byte %zu: references to groups are not supported",
                       start);
    }
    if (c == 'A' || c == 'Z' || c == 'z') {
        p->at++;
        const ag_regex_kind kind = c == 'A' ? AG_REGEX_BEGIN : AG_REGEX_END;
        return add_node(p, (ag_regex_node){.kind = kind}, id);
    }
    ag_char_set *set;
    bool is_class;
    uint32_t cp;
    AG_TRY(ag_regex_tree_add_set(p->t, &set, p->err));
    AG_TRY(read_escape(p, set, &is_class, &cp));
    if (!is_class) AG_TRY(ag_char_set_add(set, cp, cp, p->err));
    return finish_set(p, id);
}

static ag_status parse_atom(parser *p, uint32_t *id) {
    if (skip_if(p, "(")) return parse_group(p, id);
    if (skip_if(p, "[")) return parse_class(p, id);
    if (skip_if(p, "\\")) return parse_backslash(p, id);
    if (skip_if(p, ".")) return parse_dot(p, id);
    if (skip_if(p, "^")) return add_node(p, (ag_regex_node){.kind = AG_REGEX_BEGIN}, id);
    if (skip_if(p, "$")) return add_node(p, (ag_regex_node){.kind = AG_REGEX_END}, id);
    if (next_is(p, "*") || next_is(p, "+") || next_is(p, "?")) {
        return AG_FAIL(p->err, FORMAT, "byte %zu: nothing to repeat", p->at);
    }
    return parse_single(p, read_char(p), id);
}

static bool read_number(parser *p, uint32_t *out) {
    uint64_t value = 0;
    const size_t start = p->at;
    while (more(p) && p->s[p->at] >= '0' && p->s[p->at] <= '9') {
        if (value < UINT32_MAX) value = value * 10 + (uint64_t)(p->s[p->at] - '0');
        p->at++;
    }
    *out = value < UINT32_MAX ? (uint32_t)value : UINT32_MAX - 1;
    return p->at > start;
}

/* Reads {n}, {n,} or {n,m}. Anything else is text. */
static bool read_counts(parser *p, uint32_t *min, uint32_t *max) {
    const size_t start = p->at;
    if (skip_if(p, "{") && read_number(p, min)) {
        *max = *min;
        if (skip_if(p, ",") && !read_number(p, max)) *max = AG_REGEX_NO_END;
        if (skip_if(p, "}")) return true;
    }
    p->at = start;
    return false;
}

static ag_status parse_repeated(parser *p, uint32_t *id) {
    AG_TRY(parse_atom(p, id));
    for (int n = 1;; n++) {
        const size_t start = p->at;
        uint32_t min = 0, max = AG_REGEX_NO_END;
        if (skip_if(p, "*")) {
        } else if (skip_if(p, "+")) {
            min = 1;
        } else if (skip_if(p, "?")) {
            max = 1;
        } else if (!read_counts(p, &min, &max)) {
            return AG_OK;
        }
        if (n > AG_REGEX_STACKED) {
            return AG_FAIL(p->err, LIMIT, "byte %zu: more than %d quantifiers on one atom", start,
                           AG_REGEX_STACKED);
        }
        if (min > MAX_REPEAT || (max != AG_REGEX_NO_END && max > MAX_REPEAT)) {
            return AG_FAIL(p->err, LIMIT, "byte %zu: more than %d repetitions", start, MAX_REPEAT);
        }
        if (min > max) {
            return AG_FAIL(p->err, FORMAT,
                           "byte %zu: invalid repetition: the minimum %u exceeds the maximum %u",
                           start, min, max);
        }
        skip_if(p, "?"); /* lazy or greedy: the language is the same */
        AG_TRY(add_node(
            p, (ag_regex_node){.kind = AG_REGEX_REPEAT, .left = *id, .min = min, .max = max}, id));
    }
}

static ag_status parse_sequence(parser *p, uint32_t *id) {
    AG_TRY(add_node(p, (ag_regex_node){.kind = AG_REGEX_EMPTY}, id));
    bool first = true;
    while (more(p) && !next_is(p, "|") && !next_is(p, ")")) {
        uint32_t right;
        AG_TRY(parse_repeated(p, &right));
        if (first) *id = right;
        else
            AG_TRY(add_node(p, (ag_regex_node){.kind = AG_REGEX_CAT, .left = *id, .right = right},
                            id));
        first = false;
    }
    return AG_OK;
}

static ag_status parse_alternatives(parser *p, uint32_t *id) {
    AG_TRY(parse_sequence(p, id));
    while (skip_if(p, "|")) {
        uint32_t right;
        AG_TRY(parse_sequence(p, &right));
        AG_TRY(add_node(p, (ag_regex_node){.kind = AG_REGEX_ALT, .left = *id, .right = right}, id));
    }
    return AG_OK;
}

ag_status ag_regex_parse(ag_regex_tree *t, const char *regex, size_t n, ag_error *err) {
    *t = (ag_regex_tree){0};
    parser p = {.t = t, .s = regex, .n = n, .err = err};
    const size_t valid = ag_utf8_valid_prefix(regex, n);
    if (valid != n) return AG_FAIL(err, FORMAT, "byte %zu: invalid UTF-8", valid);
    AG_TRY(parse_alternatives(&p, &t->root));
    if (more(&p)) return AG_FAIL(err, FORMAT, "byte %zu: ) without (", p.at);
    return AG_OK;
}
