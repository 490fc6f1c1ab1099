/* SPDX-License-Identifier: Apache-2.0 */
#include "text/utf8.h"

#include <string.h>

/* Returns whether b may follow the lead byte (table 3-7). */
static bool second_ok(unsigned char lead, unsigned char b) {
    switch (lead) {
    case 0xE0:
        return b >= 0xA0 && b <= 0xBF;
    case 0xED:
        return b >= 0x80 && b <= 0x9F;
    case 0xF0:
        return b >= 0x90 && b <= 0xBF;
    case 0xF4:
        return b >= 0x80 && b <= 0x8F;
    default:
        return (b & 0xC0) == 0x80;
    }
}

int ag_utf8_step(const char *s, size_t n, uint32_t *cp) {
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80) {
        *cp = u[0];
        return 1;
    }
    if (u[0] < 0xC2 || u[0] > 0xF4) return -1;
    size_t need = u[0] < 0xE0 ? 2 : u[0] < 0xF0 ? 3 : 4;
    for (size_t i = 1; i < need; i++) {
        if (i == n) return 0;
        bool ok = i == 1 ? second_ok(u[0], u[1]) : (u[i] & 0xC0) == 0x80;
        if (!ok) return -(int)i;
    }
    return (int)ag_utf8_get(s, cp);
}

size_t ag_utf8_valid_prefix(const char *s, size_t n) {
    size_t i = 0;
    while (i < n) {
        uint64_t eight;
        while (n - i >= sizeof eight) {
            memcpy(&eight, s + i, sizeof eight);
            if (eight & UINT64_C(0x8080808080808080)) break;
            i += sizeof eight;
        }
        if (i == n) break;
        uint32_t cp;
        int step = ag_utf8_step(s + i, n - i, &cp);
        if (step <= 0) return i;
        i += (size_t)step;
    }
    return i;
}

size_t ag_utf8_put(char out[4], uint32_t cp) {
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

bool ag_is_white_space(uint32_t cp) {
    if (cp <= 0x20) return cp == 0x20 || (cp >= 0x09 && cp <= 0x0D);
    if (cp < 0x85) return false;
    if (cp >= 0x2000 && cp <= 0x200A) return true;
    switch (cp) {
    case 0x85:
    case 0xA0:
    case 0x1680:
    case 0x2028:
    case 0x2029:
    case 0x202F:
    case 0x205F:
    case 0x3000:
        return true;
    default:
        return false;
    }
}
