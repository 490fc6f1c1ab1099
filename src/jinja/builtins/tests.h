/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: {{ value is test(...) }}. */
#ifndef AG_JINJA_BUILTINS_TESTS_H
#define AG_JINJA_BUILTINS_TESTS_H

#include "jinja/context.h"

int ag_jtest_find(const char *name, size_t len); /* -1: unknown */
ag_jv ag_jtest_call(ag_jctx *c, int id, ag_jv value, const ag_jargs *args);

#endif
