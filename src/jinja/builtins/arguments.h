/* SPDX-License-Identifier: Apache-2.0 */
/* Which argument is which parameter of a filter, test, method or function. */
#ifndef AG_JINJA_BUILTINS_ARGUMENTS_H
#define AG_JINJA_BUILTINS_ARGUMENTS_H

#include "jinja/context.h"

/* Sets out[i] for each of the names, separated by spaces, in `params`; AG_JFAIL: not given. The
 * first `min` must be. what and name: "filter", "indent". */
enum { AG_JMAX_PARAMS = 8 };
bool ag_jbind(ag_jctx *c, const char *kind, const char *name, const ag_jargs *args,
              const char *params, size_t min, ag_jv out[AG_JMAX_PARAMS]);

/* Positions of an argument; recorded as an error unless it is an integer. */
bool ag_jargument_int(ag_jctx *c, ag_jv v, int64_t default_value, int64_t *out);

#endif
