/* SPDX-License-Identifier: Apache-2.0 */
/* What a body will take as JSON, before it is read. */
#ifndef ANTIGRAVITY_SERVE_BODY_COST_H
#define ANTIGRAVITY_SERVE_BODY_COST_H

#include <stddef.h>

/* Bytes, not fewer than jansson takes for text[0..n), if that is JSON. A text costs little more
 * than its bytes, a list of empty objects 77 times as many. */
size_t body_cost(const char *text, size_t n);

#endif
