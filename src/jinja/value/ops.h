/* SPDX-License-Identifier: Apache-2.0 */
/* What Python does with values: truth, equality, order, operators, attributes, str() and repr(). */
#ifndef AG_JINJA_VALUE_OPS_H
#define AG_JINJA_VALUE_OPS_H

#include "jinja/context.h"

/* 1, 0; -1: failed (too deep). */
int ag_jequal(ag_jctx *c, ag_jv a, ag_jv b);

/* Negative, 0, positive; fails for what has no order ("'<' not supported ..."). */
int ag_jcompare(ag_jctx *c, ag_jv a, ag_jv b);

/* op: of ag_jop, comparisons included */
ag_jv ag_jbinary(ag_jctx *c, int op, ag_jv a, ag_jv b);
ag_jv ag_jnegate(ag_jctx *c, ag_jv v, bool negative);

/* Using an undefined value fails with the reason why it is undefined. */
ag_jv ag_jfail_undefined(ag_jctx *c, ag_jv v);
ag_jv ag_jundefined_variable(ag_jctx *c, ag_jstr *name);
ag_jv ag_jundefined_hint(ag_jctx *c, const char *hint); /* borrowed */

/* v.name, v[index], v[start:stop:step] as the sandbox has them. method: of the name, or -1. */
ag_jv ag_jattribute(ag_jctx *c, ag_jv v, ag_jstr *name, int method);
ag_jv ag_jitem(ag_jctx *c, ag_jv v, ag_jv index);
ag_jv ag_jslice(ag_jctx *c, ag_jv v, const ag_jv parts[3]); /* AG_JNONE: left out */
/* str(v) and repr(v) */
ag_jstr *ag_jstr_of(ag_jctx *c, ag_jv v);
bool ag_jappend_str(ag_jctx *c, ag_jbuf *b, ag_jv v);
bool ag_jappend_repr(ag_jctx *c, ag_jbuf *b, ag_jv v);

typedef struct ag_jjson_style {
    bool ensure_ascii, sort_keys;
    const ag_jstr *indent; /* NULL: on one line */
    const ag_jstr *item_separator, *key_separator;
} ag_jjson_style;
/* json.dumps */
bool ag_jappend_json(ag_jctx *c, ag_jbuf *b, ag_jv v, const ag_jjson_style *style);

/* &, <, >, ' and " as HTML entities; of markup as it is. Gives markup. */
ag_jstr *ag_jescape(ag_jctx *c, ag_jv v);

/* 'x %s' % args and 'x {}'.format(...) */
ag_jv ag_jpercent_format(ag_jctx *c, ag_jstr *format, ag_jv args);
ag_jv ag_jformat_method(ag_jctx *c, ag_jstr *format, const ag_jargs *args);

#endif
