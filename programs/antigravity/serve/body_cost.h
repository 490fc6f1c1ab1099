/* SPDX-License-Identifier: Apache-2.0 */
/* What a body will take as JSON, before it is read. */
#ifndef ANTIGRAVITY_SERVE_BODY_COST_H
#define ANTIGRAVITY_SERVE_BODY_COST_H

#include <stddef.h>

/* Of a byte of text that becomes tokens of a prompt, and where these become JSON again. Measured:
 * 13 and 46. */
enum { TEXT_COST = 16, TOKENS_COST = 64 };

/* Bytes, not fewer than text[0..n) takes if it is JSON. A byte of text costs per_byte; a list of
 * empty objects takes 77 times its bytes by itself. */
size_t body_cost(const char *text, size_t n, size_t per_byte);

#endif
