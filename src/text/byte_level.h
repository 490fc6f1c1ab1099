/* SPDX-License-Identifier: Apache-2.0 */
/* Byte-level alphabet of GPT-2: writes each byte as one visible character, so that a vocabulary of
 * bytes can be stored as text ("Ġthe" is " the"). Printable Latin-1 characters represent
 * themselves, the other 68 bytes are U+0100 and above. Source: Radford et al. 2019, encoder.py. */
#ifndef AG_TEXT_BYTE_LEVEL_H
#define AG_TEXT_BYTE_LEVEL_H

#include <stddef.h>
#include <stdint.h>

static inline uint32_t ag_byte_level_char(unsigned char b) {
    if (b <= 0x20) return 0x100u + b;
    if (b < 0x7F) return b;
    if (b <= 0xA0) return 0x121u + (b - 0x7Fu);
    if (b == 0xAD) return 0x143u;
    return b;
}

/* Returns the byte that cp represents, -1 if there is none. */
static inline int ag_byte_level_byte(uint32_t cp) {
    if (cp <= 0x20) return -1;
    if (cp < 0x7F) return (int)cp;
    if (cp <= 0xA0 || cp == 0xAD || cp > 0x143) return -1;
    if (cp < 0x100) return (int)cp;
    if (cp <= 0x120) return (int)(cp - 0x100);
    if (cp <= 0x142) return (int)(cp - 0x121 + 0x7F);
    return 0xAD;
}

/* Writes s[0..n) in the alphabet to out, which must hold 2 * n bytes. Returns the number of bytes
 * written. */
static inline size_t ag_byte_level_write(char *out, const char *s, size_t n) {
    char *p = out;
    for (size_t i = 0; i < n; i++) {
        uint32_t cp = ag_byte_level_char((unsigned char)s[i]);
        if (cp < 0x80) {
            *p++ = (char)cp;
        } else {
            *p++ = (char)(0xC0 | cp >> 6);
            *p++ = (char)(0x80 | (cp & 0x3F));
        }
    }
    return (size_t)(p - out);
}

#endif
