/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/eval.h"

#include "jinja/builtins/filters.h"
#include "jinja/value/list.h"
#include "jinja/value/ops.h"
#include "jinja/value/string.h"

ag_jv ag_jvariable_get(ag_jctx *c, uint32_t id) {
    for (const ag_jscope *s = c->scope; s; s = s->parent) {
        for (uint32_t i = s->n; i-- > 0;) {
            if (s->items[i].id == id) return s->items[i].value;
        }
    }
    ag_jv v = c->root[id];
    return ag_jfailed(v) ? ag_jundefined_variable(c, c->t->names[id]) : v;
}

static ag_jv eval_list(ag_jctx *c, const ag_jnode *n) {
    ag_jlist *l = ag_jlist_create(c, n->n_items);
    for (size_t i = 0; l && i < n->n_items; i++) {
        if (!ag_jlist_push(c, l, ag_jeval(c, n->items[i]))) return ag_jfail_value();
    }
    return n->kind == AG_JN_LIST ? ag_jlist_value(l) : ag_jtuple_value(l);
}

static ag_jv eval_dict(ag_jctx *c, const ag_jnode *n) {
    ag_jdict *d = ag_jdict_create(c, n->n_items / 2);
    for (size_t i = 0; d && i < n->n_items; i += 2) {
        ag_jv key = ag_jeval(c, n->items[i]);
        if (ag_jfailed(key)) return key;
        if (!ag_jdict_set(c, d, key, ag_jeval(c, n->items[i + 1]))) return ag_jfail_value();
    }
    return ag_jdict_value(d);
}

static ag_jv eval_slice(ag_jctx *c, const ag_jnode *n) {
    ag_jv v = ag_jeval(c, n->a), parts[3];
    if (ag_jfailed(v)) return v;
    for (size_t i = 0; i < 3; i++) {
        parts[i] = n->items[i] ? ag_jeval(c, n->items[i]) : ag_jnone();
        if (ag_jfailed(parts[i])) return parts[i];
    }
    c->at = n;
    return ag_jslice(c, v, parts);
}

static bool spread_list(ag_jctx *c, const ag_jnode *star, ag_jlist *l) {
    ag_jv v = ag_jeval(c, star);
    ag_jlist *more = ag_jfailed(v) ? NULL : ag_jlist_of(c, v);
    for (size_t i = 0; more && i < more->n; i++) {
        if (!ag_jlist_push(c, l, ag_jlist_get(c, more, i))) return false;
    }
    return more != NULL;
}

static bool set_keyword(ag_jctx *c, ag_jdict *d, ag_jv key, ag_jv value) {
    if (key.kind != AG_JSTRING) return ag_jfail(c, "keywords must be strings"), false;
    if (!ag_jfailed(ag_jdict_find(c, d, key))) {
        ag_jfail(c, "the keyword argument '%.*s' is given twice", (int)key.as.string->len,
                 key.as.string->text);
        return false;
    }
    return ag_jdict_set(c, d, key, value);
}

static bool spread_dict(ag_jctx *c, const ag_jnode *star_star, ag_jdict *d) {
    ag_jv v = ag_jeval(c, star_star);
    if (ag_jfailed(v)) return false;
    if (v.kind != AG_JDICT) {
        ag_jfail(c, "the argument after ** must be a mapping, not %s", ag_jtype_name(v));
        return false;
    }
    const ag_jentry *e = ag_jdict_entries(c, v.as.dict);
    if (c->status != AG_OK) return false;
    for (size_t i = 0; i < v.as.dict->n; i++, e++) {
        if (!set_keyword(c, d, e->key, e->value)) return false;
    }
    return true;
}

bool ag_jeval_args(ag_jctx *c, const ag_jnode *call, ag_jargs *out) {
    *out = (ag_jargs){0};
    if (!call->n_items && !call->keys) return true;
    ag_jlist *l = ag_jlist_create(c, call->n_items);
    if (!l) return false;
    for (size_t i = 0; i < call->n_items; i++) {
        if (!ag_jlist_push(c, l, ag_jeval(c, call->items[i]))) return false;
    }
    const ag_jkeys *k = call->keys;
    if (k && k->star && !spread_list(c, k->star, l)) return false;
    if (k && (k->n || k->star_star)) {
        ag_jdict *d = ag_jdict_create(c, k->n);
        if (!d) return false;
        for (size_t i = 0; i < k->n; i++) {
            ag_jv v = ag_jeval(c, k->values[i]);
            if (ag_jfailed(v) || !set_keyword(c, d, ag_jstring(k->names[i]), v)) return false;
        }
        if (k->star_star && !spread_dict(c, k->star_star, d)) return false;
        if (d->n) out->keywords = d;
    }
    out->items = l->items;
    out->n = l->n;
    return true;
}

static ag_jv eval_call(ag_jctx *c, const ag_jnode *n) {
    ag_jv callee = ag_jeval(c, n->a);
    ag_jargs args;
    if (ag_jfailed(callee) || !ag_jeval_args(c, n, &args)) return ag_jfail_value();
    c->at = n;
    return ag_jcall(c, callee, &args);
}

