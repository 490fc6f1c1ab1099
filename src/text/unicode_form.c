/* SPDX-License-Identifier: Apache-2.0 */
/* NFC, NFD, NFKC and NFKD with utf8proc's tables. Walks the text itself, because utf8proc sorts
 * combining marks in quadratic time and drops U+11A7 after a Hangul syllable. */
#include "core/alloc.h"
#include "core/fail.h"
#include "core/interrupt.h"
#include "text/normalizer.h"
#include "text/utf8.h"

#include <string.h>
#include <utf8proc.h>

enum { MAX_DECOMPOSITION = 32, HANGUL_T_BASE = 0x11A7, N_CLASSES = 256 };

/* Characters added after Unicode 9, which the tokenizers library uses, that would decompose,
 * combine or be reordered. They stay unchanged. */
static const struct {
    uint32_t first, last;
} after_9[] = {
    {0x07FD, 0x07FD},   {0x0897, 0x089F},   {0x08CA, 0x08D3},   {0x09FE, 0x09FE},
    {0x0AFA, 0x0AFF},   {0x0B55, 0x0B55},   {0x0C04, 0x0C04},   {0x0C3C, 0x0C3C},
    {0x0CF3, 0x0CF3},   {0x0D00, 0x0D00},   {0x0D3B, 0x0D3C},   {0x0D81, 0x0D81},
    {0x0EBA, 0x0EBA},   {0x0ECE, 0x0ECE},   {0x1715, 0x1715},   {0x180F, 0x180F},
    {0x1ABF, 0x1ACE},   {0x1CF7, 0x1CF7},   {0x1DF6, 0x1DFA},   {0x32FF, 0x32FF},
    {0xA7F2, 0xA7F4},   {0xA82C, 0xA82C},   {0xA8FF, 0xA8FF},   {0xAB69, 0xAB69},
    {0x105C9, 0x105C9}, {0x105D2, 0x105D2}, {0x105DA, 0x105DA}, {0x105E4, 0x105E4},
    {0x10781, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}, {0x10D24, 0x10D27},
    {0x10D69, 0x10D6D}, {0x10EAB, 0x10EAC}, {0x10EFC, 0x10EFF}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x11073, 0x11074}, {0x110C2, 0x110C2},
    {0x11145, 0x11146}, {0x111CE, 0x111CF}, {0x11241, 0x11241}, {0x1133B, 0x1133B},
    {0x11382, 0x11391}, {0x113B8, 0x113C0}, {0x113C2, 0x113C2}, {0x113C5, 0x113C5},
    {0x113C7, 0x113CA}, {0x113CC, 0x113D0}, {0x113D2, 0x113D2}, {0x113E1, 0x113E2},
    {0x1145E, 0x1145E}, {0x1182C, 0x1183A}, {0x11930, 0x11935}, {0x11937, 0x11938},
    {0x1193B, 0x1193E}, {0x11940, 0x11940}, {0x11942, 0x11943}, {0x119D1, 0x119D7},
    {0x119DA, 0x119E0}, {0x119E4, 0x119E4}, {0x11A01, 0x11A0A}, {0x11A33, 0x11A39},
    {0x11A3B, 0x11A3E}, {0x11A47, 0x11A47}, {0x11A51, 0x11A5B}, {0x11A8A, 0x11A99},
    {0x11D31, 0x11D36}, {0x11D3A, 0x11D3A}, {0x11D3C, 0x11D3D}, {0x11D3F, 0x11D45},
    {0x11D47, 0x11D47}, {0x11D8A, 0x11D8E}, {0x11D90, 0x11D91}, {0x11D93, 0x11D97},
    {0x11EF3, 0x11EF6}, {0x11F00, 0x11F01}, {0x11F03, 0x11F03}, {0x11F34, 0x11F3A},
    {0x11F3E, 0x11F42}, {0x11F5A, 0x11F5A}, {0x13440, 0x13440}, {0x13447, 0x13455},
    {0x1611E, 0x1612F}, {0x16D63, 0x16D6A}, {0x16F4F, 0x16F4F}, {0x16F7F, 0x16F87},
    {0x16FE4, 0x16FE4}, {0x16FF0, 0x16FF1}, {0x1CCD6, 0x1CCF9}, {0x1CF00, 0x1CF2D},
    {0x1CF30, 0x1CF46}, {0x1E030, 0x1E06D}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136},
    {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1E5EE, 0x1E5EF},
    {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9},
};

static bool is_after_9(uint32_t cp) {
    size_t lo = 0, hi = sizeof after_9 / sizeof *after_9;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (after_9[mid].last < cp) lo = mid + 1;
        else hi = mid;
    }
    return lo < sizeof after_9 / sizeof *after_9 && after_9[lo].first <= cp;
}

typedef struct points {
    int32_t *cp, *sorted; /* sorted: scratch of equal size */
    size_t n, cap, sorted_cap;
} points;

