/* SPDX-License-Identifier: Apache-2.0 */
/* Binds arguments to the parameters of a filter, test, method or function. */
#ifndef AG_JINJA_BUILTINS_ARGUMENTS_H
#define AG_JINJA_BUILTINS_ARGUMENTS_H

#include "jinja/context.h"

/* Binds args to `params`, names separated by spaces: out[i] is the value of name i, AG_JFAIL if it
 * is not given. The first `min` are required. kind and name are for messages: "filter", "indent".
 * Returns false with the error recorded. */
enum { AG_JMAX_PARAMS = 8 };
bool ag_jbind(ag_jctx *c, const char *kind, const char *name, const ag_jargs *args,
              const char *params, size_t min, ag_jv out[AG_JMAX_PARAMS]);

/* Sets *out to v, or to default_value if v is not given (AG_JFAIL). Returns false with the error
 * recorded if v is not an integer. */
bool ag_jargument_int(ag_jctx *c, ag_jv v, int64_t default_value, int64_t *out);

#endif
