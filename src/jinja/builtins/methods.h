/* SPDX-License-Identifier: Apache-2.0 */
/* Methods of str, dict, list and tuple. */
#ifndef AG_JINJA_BUILTINS_METHODS_H
#define AG_JINJA_BUILTINS_METHODS_H

#include "jinja/context.h"

typedef enum ag_jmethod_access {
    AG_JMETHOD_ABSENT,
    AG_JMETHOD_UNSAFE, /* it would modify its object, which the sandbox forbids */
    AG_JMETHOD_FOUND,
} ag_jmethod_access;

int ag_jmethod_find(const char *name, size_t len); /* -1: unknown to all types */
ag_jmethod_access ag_jmethod_of(ag_jv self, int id);
ag_jv ag_jmethod_call(ag_jctx *c, const ag_jmethod *m, const ag_jargs *args);

/* Methods of str. a: arguments as bound by ag_jbind(). */
typedef ag_jv ag_jmethod_fn(ag_jctx *c, ag_jv self, const ag_jv *a);
ag_jmethod_fn ag_jstr_capitalize, ag_jstr_count_of, ag_jstr_endswith, ag_jstr_find_in,
    ag_jstr_index_in, ag_jstr_isdigit, ag_jstr_islower, ag_jstr_isupper, ag_jstr_join,
    ag_jstr_lower, ag_jstr_lstrip, ag_jstr_partition, ag_jstr_replace, ag_jstr_rsplit,
    ag_jstr_rstrip, ag_jstr_split, ag_jstr_splitlines, ag_jstr_startswith, ag_jstr_strip,
    ag_jstr_title, ag_jstr_upper;

/* Used by filters too. */
ag_jstr *ag_jstr_with_case(ag_jctx *c, ag_jstr *s, bool upper);
/* limit < 0: replace all */
ag_jstr *ag_jstr_replaced(ag_jctx *c, ag_jstr *s, const ag_jstr *from, const ag_jstr *to,
                          int64_t limit);
ag_jstr *ag_jstr_joined(ag_jctx *c, const ag_jstr *separator, const ag_jlist *parts);

#endif
