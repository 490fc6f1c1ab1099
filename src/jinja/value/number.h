/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers: parses, formats and computes them as Python does, in any locale of the process. */
#ifndef AG_JINJA_VALUE_NUMBER_H
#define AG_JINJA_VALUE_NUMBER_H

#include "jinja/value/value.h"

/* Parses an integer literal with optional sign and single underscores between digits, without
 * spaces. base 0: the prefix 0x, 0o or 0b decides. Returns false if it is malformed or does not
 * fit. */
bool ag_jparse_int(const char *s, size_t n, int base, int64_t *out);
bool ag_jparse_float(const char *s, size_t n, double *out); /* also inf and nan */

enum { AG_JFLOAT_BYTES = 40 };
/* Writes repr(d): the shortest digits that read back as d. Returns the length. */
size_t ag_jfloat_repr(double d, char out[AG_JFLOAT_BYTES]);

/* Returns a op b for two numbers; op: ag_jop. */
ag_jv ag_jnumber_op(ag_jctx *c, int op, ag_jv a, ag_jv b);

/* Returns -1, 0 or 1; 2 if one is NaN. Exact for an integer and a float. */
int ag_jnumber_compare(ag_jv a, ag_jv b);

/* Returns int(d), truncated towards zero. Fails for infinity, NaN and values beyond 64 bits. */
ag_jv ag_jint_of_double(ag_jctx *c, double d);
/* Returns round(d, digits). */
double ag_jround(double d, int64_t digits);

#endif
