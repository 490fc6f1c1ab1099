/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/regex/char_set.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

void ag_char_set_free(ag_char_set *s) {
    ag_free(s->ranges);
    *s = (ag_char_set){0};
}

ag_status ag_char_set_add(ag_char_set *s, uint32_t lo, uint32_t hi, ag_error *err) {
    AG_TRY(AG_GROW(s->ranges, &s->cap, s->n + 1, err));
    s->ranges[s->n++] = (ag_char_range){lo, hi};
    return AG_OK;
}

ag_status ag_char_set_add_all(ag_char_set *s, const ag_char_set *other, ag_error *err) {
    for (size_t i = 0; i < other->n; i++) {
        AG_TRY(ag_char_set_add(s, other->ranges[i].lo, other->ranges[i].hi, err));
    }
    return AG_OK;
}

static int compare_ranges(const void *a, const void *b) {
    const ag_char_range *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

void ag_char_set_sort(ag_char_set *s) {
    if (s->n < 2) return;
    qsort(s->ranges, s->n, sizeof *s->ranges, compare_ranges);
    size_t n = 1;
    for (size_t i = 1; i < s->n; i++) {
        ag_char_range *last = &s->ranges[n - 1], next = s->ranges[i];
        if (next.lo > last->hi + 1) s->ranges[n++] = next;
        else if (next.hi > last->hi) last->hi = next.hi;
    }
    s->n = n;
}

ag_status ag_char_set_invert(ag_char_set *s, ag_error *err) {
    ag_char_set out = {0};
    ag_status st = AG_OK;
    uint32_t from = 0;
    for (size_t i = 0; i < s->n && st == AG_OK; i++) {
        if (s->ranges[i].lo > from) st = ag_char_set_add(&out, from, s->ranges[i].lo - 1, err);
        from = s->ranges[i].hi + 1;
    }
    if (st == AG_OK && from <= AG_CHAR_MAX) st = ag_char_set_add(&out, from, AG_CHAR_MAX, err);
    ag_char_set_free(s);
    *s = out;
    return st;
}

/* WhiteSpace and LineTerminator of ECMA-262. */
static const ag_char_range spaces[] = {
    {0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
    {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
static const ag_char_range digits[] = {{'0', '9'}};
static const ag_char_range word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const ag_char_range not_word[] = {{0, '/'}, {':', '@'}, {'[', '^'}, {'`', '`'}, {'{', 0x7F}};
static const ag_char_range not_digits[] = {{0, '/'}, {':', AG_CHAR_MAX}};

static ag_status add_ranges(ag_char_set *s, const ag_char_range *r, size_t n, ag_error *err) {
    for (size_t i = 0; i < n; i++) AG_TRY(ag_char_set_add(s, r[i].lo, r[i].hi, err));
    return AG_OK;
}

/* Adds all characters except spaces. For Python, U+0085 and U+001C to U+001F are spaces, too. */
static ag_status add_not_spaces(ag_char_set *s, ag_error *err) {
    ag_char_set all = {0};
    ag_status st = add_ranges(&all, spaces, sizeof spaces / sizeof spaces[0], err);
    if (st == AG_OK) st = ag_char_set_add(&all, 0x1C, 0x1F, err);
    if (st == AG_OK) st = ag_char_set_add(&all, 0x85, 0x85, err);
    ag_char_set_sort(&all);
    if (st == AG_OK) st = ag_char_set_invert(&all, err);
    if (st == AG_OK) st = ag_char_set_add_all(s, &all, err);
    ag_char_set_free(&all);
    return st;
}

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

ag_status ag_char_set_add_class(ag_char_set *s, char which, ag_error *err) {
    switch (which) {
    case 'd':
        return add_ranges(s, digits, COUNT(digits), err);
    case 'D':
        return add_ranges(s, not_digits, COUNT(not_digits), err);
    case 'w':
        return add_ranges(s, word, COUNT(word), err);
    case 'W':
        return add_ranges(s, not_word, COUNT(not_word), err);
    case 's':
        return add_ranges(s, spaces, COUNT(spaces), err);
    default:
        return add_not_spaces(s, err);
    }
}

static const struct {
    const char *name, *category;
} long_names[] = {
    {"Letter", "L"},
    {"Alphabetic", "L"},
    {"Uppercase_Letter", "Lu"},
    {"Lowercase_Letter", "Ll"},
    {"Number", "N"},
    {"Decimal_Number", "Nd"},
    {"Punctuation", "P"},
    {"Symbol", "S"},
    {"Separator", "Z"},
    {"Space_Separator", "Zs"},
    {"Mark", "M"},
    {"Other", "C"},
    {"Control", "Cc"},
    {"Uppercase", "Lu"},
    {"Lowercase", "Ll"},
};

/* category: one or two letters. */
static ag_status add_category(ag_char_set *s, const char *category, ag_error *err) {
    uint32_t from = 0;
    bool inside = false;
    for (uint32_t cp = 0; cp <= AG_CHAR_MAX + 1; cp++) {
        const bool in =
            cp <= AG_CHAR_MAX &&
            !strncmp(utf8proc_category_string((utf8proc_int32_t)cp), category, strlen(category));
        if (in && !inside) from = cp;
        if (!in && inside) AG_TRY(ag_char_set_add(s, from, cp - 1, err));
        inside = in;
    }
    return AG_OK;
}

static bool is_category(const char *name) {
    static const char *const all[] = {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me",
                                      "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi",
                                      "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl",
                                      "Zp", "C",  "Cc", "Cf", "Cn", "Co", "Cs"};
    for (size_t i = 0; i < COUNT(all); i++) {
        if (!strcmp(all[i], name)) return true;
    }
    return false;
}

ag_status ag_char_set_add_property(ag_char_set *s, const char *name, size_t n, ag_error *err) {
    char text[40];
    if (n >= sizeof text) n = sizeof text - 1;
    memcpy(text, name, n);
    text[n] = '\0';
    const char *value = strchr(text, '=');
    value = value ? value + 1 : text;
    if (!strcmp(value, "Any")) return ag_char_set_add(s, 0, AG_CHAR_MAX, err);
    if (!strcmp(value, "ASCII")) return ag_char_set_add(s, 0, 0x7F, err);
    for (size_t i = 0; i < COUNT(long_names); i++) {
        if (!strcmp(long_names[i].name, value)) value = long_names[i].category;
    }
    if (is_category(value)) return add_category(s, value, err);
    return AG_FAIL(err, UNSUPPORTED, "\\p{%s}: unsupported property", text);
}
