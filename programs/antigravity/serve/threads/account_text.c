/* SPDX-License-Identifier: Apache-2.0 */
#include "account_text.h"

#include "account.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MIN_BYTES = 256 };

/* Ensures space for n more bytes and a NUL. */
static bool reserve(ag_text *t, size_t n) {
    if (t->len + n + 1 <= t->cap) return true;
    size_t cap = t->cap ? 2 * t->cap : MIN_BYTES;
    if (cap < t->len + n + 1) cap = t->len + n + 1;
    char *grown = account_realloc(t->data, cap);
    if (!grown) return false;
    t->data = grown;
    t->cap = cap;
    return true;
}

bool account_text_append(ag_text *t, const char *bytes, size_t n) {
    if (!reserve(t, n)) return false;
    if (n) memcpy(t->data + t->len, bytes, n);
    t->len += n;
    t->data[t->len] = '\0';
    return true;
}

bool account_text_printf(ag_text *t, const char *fmt, ...) {
    for (;;) {
        const size_t space = t->cap - t->len;
        va_list args;
        va_start(args, fmt);
        const int n = vsnprintf(space ? t->data + t->len : NULL, space, fmt, args);
        va_end(args);
        if (n < 0) return false;
        if ((size_t)n < space) {
            t->len += (size_t)n;
            return true;
        }
        if (!reserve(t, (size_t)n)) return false;
    }
}