static ag_jv eval_filter(ag_jctx *c, const ag_jnode *n) {
    ag_jv v = n->a ? ag_jeval(c, n->a) : c->piped;
    ag_jargs args;
    if (ag_jfailed(v) || !ag_jeval_args(c, n, &args)) return ag_jfail_value();
    c->at = n;
    if (n->op < 0) {
        return ag_jfail(c, "unknown filter '%.*s'", (int)n->u.name->len, n->u.name->text);
    }
    return ag_jfilter_call(c, n->op, v, &args);
}

static ag_jv eval_test(ag_jctx *c, const ag_jnode *n) {
    ag_jv v = ag_jeval(c, n->a);
    ag_jargs args;
    if (ag_jfailed(v) || !ag_jeval_args(c, n, &args)) return ag_jfail_value();
    c->at = n;
    if (n->op < 0) {
        return ag_jfail(c, "unknown test '%.*s'", (int)n->u.name->len, n->u.name->text);
    }
    return ag_jtest_call(c, n->op, v, &args);
}

static ag_jv eval_compare(ag_jctx *c, const ag_jnode *n) {
    ag_jv left = ag_jeval(c, n->items[0]), result = ag_jbool(true);
    for (size_t i = 1; i < n->n_items; i++) {
        if (ag_jfailed(left)) return left;
        ag_jv right = ag_jeval(c, n->items[i]);
        if (ag_jfailed(right)) return right;
        c->at = n;
        result = ag_jbinary(c, n->u.ops[i - 1], left, right);
        if (ag_jfailed(result) || !ag_jtruth(result)) return result;
        left = right;
    }
    return result;
}

static ag_jv eval_concat(ag_jctx *c, const ag_jnode *n) {
    ag_jstr *s = NULL;
    for (size_t i = 0; i < n->n_items; i++) {
        ag_jv v = ag_jeval(c, n->items[i]);
        ag_jstr *next = ag_jfailed(v) ? NULL : ag_jstr_of(c, v);
        if (!next) return ag_jfail_value();
        s = s ? ag_jstr_concat(c, s, next) : next;
        if (!s) return ag_jfail_value();
    }
    return ag_jstring(s);
}

static ag_jv eval_condition(ag_jctx *c, const ag_jnode *n) {
    ag_jv test = ag_jeval(c, n->b);
    if (ag_jfailed(test)) return test;
    if (ag_jtruth(test)) return ag_jeval(c, n->a);
    if (n->c) return ag_jeval(c, n->c);
    return ag_jundefined_hint(c, "the inline if-expression was false and has no else");
}

static ag_jv eval_binary(ag_jctx *c, const ag_jnode *n) {
    ag_jv a = ag_jeval(c, n->a);
    if (ag_jfailed(a)) return a;
    ag_jv b = ag_jeval(c, n->b);
    if (ag_jfailed(b)) return b;
    c->at = n;
    return n->kind == AG_JN_ITEM ? ag_jitem(c, a, b) : ag_jbinary(c, n->op, a, b);
}

static ag_jv eval_unary(ag_jctx *c, const ag_jnode *n) {
    ag_jv v = ag_jeval(c, n->a);
    if (ag_jfailed(v)) return v;
    c->at = n;
    switch (n->kind) {
    case AG_JN_ATTR:
        return ag_jattribute(c, v, n->u.name, n->op);
    case AG_JN_NOT:
        return ag_jbool(!ag_jtruth(v));
    case AG_JN_NEG:
        return ag_jnegate(c, v, true);
    case AG_JN_POS:
        return ag_jnegate(c, v, false);
    case AG_JN_AND:
        return ag_jtruth(v) ? ag_jeval(c, n->b) : v;
    default:
        return ag_jtruth(v) ? v : ag_jeval(c, n->b);
    }
}

static ag_jv eval_node(ag_jctx *c, const ag_jnode *n) {
    switch (n->kind) {
    case AG_JN_LIST:
    case AG_JN_TUPLE:
        return eval_list(c, n);
    case AG_JN_DICT:
        return eval_dict(c, n);
    case AG_JN_ITEM:
    case AG_JN_BINARY:
        return eval_binary(c, n);
    case AG_JN_SLICE:
        return n->a ? eval_slice(c, n) : ag_jfail(c, "a slice cannot be one of several indices");
    case AG_JN_CALL:
        return eval_call(c, n);
    case AG_JN_FILTER:
        return eval_filter(c, n);
    case AG_JN_TEST:
        return eval_test(c, n);
    case AG_JN_COMPARE:
        return eval_compare(c, n);
    case AG_JN_CONCAT:
        return eval_concat(c, n);
    case AG_JN_COND:
        return eval_condition(c, n);
    default:
        return eval_unary(c, n);
    }
}

ag_jv ag_jeval(ag_jctx *c, const ag_jnode *n) {
    c->at = n;
    if (n->kind == AG_JN_CONST) return n->u.value;
    if (n->kind == AG_JN_NAME) return ag_jvariable_get(c, n->id);
    if (!ag_jenter(c)) return ag_jfail_value();
    ag_jv v = eval_node(c, n);
    ag_jleave(c);
    return v;
}
