/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of the environment: range, dict, namespace, raise_exception, strftime_now. */
#ifndef AG_JINJA_BUILTINS_GLOBALS_H
#define AG_JINJA_BUILTINS_GLOBALS_H

#include "jinja/context.h"

/* Returns the number of the function, -1 if there is none of that name. */
int ag_jglobal_find(const ag_jstr *name);
ag_jv ag_jglobal_call(ag_jctx *c, int id, const ag_jargs *args);

#endif
