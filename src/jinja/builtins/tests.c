/* SPDX-License-Identifier: Apache-2.0 */

#include "jinja/builtins/arguments.h"
#include "jinja/builtins/filters.h"
#include "jinja/builtins/methods.h"
#include "jinja/parse/template.h"
#include "jinja/value/list.h"
#include "jinja/value/ops.h"
#include "jinja/value/string.h"

#include <string.h>

typedef ag_jv test_fn(ag_jctx *c, ag_jv v, const ag_jv *a);

static ag_jv is_remainder(ag_jctx *c, ag_jv v, ag_jv by, int64_t of) {
    ag_jv r = ag_jbinary(c, AG_JOP_MOD, v, by);
    if (ag_jfailed(r)) return r;
    return ag_jbinary(c, AG_JOP_EQ, r, ag_jint(of));
}
static ag_jv is_odd(ag_jctx *c, ag_jv v, const ag_jv *a) {
    (void)a;
    return is_remainder(c, v, ag_jint(2), 1);
}
static ag_jv is_even(ag_jctx *c, ag_jv v, const ag_jv *a) {
    (void)a;
    return is_remainder(c, v, ag_jint(2), 0);
}
static ag_jv is_divisibleby(ag_jctx *c, ag_jv v, const ag_jv *a) {
    return is_remainder(c, v, a[0], 0);
}

#define IS(name, condition)                                  \
    static ag_jv name(ag_jctx *c, ag_jv v, const ag_jv *a) { \
        (void)c;                                             \
        (void)a;                                             \
        return ag_jbool(condition);                          \
    }
IS(is_defined, v.kind != AG_JUNDEFINED)
IS(is_undefined, v.kind == AG_JUNDEFINED)
IS(is_none, v.kind == AG_JNONE)
IS(is_boolean, v.kind == AG_JBOOL)
IS(is_false, v.kind == AG_JBOOL && !v.as.boolean)
IS(is_true, v.kind == AG_JBOOL && v.as.boolean)
IS(is_integer, v.kind == AG_JINT)
IS(is_float, v.kind == AG_JFLOAT)
IS(is_string, v.kind == AG_JSTRING)
IS(is_mapping, v.kind == AG_JDICT)
IS(is_number, ag_jis_number(v))
IS(is_sequence, v.kind == AG_JSTRING || ag_jis_sequence(v) || v.kind == AG_JDICT ||
                    v.kind == AG_JRANGE || v.kind == AG_JUNDEFINED)
IS(is_iterable, ag_jis_iterable(v))
IS(is_escaped, v.kind == AG_JSTRING && v.as.string->markup)
IS(is_callable,
   v.kind == AG_JMACRO || v.kind == AG_JFUNCTION || v.kind == AG_JMETHOD || v.kind == AG_JUNDEFINED)

/* Returns whether `find` knows the name v. An unhashable v is an error, as Jinja looks names up in
 * a dict. */
static ag_jv is_known(ag_jctx *c, ag_jv v, int (*find)(const char *name, size_t len)) {
    uint32_t hash;
    if (!ag_jhash(c, v, &hash)) return ag_jfail_value();
    return ag_jbool(v.kind == AG_JSTRING && find(v.as.string->text, v.as.string->len) >= 0);
}
static ag_jv is_filter(ag_jctx *c, ag_jv v, const ag_jv *a) {
    (void)a;
    return is_known(c, v, ag_jfilter_find);
}
static ag_jv is_test(ag_jctx *c, ag_jv v, const ag_jv *a) {
    (void)a;
    return is_known(c, v, ag_jtest_find);
}
static ag_jv is_lower(ag_jctx *c, ag_jv v, const ag_jv *a) {
    ag_jstr *s = ag_jstr_of(c, v);
    return s ? ag_jstr_islower(c, ag_jstring(s), a) : ag_jfail_value();
}
static ag_jv is_upper(ag_jctx *c, ag_jv v, const ag_jv *a) {
    ag_jstr *s = ag_jstr_of(c, v);
    return s ? ag_jstr_isupper(c, ag_jstring(s), a) : ag_jfail_value();
}

/* Returns whether a and b are the same object. Each access to a JSON array creates an ag_jlist, so
 * lists of one array are the same. */
