/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/jinja_unicode.h"

#include "chat/jinja_case_table.h"
#include "text/utf8.h"

#include <utf8proc.h>

static utf8proc_category_t category(uint32_t cp) { return utf8proc_category((utf8proc_int32_t)cp); }

bool ag_jchar_is_space(uint32_t cp) {
    if (cp < 0x80) return (cp >= 9 && cp <= 13) || (cp >= 0x1C && cp <= 0x20);
    return ag_is_white_space(cp);
}

bool ag_jchar_is_line_end(uint32_t cp) {
    return (cp >= 10 && cp <= 13) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

static bool is_ascii_letter(uint32_t cp) { return (cp | 0x20) >= 'a' && (cp | 0x20) <= 'z'; }

bool ag_jchar_is_alpha(uint32_t cp) {
    if (cp < 0x80) return is_ascii_letter(cp);
    utf8proc_category_t k = category(cp);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool ag_jchar_is_decimal(uint32_t cp) {
    if (cp < 0x80) return cp >= '0' && cp <= '9';
    return category(cp) == UTF8PROC_CATEGORY_ND;
}

/* Numeric_Type=Digit: superscripts, circled digits and their like. */
bool ag_jchar_is_digit(uint32_t cp) {
    static const uint16_t ranges[][2] = {
        {0xB2, 0xB3},     {0xB9, 0xB9},     {0x1369, 0x1371}, {0x19DA, 0x19DA},
        {0x2070, 0x2070}, {0x2074, 0x2079}, {0x2080, 0x2089}, {0x2460, 0x2468},
        {0x2474, 0x247C}, {0x2488, 0x2490}, {0x24EA, 0x24EA}, {0x24F5, 0x24FD},
        {0x24FF, 0x24FF}, {0x2776, 0x277E}, {0x2780, 0x2788}, {0x278A, 0x2792}};
    if (ag_jchar_is_decimal(cp)) return true;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        if (cp >= ranges[i][0] && cp <= ranges[i][1]) return true;
    }
    return (cp >= 0x10A40 && cp <= 0x10A43) || (cp >= 0x10E60 && cp <= 0x10E68) ||
           (cp >= 0x11052 && cp <= 0x1105A) || (cp >= 0x1F100 && cp <= 0x1F10A);
}

bool ag_jchar_is_numeric(uint32_t cp) {
    if (ag_jchar_is_digit(cp)) return true;
    if (cp < 0x80) return false;
    utf8proc_category_t k = category(cp);
    if (k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO) return true;
    /* Numbers among the ideographs, the common ones. */
    static const uint16_t ideographs[] = {
        0x3007, 0x3405, 0x3483, 0x382A, 0x3B4D, 0x4E00, 0x4E03, 0x4E07, 0x4E09, 0x4E5D,
        0x4E8C, 0x4E94, 0x4EBF, 0x4EC0, 0x4EDF, 0x4EE8, 0x4F0D, 0x4F70, 0x5104, 0x5146,
        0x5169, 0x516B, 0x516D, 0x5341, 0x5343, 0x5344, 0x5345, 0x534C, 0x53C1, 0x53C2,
        0x53C3, 0x53C4, 0x56DB, 0x58F1, 0x58F9, 0x5E7A, 0x5EFE, 0x5EFF, 0x5F0C, 0x5F0D,
        0x5F0E, 0x5F10, 0x62FE, 0x634C, 0x67D2, 0x6F06, 0x7396, 0x767E, 0x8086, 0x842C,
        0x8CAE, 0x8CB3, 0x8D30, 0x9621, 0x9646, 0x964C, 0x9678, 0x96F6};
    for (size_t i = 0; i < sizeof ideographs / sizeof *ideographs; i++) {
        if (ideographs[i] == cp) return true;
    }
    return false;
}

bool ag_jchar_is_lower(uint32_t cp) {
    if (cp < 0x80) return cp >= 'a' && cp <= 'z';
    if (category(cp) == UTF8PROC_CATEGORY_LL) return true;
    /* Other_Lowercase */
    return cp == 0xAA || cp == 0xBA || (cp >= 0x2B0 && cp <= 0x2B8) || cp == 0x2C0 || cp == 0x2C1 ||
           (cp >= 0x2E0 && cp <= 0x2E4) || cp == 0x345 || cp == 0x37A ||
           (cp >= 0x1D2C && cp <= 0x1D6A) || cp == 0x1D78 || (cp >= 0x1D9B && cp <= 0x1DBF) ||
           cp == 0x2071 || cp == 0x207F || (cp >= 0x2090 && cp <= 0x209C) ||
           (cp >= 0x2170 && cp <= 0x217F) || (cp >= 0x24D0 && cp <= 0x24E9) || cp == 0x2C7C ||
           cp == 0x2C7D || cp == 0xA69C || cp == 0xA69D || cp == 0xA770 || cp == 0xA7F8 ||
           cp == 0xA7F9 || (cp >= 0xAB5C && cp <= 0xAB5F);
}

bool ag_jchar_is_upper(uint32_t cp) {
    if (cp < 0x80) return cp >= 'A' && cp <= 'Z';
    return category(cp) == UTF8PROC_CATEGORY_LU || (cp >= 0x2160 && cp <= 0x216F) ||
           (cp >= 0x24B6 && cp <= 0x24CF) || (cp >= 0x1F130 && cp <= 0x1F149) ||
           (cp >= 0x1F150 && cp <= 0x1F169) || (cp >= 0x1F170 && cp <= 0x1F189);
}

bool ag_jchar_is_title(uint32_t cp) { return cp >= 0x80 && category(cp) == UTF8PROC_CATEGORY_LT; }

bool ag_jchar_is_cased(uint32_t cp) {
    return ag_jchar_is_lower(cp) || ag_jchar_is_upper(cp) || ag_jchar_is_title(cp);
}

bool ag_jchar_is_printable(uint32_t cp) {
    if (cp < 0x80) return cp >= 0x20 && cp < 0x7F;
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

bool ag_jchar_is_word(uint32_t cp) {
    if (cp < 0x80) return cp == '_' || (cp >= '0' && cp <= '9') || is_ascii_letter(cp);
    return ag_jchar_is_alpha(cp) || ag_jchar_is_numeric(cp);
}

bool ag_jchar_is_identifier(uint32_t cp, bool first) {
    if (cp < 0x80) return cp == '_' || is_ascii_letter(cp) || (!first && cp >= '0' && cp <= '9');
    utf8proc_category_t k = category(cp);
    if (ag_jchar_is_alpha(cp) || k == UTF8PROC_CATEGORY_NL) return true;
    return !first && (k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC ||
                      k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_PC || cp == 0xB7);
}

static const struct special_case *special(uint32_t cp) {
    size_t low = 0, high = sizeof special_cases / sizeof *special_cases;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (special_cases[mid].cp == cp) return &special_cases[mid];
        if (special_cases[mid].cp < cp) low = mid + 1;
        else high = mid;
    }
    return NULL;
}

static size_t copy_case(const uint32_t from[3], uint32_t out[3]) {
    size_t n = 0;
    while (n < 3 && from[n]) out[n] = from[n], n++;
    return n;
}

static size_t fold(uint32_t cp, uint32_t out[3]) {
    utf8proc_int32_t to[8];
    int last = 0;
    utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)cp, to, 8, UTF8PROC_CASEFOLD, &last);
    if (n < 1 || n > 3) return out[0] = cp, 1;
    for (utf8proc_ssize_t i = 0; i < n; i++) out[i] = (uint32_t)to[i];
    return (size_t)n;
}

size_t ag_jchar_case(uint32_t cp, ag_jcase to, uint32_t out[3]) {
    if (cp < 0x80) {
        bool down = to == AG_JCASE_LOWER || to == AG_JCASE_FOLD;
        out[0] = is_ascii_letter(cp) ? (down ? cp | 0x20 : cp & ~0x20u) : cp;
        return 1;
    }
    if (to == AG_JCASE_FOLD) return fold(cp, out);
    if (to == AG_JCASE_LOWER) {
        out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
        if (cp != 0x130) return 1;
        out[0] = 'i'; /* with the dot that it had */
        out[1] = 0x307;
        return 2;
    }
    const struct special_case *s = special(cp);
    if (s) return copy_case(to == AG_JCASE_UPPER ? s->upper : s->title, out);
    utf8proc_int32_t one = (utf8proc_int32_t)cp;
    out[0] = (uint32_t)(to == AG_JCASE_UPPER ? utf8proc_toupper(one) : utf8proc_totitle(one));
    return 1;
}
