/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as Python reads, writes and computes them, in any locale of the process. */
#ifndef AG_JINJA_VALUE_NUMBER_H
#define AG_JINJA_VALUE_NUMBER_H

#include "jinja/value/value.h"

/* The literal of a number, single underscores between digits allowed; spaces around it are not.
 * base 0: 0x, 0o and 0b tell. False: it is none, or does not fit. */
bool ag_jparse_int(const char *s, size_t n, int base, int64_t *out);
bool ag_jparse_float(const char *s, size_t n, double *out); /* inf and nan too */

enum { AG_JFLOAT_BYTES = 40 };
/* repr(): the shortest digits that give the same number back. Returns the length. */
size_t ag_jfloat_repr(double d, char out[AG_JFLOAT_BYTES]);

/* a op b of two numbers, as ag_jop says. */
ag_jv ag_jnumber_op(ag_jctx *c, int op, ag_jv a, ag_jv b);

/* -1, 0, 1; 2: one is NaN. Exact for an integer and a float. */
int ag_jnumber_compare(ag_jv a, ag_jv b);

/* int(x): towards zero; fails for infinity, NaN and what does not fit. */
ag_jv ag_jint_of_double(ag_jctx *c, double d);
/* round(x, digits) of a float. */
double ag_jround(double d, int64_t digits);

#endif
