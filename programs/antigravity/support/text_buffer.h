/* SPDX-License-Identifier: Apache-2.0 */
/* Growing text buffer. Zero-initialise; release with text_release(). */
#ifndef ANTIGRAVITY_TEXT_BUFFER_H
#define ANTIGRAVITY_TEXT_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct text_buffer {
    char *data; /* NUL-terminated; NULL while empty */
    size_t len, cap;
    bool failed; /* out of memory: later additions are ignored */
} text_buffer;

void text_append(text_buffer *t, const char *text, size_t len);
void text_add(text_buffer *t, const char *text);
void text_addf(text_buffer *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_release(text_buffer *t);
/* Truncates the text to `len` bytes. */
void text_cut(text_buffer *t, size_t len);
/* Empties the buffer and clears `failed`. */
void text_empty(text_buffer *t);

#endif