static ag_status decompose(points *p, uint32_t cp, bool compat, ag_error *err) {
    AG_TRY(AG_GROW(p->cp, &p->cap, p->n + MAX_DECOMPOSITION, err));
    if (is_after_9(cp)) {
        p->cp[p->n++] = (int32_t)cp;
        return AG_OK;
    }
    int boundary = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char(
        (int32_t)cp, p->cp + p->n, MAX_DECOMPOSITION,
        (utf8proc_option_t)(UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0)), &boundary);
    if (n < 0 || n > MAX_DECOMPOSITION) {
        return AG_FAIL(err, FORMAT, "U+%04X cannot be decomposed", (unsigned)cp);
    }
    p->n += (size_t)n;
    return AG_OK;
}

static unsigned combining_class(int32_t cp) {
    if (cp < 0x300 || is_after_9((uint32_t)cp)) return 0;
    return (unsigned)utf8proc_get_property(cp)->combining_class;
}

/* Sorts marks [start, end) stably by class. Counting sort: a hostile text can have a million marks
 * on one character. */
static void sort_marks(points *p, size_t start, size_t end) {
    size_t first[N_CLASSES + 1] = {0};
    for (size_t i = start; i < end; i++) first[combining_class(p->cp[i]) + 1]++;
    for (size_t c = 1; c <= N_CLASSES; c++) first[c] += first[c - 1];
    for (size_t i = start; i < end; i++) {
        p->sorted[first[combining_class(p->cp[i])]++] = p->cp[i];
    }
    memcpy(p->cp + start, p->sorted, (end - start) * sizeof *p->cp);
}

static ag_status reorder(points *p, ag_error *err) {
    AG_TRY(AG_GROW(p->sorted, &p->sorted_cap, p->n, err));
    for (size_t i = 0, end; i < p->n; i = end) {
        end = i + 1;
        unsigned last = combining_class(p->cp[i]);
        if (last == 0) continue;
        bool ordered = true;
        for (; end < p->n; end++) {
            unsigned c = combining_class(p->cp[end]);
            if (c == 0) break;
            ordered &= c >= last;
            last = c;
        }
        if (!ordered) sort_marks(p, i, end);
    }
    return AG_OK;
}

/* Returns whether cp may compose. U+11A7 never does, but utf8proc treats it as a Hangul final. */
static bool composes(int32_t cp) { return cp != HANGUL_T_BASE && !is_after_9((uint32_t)cp); }

/* Composes the characters in p in place and appends them. Runs passed to utf8proc exclude
 * characters that must not compose. */
static ag_status compose(points *p, ag_text *out, ag_error *err) {
    for (size_t i = 0, end; i < p->n; i = end) {
        utf8proc_ssize_t n = 1;
        for (end = i; end < p->n && composes(p->cp[end]);) end++;
        if (end > i) {
            n = utf8proc_normalize_utf32(p->cp + i, (utf8proc_ssize_t)(end - i),
                                         (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
        } else {
            end++;
        }
        if (n < 0) return AG_FAIL(err, FORMAT, "composing a text: %s", utf8proc_errmsg(n));
        for (utf8proc_ssize_t k = 0; k < n; k++) {
            AG_TRY(ag_text_append_char(out, (uint32_t)p->cp[i + (size_t)k], err));
        }
    }
    return AG_OK;
}

static ag_status normalize_run(ag_unicode_form form, const char *text, size_t len, points *p,
                               ag_text *out, ag_error *err) {
    p->n = 0;
    for (size_t i = 0, n = 0; i < len; n++) {
        uint32_t cp;
        i += ag_utf8_get(text + i, &cp);
        if (ag_interrupted_at(n)) return AG_FAIL(err, CANCELLED, "normalizing text: interrupted");
        AG_TRY(decompose(p, cp, form == AG_NFKC || form == AG_NFKD, err));
    }
    AG_TRY(reorder(p, err));
    if (form == AG_NFC || form == AG_NFKC) return compose(p, out, err);
    for (size_t i = 0; i < p->n; i++) AG_TRY(ag_text_append_char(out, (uint32_t)p->cp[i], err));
    return AG_OK;
}

/* Returns the lowest lead byte of a character that the form can change: U+00A0 has a compatibility
 * form, U+00C0 decomposes, U+0300 is the first relevant to NFC. A run is an ASCII character and the
 * non-ASCII characters after it, because ASCII never combines with a preceding character. */
static unsigned char first_lead(ag_unicode_form form) {
    return form == AG_NFC ? 0xCC : form == AG_NFD ? 0xC3 : 0xC2;
}

ag_status ag_unicode_normalize(ag_unicode_form form, const char *text, size_t len, ag_text *out,
                               ag_error *err) {
    points p = {0};
    ag_status st = AG_OK;
    unsigned char lead = first_lead(form);
    size_t plain = 0, i = 0; /* text[plain..i) will be copied */
    while (i < len) {
        if ((unsigned char)text[i] < lead) {
            i++;
            continue;
        }
        size_t start = i, end = i;
        while (start > plain && (unsigned char)text[start] >= 0x80) start--;
        while (end < len && (unsigned char)text[end] >= 0x80) end++;
        if ((st = ag_text_append(out, text + plain, start - plain, err)) != AG_OK) break;
        if ((st = normalize_run(form, text + start, end - start, &p, out, err)) != AG_OK) break;
        plain = i = end;
    }
    if (st == AG_OK) st = ag_text_append(out, text + plain, len - plain, err);
    ag_free(p.cp);
    ag_free(p.sorted);
    return st;
}
