/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 as the Unicode standard defines it (table 3-7: no surrogates, no overlong forms). */
#ifndef AG_TEXT_UTF8_H
#define AG_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AG_UTF8_REPLACEMENT = 0xFFFD };

/* Length of the longest valid prefix of s[0..n). */
size_t ag_utf8_valid_prefix(const char *s, size_t n);

/* What stands at the start of s[0..n), n > 0: a whole character (its length, cp set), a beginning
 * that more bytes could complete (0), or an error (minus the bytes that one U+FFFD replaces: the
 * "maximal subpart" of the standard's section 3.9). */
int ag_utf8_step(const char *s, size_t n, uint32_t *cp);

/* Writes 1 to 4 bytes. */
size_t ag_utf8_put(char out[4], uint32_t cp);

/* Of valid UTF-8: the character at s, and its length. */
static inline size_t ag_utf8_get(const char *s, uint32_t *cp) {
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80) {
        *cp = u[0];
        return 1;
    }
    if (u[0] < 0xE0) {
        *cp = (u[0] & 0x1Fu) << 6 | (u[1] & 0x3Fu);
        return 2;
    }
    if (u[0] < 0xF0) {
        *cp = (u[0] & 0x0Fu) << 12 | (u[1] & 0x3Fu) << 6 | (u[2] & 0x3Fu);
        return 3;
    }
    *cp = (u[0] & 0x07u) << 18 | (u[1] & 0x3Fu) << 12 | (u[2] & 0x3Fu) << 6 | (u[3] & 0x3Fu);
    return 4;
}

/* Of valid UTF-8: the length of the character that begins with this byte. */
static inline size_t ag_utf8_len(char lead) {
    unsigned char u = (unsigned char)lead;
    return u < 0x80 ? 1 : u < 0xE0 ? 2 : u < 0xF0 ? 3 : 4;
}

/* Of valid UTF-8, n > 0: where the last character of s[0..n) begins. */
static inline size_t ag_utf8_last(const char *s, size_t n) {
    do n--;
    while (n > 0 && ((unsigned char)s[n] & 0xC0) == 0x80);
    return n;
}

/* The Unicode property White_Space: what the tokenizers library calls \s. */
bool ag_is_white_space(uint32_t cp);

#endif
