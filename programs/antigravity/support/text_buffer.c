/* SPDX-License-Identifier: Apache-2.0 */
#include "text_buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ensures space for n more bytes and a NUL. */
static bool reserve(text_buffer *t, size_t n) {
    if (t->failed || n < t->cap - t->len) return !t->failed;
    size_t cap = t->cap ? t->cap : 256;
    while (cap - t->len <= n) cap *= 2;
    char *grown = realloc(t->data, cap);
    t->failed = !grown;
    if (!grown) return false;
    t->data = grown;
    t->cap = cap;
    return true;
}

void text_append(text_buffer *t, const char *text, size_t len) {
    if (!reserve(t, len)) return;
    memcpy(t->data + t->len, text, len);
    t->data[t->len += len] = '\0';
}

void text_add(text_buffer *t, const char *text) { text_append(t, text, strlen(text)); }

void text_addf(text_buffer *t, const char *format, ...) {
    va_list first, second;
    va_start(first, format);
    va_copy(second, first);
    const int n = vsnprintf(NULL, 0, format, first);
    if (n >= 0 && reserve(t, (size_t)n)) {
        vsnprintf(t->data + t->len, (size_t)n + 1, format, second);
        t->len += (size_t)n;
    }
    va_end(second);
    va_end(first);
}

void text_release(text_buffer *t) {
    free(t->data);
    *t = (text_buffer){0};
}

void text_cut(text_buffer *t, size_t len) {
    if (t->len > len) t->data[t->len = len] = '\0';
}

void text_empty(text_buffer *t) {
    text_cut(t, 0);
    t->failed = false;
}
