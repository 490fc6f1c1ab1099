/* SPDX-License-Identifier: Apache-2.0 */
/* Growing texts whose memory is charged to the calling thread's account. Zero-initialise a text,
 * and free its data with account_free(). */
#ifndef ANTIGRAVITY_SERVE_THREADS_ACCOUNT_TEXT_H
#define ANTIGRAVITY_SERVE_THREADS_ACCOUNT_TEXT_H

#include <antigravity/tokenizer.h>

/* Appends n bytes and a NUL, which is not counted. Fails without memory and leaves the text
 * unchanged. */
bool account_text_append(ag_text *t, const char *bytes, size_t n);
/* Appends formatted text, in the same way. */
bool account_text_printf(ag_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
