/* SPDX-License-Identifier: Apache-2.0 */
#include "text/normalizer.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "text/unicode_recent.h"
#include "text/utf8.h"

#include <string.h>
#include <utf8proc.h>

struct ag_precompiled {
    uint32_t *units; /* double array, in host byte order */
    size_t n_units;
    char *strings; /* each ends with NUL, the last one optionally */
    size_t n_strings;
};

static int base64_digit(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes base64 with padding. out must hold n / 4 * 3 bytes. Returns false if s is malformed. */
static bool decode_base64(const char *s, size_t n, unsigned char *out, size_t *n_out) {
    size_t pad = 0, at = 0;
    if (n % 4) return false;
    while (pad < 2 && pad < n && s[n - 1 - pad] == '=') pad++;
    uint32_t bits = 0;
    for (size_t i = 0; i < n; i++) {
        int digit = i < n - pad ? base64_digit(s[i]) : 0;
        if (digit < 0) return false;
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4 < 3) continue;
        for (int shift = 16; shift >= 0; shift -= 8) out[at++] = (unsigned char)(bits >> shift);
    }
    *n_out = at - pad;
    return true;
}

static uint32_t little_endian(const unsigned char *p) {
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static ag_status decode_table(ag_precompiled *p, const unsigned char *bytes, size_t n,
                              const char *path, ag_error *err) {
    size_t n_array = n >= 4 ? little_endian(bytes) : 0;
    if (n < 4 || n_array > n - 4 || n_array % 4 || n_array == 0) {
        return AG_FAIL(err, FORMAT, "%s: the table has %zu bytes, the data %zu", path, n_array, n);
    }
    p->n_units = n_array / 4;
    p->n_strings = n - 4 - n_array;
    p->units = ag_malloc(n_array);
    p->strings = ag_strndup((const char *)bytes + 4 + n_array, p->n_strings);
    if (!p->units || !p->strings) return AG_FAIL(err, NOMEM, "%s: %zu bytes", path, n);
    for (size_t i = 0; i < p->n_units; i++) p->units[i] = little_endian(bytes + 4 + 4 * i);
    if (ag_utf8_valid_prefix(p->strings, p->n_strings) == p->n_strings) return AG_OK;
    return AG_FAIL(err, FORMAT, "%s: the strings are not valid UTF-8", path);
}

ag_status ag_precompiled_parse(const char *base64, size_t n, const char *path, ag_precompiled **out,
                               ag_error *err) {
    *out = NULL;
    size_t n_bytes = 0;
    unsigned char *bytes = ag_malloc(n / 4 * 3 + 1);
    ag_precompiled *p = ag_calloc(1, sizeof *p);
    ag_status st = bytes && p ? AG_OK : AG_FAIL(err, NOMEM, "%s: %zu bytes", path, n);
    if (st == AG_OK && !decode_base64(base64, n, bytes, &n_bytes)) {
        st = AG_FAIL(err, FORMAT, "%s is not base64", path);
    }
    if (st == AG_OK) st = decode_table(p, bytes, n_bytes, path, err);
    ag_free(bytes);
    if (st == AG_OK) *out = p;
    else ag_precompiled_destroy(p);
    return st;
}

void ag_precompiled_destroy(ag_precompiled *p) {
    if (!p) return;
    ag_free(p->units);
    ag_free(p->strings);
    ag_free(p);
}

/* Returns the replacement of the shortest prefix of s in the table. Returns NULL if there is none
 * or the table points beyond its end. */
static const char *find_shortest(const ag_precompiled *p, const char *s, size_t n, size_t *n_to) {
    uint32_t unit = p->units[0];
    size_t at = 0;
    for (size_t i = 0; i <= n; i++) {
        at ^= (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
        if (i > 0 && unit >> 8 & 1) {
            size_t to = at < p->n_units ? p->units[at] & 0x7FFFFFFFu : SIZE_MAX;
            if (to > p->n_strings) return NULL;
            *n_to = strnlen(p->strings + to, p->n_strings - to);
            return p->strings + to;
        }
        if (i == n || s[i] == '\0') return NULL;
        at ^= (unsigned char)s[i];
        if (at >= p->n_units) return NULL;
        unit = p->units[at];
        if ((unit & (1u << 31 | 0xFF)) != (unsigned char)s[i]) return NULL;
    }
    return NULL;
}

/* Replaces combining marks newer than utf8proc's tables by an old one: those of Unicode 15 to 16,
 * and two blocks of Unicode 17 that fit a cluster of a few bytes. */
static utf8proc_int32_t substitute_recent_mark(uint32_t cp) {
    bool recent = (cp >= 0x1ACF && cp <= 0x1AEB) || ag_unicode_recent_has(cp, 'M');
    return recent && cp != 0x1ADE && cp != 0x1ADF ? 0x300 : (utf8proc_int32_t)cp;
}

/* Returns the length of the grapheme cluster that text starts with. */
static size_t cluster_len(const char *text, size_t len) {
    uint32_t before, cp;
    utf8proc_int32_t state = 0;
    size_t n = ag_utf8_get(text, &before);
    for (size_t step; n < len; n += step, before = cp) {
        step = ag_utf8_get(text + n, &cp);
        if (utf8proc_grapheme_break_stateful(substitute_recent_mark(before),
                                             substitute_recent_mark(cp), &state))
            break;
    }
    return n;
}

/* The tokenizers library looks up clusters below this size as a whole, but only the shortest known
 * prefix counts. */
enum { MAX_LOOKUP_BYTES = 6 };

static ag_status apply_cluster(const ag_precompiled *p, const char *s, size_t n, ag_text *out,
                               ag_error *err) {
    size_t n_to;
    const char *to = n < MAX_LOOKUP_BYTES ? find_shortest(p, s, n, &n_to) : NULL;
    if (to) return ag_text_append(out, to, n_to, err);
    for (size_t i = 0, step; i < n; i += step) {
        step = ag_utf8_len(s[i]);
        to = find_shortest(p, s + i, step, &n_to);
        AG_TRY(to ? ag_text_append(out, to, n_to, err) : ag_text_append(out, s + i, step, err));
    }
    return AG_OK;
}

ag_status ag_precompiled_apply(const ag_precompiled *p, const char *text, size_t len, size_t limit,
                               ag_text *out, ag_error *err) {
    for (size_t i = 0, n; i < len; i += n) {
        n = cluster_len(text + i, len - i);
        AG_TRY(apply_cluster(p, text + i, n, out, err));
        AG_TRY(ag_growth_check(out->len, limit, "normalizer", err));
    }
    return AG_OK;
}
