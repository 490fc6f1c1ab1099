/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/value/unicode.h"

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

static bool is_decimal(uint32_t cp) {
    if (cp < 0x80) return cp >= '0' && cp <= '9';
    return category(cp) == UTF8PROC_CATEGORY_ND;
}

/* Includes Numeric_Type=Digit: superscripts, circled digits and others. */
bool ag_jchar_is_digit(uint32_t cp) {
    static const uint16_t ranges[][2] = {
        {0xB2, 0xB3},     {0xB9, 0xB9},     {0x1369, 0x1371}, {0x19DA, 0x19DA},
        {0x2070, 0x2070}, {0x2074, 0x2079}, {0x2080, 0x2089}, {0x2460, 0x2468},
        {0x2474, 0x247C}, {0x2488, 0x2490}, {0x24EA, 0x24EA}, {0x24F5, 0x24FD},
        {0x24FF, 0x24FF}, {0x2776, 0x277E}, {0x2780, 0x2788}, {0x278A, 0x2792}};
    if (is_decimal(cp)) return true;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        if (cp >= ranges[i][0] && cp <= ranges[i][1]) return true;
    }
    return (cp >= 0x10A40 && cp <= 0x10A43) || (cp >= 0x10E60 && cp <= 0x10E68) ||
           (cp >= 0x11052 && cp <= 0x1105A) || (cp >= 0x1F100 && cp <= 0x1F10A);
}

bool ag_jchar_is_lower(uint32_t cp) {
    if (cp < 0x80) return cp >= 'a' && cp <= 'z';
    if (category(cp) == UTF8PROC_CATEGORY_LL) return true;
    /* property Other_Lowercase */
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
    utf8proc_category_t k = category(cp);
    return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) ||
           (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
}

/* Characters with several upper-case characters: the unconditional part of Unicode's
 * SpecialCasing.txt without U+1F80 to U+1FAF, ascending. */
static const struct special_case {
    uint16_t cp, upper[3];
} special_cases[] = {{0x00DF, {0x53, 0x53}},          {0x0149, {0x2BC, 0x4E}},
                     {0x01F0, {0x4A, 0x30C}},         {0x0390, {0x399, 0x308, 0x301}},
                     {0x03B0, {0x3A5, 0x308, 0x301}}, {0x0587, {0x535, 0x552}},
                     {0x1E96, {0x48, 0x331}},         {0x1E97, {0x54, 0x308}},
                     {0x1E98, {0x57, 0x30A}},         {0x1E99, {0x59, 0x30A}},
                     {0x1E9A, {0x41, 0x2BE}},         {0x1F50, {0x3A5, 0x313}},
                     {0x1F52, {0x3A5, 0x313, 0x300}}, {0x1F54, {0x3A5, 0x313, 0x301}},
                     {0x1F56, {0x3A5, 0x313, 0x342}}, {0x1FB2, {0x1FBA, 0x399}},
                     {0x1FB3, {0x391, 0x399}},        {0x1FB4, {0x386, 0x399}},
                     {0x1FB6, {0x391, 0x342}},        {0x1FB7, {0x391, 0x342, 0x399}},
                     {0x1FBC, {0x391, 0x399}},        {0x1FC2, {0x1FCA, 0x399}},
                     {0x1FC3, {0x397, 0x399}},        {0x1FC4, {0x389, 0x399}},
                     {0x1FC6, {0x397, 0x342}},        {0x1FC7, {0x397, 0x342, 0x399}},
                     {0x1FCC, {0x397, 0x399}},        {0x1FD2, {0x399, 0x308, 0x300}},
                     {0x1FD3, {0x399, 0x308, 0x301}}, {0x1FD6, {0x399, 0x342}},
                     {0x1FD7, {0x399, 0x308, 0x342}}, {0x1FE2, {0x3A5, 0x308, 0x300}},
                     {0x1FE3, {0x3A5, 0x308, 0x301}}, {0x1FE4, {0x3A1, 0x313}},
                     {0x1FE6, {0x3A5, 0x342}},        {0x1FE7, {0x3A5, 0x308, 0x342}},
                     {0x1FF2, {0x1FFA, 0x399}},       {0x1FF3, {0x3A9, 0x399}},
                     {0x1FF4, {0x38F, 0x399}},        {0x1FF6, {0x3A9, 0x342}},
                     {0x1FF7, {0x3A9, 0x342, 0x399}}, {0x1FFC, {0x3A9, 0x399}},
                     {0xFB00, {0x46, 0x46}},          {0xFB01, {0x46, 0x49}},
                     {0xFB02, {0x46, 0x4C}},          {0xFB03, {0x46, 0x46, 0x49}},
                     {0xFB04, {0x46, 0x46, 0x4C}},    {0xFB05, {0x53, 0x54}},
                     {0xFB06, {0x53, 0x54}},          {0xFB13, {0x544, 0x546}},
                     {0xFB14, {0x544, 0x535}},        {0xFB15, {0x544, 0x53B}},
                     {0xFB16, {0x54E, 0x546}},        {0xFB17, {0x544, 0x53D}}};

/* Writes the upper case of cp if it has several characters. Returns how many, else 0. */
static size_t special_upper(uint32_t cp, uint32_t out[3]) {
    if (cp >= 0x1F80 && cp <= 0x1FAF) { /* Greek letter with iota below: capital, then iota */
        static const uint16_t capitals[] = {0x1F08, 0x1F28, 0x1F68};
        out[0] = capitals[(cp - 0x1F80) / 16] + (cp & 7);
        out[1] = 0x399;
        return 2;
    }
    for (size_t i = 0; i < sizeof special_cases / sizeof *special_cases; i++) {
        if (special_cases[i].cp != cp) continue;
        size_t n = 0;
        for (; n < 3 && special_cases[i].upper[n]; n++) out[n] = special_cases[i].upper[n];
        return n;
    }
    return 0;
}

size_t ag_jchar_case(uint32_t cp, bool upper, uint32_t out[3]) {
    if (cp < 0x80) {
        out[0] = is_ascii_letter(cp) ? (upper ? cp & ~0x20u : cp | 0x20) : cp;
        return 1;
    }
    if (!upper) {
        out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
        if (cp != 0x130) return 1;
        out[0] = 'i'; /* combining dot above */
        out[1] = 0x307;
        return 2;
    }
    const size_t n = special_upper(cp, out);
    if (n) return n;
    out[0] = (uint32_t)utf8proc_toupper((utf8proc_int32_t)cp);
    return 1;
}