static bool is_same_list(const ag_jlist *a, const ag_jlist *b) {
    return a == b || (a->source && a->source == b->source && !a->is_slice && !b->is_slice);
}

/* Returns `v is a[0]` as in Python. Constants, numbers and equal slices of one text count as one
 * object. */
static ag_jv is_sameas(ag_jctx *c, ag_jv v, const ag_jv *a) {
    if (v.kind != a[0].kind) return ag_jbool(false);
    switch (v.kind) {
    case AG_JNONE:
        return ag_jbool(true);
    case AG_JBOOL:
    case AG_JINT:
    case AG_JFLOAT:
        return ag_jbinary(c, AG_JOP_EQ, v, a[0]);
    case AG_JSTRING:
        return ag_jbool(
            v.as.string == a[0].as.string ||
            (v.as.string->text == a[0].as.string->text && v.as.string->len == a[0].as.string->len));
    case AG_JLIST:
        return ag_jbool(is_same_list(v.as.list, a[0].as.list));
    case AG_JDICT:
        return ag_jbool(v.as.dict == a[0].as.dict ||
                        (v.as.dict->source && v.as.dict->source == a[0].as.dict->source));
    default:
        return ag_jbool(v.as.list == a[0].as.list);
    }
}
static ag_jv is_in(ag_jctx *c, ag_jv v, const ag_jv *a) {
    return ag_jbinary(c, AG_JOP_IN, v, a[0]);
}

#define COMPARES(name, op) \
    static ag_jv name(ag_jctx *c, ag_jv v, const ag_jv *a) { return ag_jbinary(c, op, v, a[0]); }
COMPARES(is_eq, AG_JOP_EQ)
COMPARES(is_ne, AG_JOP_NE)
COMPARES(is_gt, AG_JOP_GT)
COMPARES(is_ge, AG_JOP_GE)
COMPARES(is_lt, AG_JOP_LT)
COMPARES(is_le, AG_JOP_LE)

static const struct test {
    const char *name;
    test_fn *call;
    const char *params;
} tests[] = {
    {"odd", is_odd, ""},
    {"even", is_even, ""},
    {"divisibleby", is_divisibleby, "num"},
    {"defined", is_defined, ""},
    {"undefined", is_undefined, ""},
    {"filter", is_filter, ""},
    {"test", is_test, ""},
    {"none", is_none, ""},
    {"boolean", is_boolean, ""},
    {"false", is_false, ""},
    {"true", is_true, ""},
    {"integer", is_integer, ""},
    {"float", is_float, ""},
    {"lower", is_lower, ""},
    {"upper", is_upper, ""},
    {"string", is_string, ""},
    {"mapping", is_mapping, ""},
    {"number", is_number, ""},
    {"sequence", is_sequence, ""},
    {"iterable", is_iterable, ""},
    {"callable", is_callable, ""},
    {"sameas", is_sameas, "other"},
    {"escaped", is_escaped, ""},
    {"in", is_in, "seq"},
    {"==", is_eq, "other"},
    {"eq", is_eq, "other"},
    {"equalto", is_eq, "other"},
    {"!=", is_ne, "other"},
    {"ne", is_ne, "other"},
    {">", is_gt, "other"},
    {"gt", is_gt, "other"},
    {"greaterthan", is_gt, "other"},
    {"ge", is_ge, "other"},
    {">=", is_ge, "other"},
    {"<", is_lt, "other"},
    {"lt", is_lt, "other"},
    {"lessthan", is_lt, "other"},
    {"<=", is_le, "other"},
    {"le", is_le, "other"},
};

int ag_jtest_find(const char *name, size_t len) {
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        if (strlen(tests[i].name) == len && !memcmp(tests[i].name, name, len)) return (int)i;
    }
    return -1;
}

ag_jv ag_jtest_call(ag_jctx *c, int id, ag_jv value, const ag_jargs *args) {
    const struct test *t = &tests[id];
    ag_jv a[AG_JMAX_PARAMS];
    if (!ag_jbind(c, "test", t->name, args, t->params, *t->params ? 1 : 0, a)) {
        return ag_jfail_value();
    }
    return t->call(c, value, a);
}
