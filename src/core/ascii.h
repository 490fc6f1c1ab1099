/* SPDX-License-Identifier: Apache-2.0 */
/* Comparison of text that ignores the case of ASCII letters, whatever the locale. */
#ifndef AG_CORE_ASCII_H
#define AG_CORE_ASCII_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static inline char ag_ascii_lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Returns whether the first n characters are equal, up to a NUL. */
static inline bool ag_ascii_equal_n(const char *a, const char *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (ag_ascii_lower(a[i]) != ag_ascii_lower(b[i])) return false;
        if (!a[i]) return true;
    }
    return true;
}

static inline bool ag_ascii_equal(const char *a, const char *b) {
    return strlen(a) == strlen(b) && ag_ascii_equal_n(a, b, strlen(a));
}

#endif
