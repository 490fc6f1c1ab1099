/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of Python on values: equality, order, operators, attributes, str(), repr(),
 * json.dumps(). */
#ifndef AG_JINJA_VALUE_OPS_H
#define AG_JINJA_VALUE_OPS_H

#include "jinja/context.h"

/* Returns 1 or 0, -1 if nested too deeply. */
int ag_jequal(ag_jctx *c, ag_jv a, ag_jv b);

/* Returns a negative value, 0, a positive value or AG_JCOMPARE_UNORDERED. Returns
 * AG_JCOMPARE_FAILED with the error recorded if the values have no order. */
int ag_jcompare(ag_jctx *c, ag_jv a, ag_jv b);

/* op: ag_jop, including comparisons */
ag_jv ag_jbinary(ag_jctx *c, int op, ag_jv a, ag_jv b);
ag_jv ag_jnegate(ag_jctx *c, ag_jv v, bool negative);

/* Fails with the reason why v is undefined. Returns AG_JFAIL. */
ag_jv ag_jfail_undefined(ag_jctx *c, ag_jv v);
ag_jv ag_jundefined_variable(ag_jctx *c, ag_jstr *name);
ag_jv ag_jundefined_hint(ag_jctx *c, const char *hint); /* borrowed */

/* Return v.name, v[index] and v[start:stop:step] as the sandbox allows them; undefined if absent.
 * method: method number of the name, or -1. */
ag_jv ag_jattribute(ag_jctx *c, ag_jv v, ag_jstr *name, int method);
ag_jv ag_jitem(ag_jctx *c, ag_jv v, ag_jv index);
ag_jv ag_jslice(ag_jctx *c, ag_jv v, const ag_jv parts[3]); /* AG_JNONE: omitted */
/* str(v) and repr(v) */
ag_jstr *ag_jstr_of(ag_jctx *c, ag_jv v);
bool ag_jappend_str(ag_jctx *c, ag_jbuf *b, ag_jv v);
bool ag_jappend_repr(ag_jctx *c, ag_jbuf *b, ag_jv v);

typedef struct ag_jjson_style {
    bool ensure_ascii, sort_keys;
    const ag_jstr *indent; /* NULL: one line */
    const ag_jstr *item_separator, *key_separator;
} ag_jjson_style;
/* Appends json.dumps(v). */
bool ag_jappend_json(ag_jctx *c, ag_jbuf *b, ag_jv v, const ag_jjson_style *style);

/* Returns v with &, <, >, ' and " as HTML entities, marked as markup. Markup stays unchanged. */
ag_jstr *ag_jescape(ag_jctx *c, ag_jv v);

/* Return 'x %s' % args and 'x {}'.format(...). */
ag_jv ag_jpercent_format(ag_jctx *c, ag_jstr *format, ag_jv args);
ag_jv ag_jformat_method(ag_jctx *c, ag_jstr *format, const ag_jargs *args);

#endif
