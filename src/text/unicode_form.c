/* SPDX-License-Identifier: Apache-2.0 */
/* NFC, NFD, NFKC and NFKD. utf8proc knows the characters; the walk over a text is ours, because its
 * own orders combining marks in quadratic time and drops U+11A7 behind a Hangul syllable. */
#include "core/alloc.h"
#include "core/fail.h"
#include "text/normalizer.h"
#include "text/utf8.h"

#include <string.h>
#include <utf8proc.h>

enum { MAX_DECOMPOSITION = 32, HANGUL_T_BASE = 0x11A7, N_CLASSES = 256 };

typedef struct points {
    int32_t *cp, *sorted; /* sorted: scratch of the same size */
    size_t n, cap, sorted_cap;
} points;

static ag_status decompose(points *p, uint32_t cp, bool compat, ag_error *err) {
    void *grown = p->cp;
    ag_status st = ag_array_grow(&grown, &p->cap, p->n + MAX_DECOMPOSITION, sizeof *p->cp, err);
    p->cp = grown;
    if (st != AG_OK) return st;
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
    return cp < 0x300 ? 0 : (unsigned)utf8proc_get_property(cp)->combining_class;
}

/* Orders marks [start, end) by class, equal ones as they came: a counting sort, since a hostile
 * text is one character with a million marks. */
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
    void *grown = p->sorted;
    ag_status st = ag_array_grow(&grown, &p->sorted_cap, p->n, sizeof *p->sorted, err);
    p->sorted = grown;
    if (st != AG_OK) return st;
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

/* Composes [start, end) of p in place and appends it. U+11A7 never takes part in a composition, but
 * utf8proc counts it among the Hangul finals: it is kept out of its sight. */
static ag_status compose(points *p, ag_text *out, ag_error *err) {
    for (size_t i = 0, end; i < p->n; i = end) {
        utf8proc_ssize_t n = 1;
        for (end = i; end < p->n && p->cp[end] != HANGUL_T_BASE;) end++;
        if (end > i) {
            n = utf8proc_normalize_utf32(p->cp + i, (utf8proc_ssize_t)(end - i),
                                         (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
        } else {
            end++;
        }
        if (n < 0) return AG_FAIL(err, FORMAT, "%s", utf8proc_errmsg(n));
        for (utf8proc_ssize_t k = 0; k < n; k++) {
            AG_TRY(ag_text_append_char(out, (uint32_t)p->cp[i + (size_t)k], err));
        }
    }
    return AG_OK;
}

static ag_status normalize_run(ag_unicode_form form, const char *text, size_t len, points *p,
                               ag_text *out, ag_error *err) {
    p->n = 0;
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        i += ag_utf8_get(text + i, &cp);
        AG_TRY(decompose(p, cp, form == AG_NFKC || form == AG_NFKD, err));
    }
    AG_TRY(reorder(p, err));
    if (form == AG_NFC || form == AG_NFKC) return compose(p, out, err);
    for (size_t i = 0; i < p->n; i++) AG_TRY(ag_text_append_char(out, (uint32_t)p->cp[i], err));
    return AG_OK;
}

/* A run is an ASCII character and what is not ASCII behind it: ASCII never combines to its left.
 * Nothing below this lead byte changes: U+00A0 has a compatibility form, U+00C0 is composed, and
 * U+0300 is the first that NFC looks at. */
static unsigned char first_lead(ag_unicode_form form) {
    return form == AG_NFC ? 0xCC : form == AG_NFD ? 0xC3 : 0xC2;
}

ag_status ag_unicode_normalize(ag_unicode_form form, const char *text, size_t len, ag_text *out,
                               ag_error *err) {
    points p = {0};
    ag_status st = AG_OK;
    unsigned char lead = first_lead(form);
    size_t plain = 0, i = 0; /* text[plain..i) is to be copied */
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
