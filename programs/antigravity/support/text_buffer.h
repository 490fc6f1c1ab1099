/* SPDX-License-Identifier: Apache-2.0 */
/* A text that grows. Zero-initialise; the caller's to release. */
#ifndef ANTIGRAVITY_TEXT_BUFFER_H
#define ANTIGRAVITY_TEXT_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct text_buffer {
    char *data; /* ends in a NUL that is not counted; NULL while it is empty */
    size_t len, cap;
    bool failed; /* memory was short: from then on nothing is added */
} text_buffer;

void text_append(text_buffer *t, const char *text, size_t len);
void text_add(text_buffer *t, const char *text);
void text_addf(text_buffer *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_release(text_buffer *t);
/* Only the first `len` bytes of at least as many stay. */
void text_cut(text_buffer *t, size_t len);
/* For the next text. */
void text_empty(text_buffer *t);

#endif
