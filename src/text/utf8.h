/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 as defined by the Unicode standard (table 3-7: no surrogates, no overlong forms). */
#ifndef AG_TEXT_UTF8_H
#define AG_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AG_UTF8_REPLACEMENT = 0xFFFD };

/* Returns the length of the longest valid prefix of s[0..n). */
size_t ag_utf8_valid_prefix(const char *s, size_t n);

/* Decodes the character at s; n must be above 0. Returns its length and sets *cp; 0 if more bytes
 * are needed; -k if the first k bytes are one error (one U+FFFD: the "maximal subpart" of section
 * 3.9). */
int ag_utf8_step(const char *s, size_t n, uint32_t *cp);

/* Writes cp as 1 to 4 bytes. Returns how many. */
size_t ag_utf8_put(char out[4], uint32_t cp);

/* Decodes the character at s, which must be valid UTF-8. Returns its length. */
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

/* Returns the length of the character that starts with this byte, in valid UTF-8. */
static inline size_t ag_utf8_len(char lead) {
    unsigned char u = (unsigned char)lead;
    return u < 0x80 ? 1 : u < 0xE0 ? 2 : u < 0xF0 ? 3 : 4;
}

/* Returns the start of the last character of s[0..n), which must be valid UTF-8; n must be above
 * 0. */
static inline size_t ag_utf8_last(const char *s, size_t n) {
    do n--;
    while (n > 0 && ((unsigned char)s[n] & 0xC0) == 0x80);
    return n;
}

/* Returns whether cp has the Unicode property White_Space, which is \s in the tokenizers
 * library. */
bool ag_is_white_space(uint32_t cp);

#endif
