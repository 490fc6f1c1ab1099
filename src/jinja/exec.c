/* SPDX-License-Identifier: Apache-2.0 */
/* Executes statements. */
#include "jinja/eval.h"
#include "jinja/loop.h"
#include "jinja/value/list.h"
#include "jinja/value/ops.h"
#include "jinja/value/string.h"

ag_jscope *ag_jscope_create(ag_jctx *c, ag_jscope *parent) {
    ag_jscope *s = ag_jalloc_zeroed(c, sizeof *s);
    if (s) s->parent = parent;
    return s;
}

bool ag_jscope_set(ag_jctx *c, ag_jscope *s, uint32_t id, ag_jv value) {
    if (!s) return c->root[id] = value, true;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->items[i].id == id) return s->items[i].value = value, true;
    }
    if (!ag_jgrow(c, &s->items, s->n, &s->cap, sizeof *s->items)) return false;
    s->items[s->n].id = id;
    s->items[s->n++].value = value;
    return true;
}

static bool assign_tuple(ag_jctx *c, const ag_jnode *target, ag_jv value) {
    ag_jlist *l = ag_jis_sequence(value) ? value.as.list : NULL;
    if (!l) { /* reads at most one item more than there are targets */
        ag_jiter *it = ag_jiter_of(c, value);
        l = it ? ag_jlist_create(c, target->n_items + 1) : NULL;
        while (l && l->n <= target->n_items) {
            ag_jv item;
            int more = ag_jiter_next(c, it, &item);
            if (more < 0) return false;
            if (!more) break;
            l->items[l->n++] = item;
        }
        if (!l) return false;
    }
    if (l->n != target->n_items) {
        ag_jfail(c, "%s values to unpack (expected %zu)",
                 l->n < target->n_items ? "not enough" : "too many", target->n_items);
        return false;
    }
    for (size_t i = 0; i < l->n; i++) {
        if (!ag_jassign(c, target->items[i], ag_jlist_get(c, l, i))) return false;
    }
    return true;
}

/* Returns whether v refers to no memory of a region. */
static bool is_permanent(ag_jv v) {
    return v.kind == AG_JNONE || v.kind == AG_JBOOL || v.kind == AG_JINT || v.kind == AG_JFLOAT ||
           v.kind == AG_JFUNCTION || (v.kind == AG_JSTRING && v.as.string->is_permanent);
}

/* Sets a member of a namespace. */
static bool set_member(ag_jctx *c, ag_jdict *d, ag_jstr *name, ag_jv value) {
    const size_t n = d->n;
    if (!ag_jdict_set(c, d, ag_jstring(name), value)) return false;
    if (d->n != n) ag_jstored(c, d->region);
    if (is_permanent(value)) return true;
    if (value.kind == AG_JSTRING) ag_jstored_string(c, d, ag_jdict_index(c, d, name));
    else ag_jstored(c, d->region);
    return true;
}

bool ag_jassign(ag_jctx *c, const ag_jnode *target, ag_jv value) {
    if (ag_jfailed(value)) return false;
    if (target->kind == AG_JN_NAME) return ag_jscope_set(c, c->scope, target->id, value);
    if (target->kind == AG_JN_TUPLE) return assign_tuple(c, target, value);
    ag_jv ns = ag_jvariable_get(c, target->id);
    if (ag_jfailed(ns)) return false;
    if (ns.kind != AG_JNAMESPACE) {
        ag_jfail(c, "cannot assign attribute '%.*s': the object is not a namespace",
                 (int)target->u.name->len, target->u.name->text);
        return false;
    }
    return set_member(c, ns.as.dict, target->u.name, value);
}

/* Executes body in a scope of its own and returns its output as a string. */
static ag_jflow exec_captured(ag_jctx *c, const ag_jbody *body, ag_jv *text) {
    ag_jbuf *outer = c->out, *b = ag_jbuf_create(c);
    ag_jregion r;
    ag_jregion_begin(c, &r);
    ag_jscope *scope = c->scope, *inner = b ? ag_jscope_create(c, scope) : NULL;
    if (!inner) return AG_JFLOW_FAIL;
    c->out = b;
    c->scope = inner;
    ag_jflow flow = ag_jexec(c, body);
    c->scope = scope;
    c->out = outer;
    if (flow == AG_JFLOW_FAIL) return flow;
    ag_jregion_end(c, &r);
    if (flow != AG_JFLOW_NEXT) return flow;
    *text = ag_jbuf_value(c, b);
    return ag_jfailed(*text) ? AG_JFLOW_FAIL : flow;
}

static ag_jflow exec_scope(ag_jctx *c, const ag_jbody *body) {
    ag_jscope *scope = c->scope, *inner = ag_jscope_create(c, scope);
    if (!inner) return AG_JFLOW_FAIL;
    c->scope = inner;
    ag_jflow flow = ag_jexec(c, body);
    c->scope = scope;
    return flow;
}

static bool print_value(ag_jctx *c, ag_jv v) {
    return !ag_jfailed(v) && ag_jappend_str(c, c->out, v);
}

static ag_jflow exec_print(ag_jctx *c, const ag_jnode *n) {
    ag_jregion r;
    ag_jregion_begin(c, &r);
    if (!print_value(c, ag_jeval(c, n->a))) return AG_JFLOW_FAIL;
    ag_jregion_end(c, &r);
    return AG_JFLOW_NEXT;
}

static ag_jflow exec_if(ag_jctx *c, const ag_jnode *n) {
    size_t i = 0;
    for (; i < n->n_items; i++) {
        ag_jregion r;
        ag_jregion_begin(c, &r);
        ag_jv v = ag_jeval(c, n->items[i]);
        if (ag_jfailed(v)) return AG_JFLOW_FAIL;
        const bool is_true = ag_jtruth(v);
        ag_jregion_end(c, &r);
        if (is_true) return ag_jexec(c, &n->u.branches[i]);
    }
    return n->op ? ag_jexec(c, &n->u.branches[i]) : AG_JFLOW_NEXT;
}

/* Releases temporary values unless the result refers to memory. */
static ag_jflow exec_set(ag_jctx *c, const ag_jnode *n) {
    ag_jregion r;
    ag_jregion_begin(c, &r);
    ag_jv v = ag_jeval(c, n->b);
    if (ag_jfailed(v)) return AG_JFLOW_FAIL;
    if (is_permanent(v)) ag_jregion_end(c, &r);
    else ag_jregion_keep(c, &r);
    return ag_jassign(c, n->a, v) ? AG_JFLOW_NEXT : AG_JFLOW_FAIL;
}

static ag_jv filtered(ag_jctx *c, const ag_jnode *filters, ag_jv text) {
    ag_jv outer = c->piped;
    c->piped = text;
    ag_jv v = ag_jeval(c, filters);
    c->piped = outer;
    return v;
}

static ag_jflow exec_set_block(ag_jctx *c, const ag_jnode *n) {
    ag_jv text;
    ag_jflow flow = exec_captured(c, &n->body, &text);
    if (flow != AG_JFLOW_NEXT) return flow;
    if (n->b) text = filtered(c, n->b, text);
    return ag_jassign(c, n->a, text) ? AG_JFLOW_NEXT : AG_JFLOW_FAIL;
}

static ag_jflow exec_filter_block(ag_jctx *c, const ag_jnode *n) {
    ag_jv text;
    ag_jflow flow = exec_captured(c, &n->body, &text);
    if (flow != AG_JFLOW_NEXT) return flow;
    return print_value(c, filtered(c, n->a, text)) ? AG_JFLOW_NEXT : AG_JFLOW_FAIL;
}

static ag_jflow exec_call_block(ag_jctx *c, const ag_jnode *n) {
    ag_jv callee = ag_jeval(c, n->a->a), caller = ag_jfail_value();
    ag_jargs args;
    if (ag_jfailed(callee) || !ag_jeval_args(c, n->a, &args)) return AG_JFLOW_FAIL;
    caller = ag_jmacro_create(c, n->u.macro);
    ag_jdict *keys = args.keywords ? ag_jdict_copy(c, args.keywords) : ag_jdict_create(c, 1);
    if (!keys || !ag_jdict_set_text(c, keys, "caller", caller)) return AG_JFLOW_FAIL;
    args.keywords = keys;
    c->at = n;
    return print_value(c, ag_jcall(c, callee, &args)) ? AG_JFLOW_NEXT : AG_JFLOW_FAIL;
}

static ag_jflow exec_with(ag_jctx *c, const ag_jnode *n) {
    ag_jscope *scope = c->scope, *inner = ag_jscope_create(c, scope);
    if (!inner) return AG_JFLOW_FAIL;
    for (size_t i = 0; i < n->n_items; i += 2) {
        c->scope = scope;
        ag_jv v = ag_jeval(c, n->items[i + 1]);
        c->scope = inner;
        bool ok = ag_jassign(c, n->items[i], v);
        c->scope = scope;
        if (!ok) return AG_JFLOW_FAIL;
    }
    c->scope = inner;
    ag_jflow flow = ag_jexec(c, &n->body);
    c->scope = scope;
    return flow;
}

static ag_jflow exec_statement(ag_jctx *c, const ag_jnode *n) {
    switch (n->kind) {
    case AG_JN_DATA:
        return ag_jbuf_append(c, c->out, n->u.value.as.string) ? 0 : AG_JFLOW_FAIL;
    case AG_JN_PRINT:
        return exec_print(c, n);
    case AG_JN_FOR:
        return ag_jexec_for(c, n);
    case AG_JN_IF:
        return exec_if(c, n);
    case AG_JN_SET:
        return exec_set(c, n);
    case AG_JN_SET_BLOCK:
        return exec_set_block(c, n);
    case AG_JN_MACRO:
        return ag_jscope_set(c, c->scope, n->id, ag_jmacro_create(c, n->u.macro)) &&
                       c->status == AG_OK
                   ? AG_JFLOW_NEXT
                   : AG_JFLOW_FAIL;
    case AG_JN_CALL_BLOCK:
        return exec_call_block(c, n);
    case AG_JN_FILTER_BLOCK:
        return exec_filter_block(c, n);
    case AG_JN_WITH:
        return exec_with(c, n);
    case AG_JN_SCOPE:
        return exec_scope(c, &n->body);
    case AG_JN_BREAK:
        return AG_JFLOW_BREAK;
    default: /* AG_JN_CONTINUE */
        return AG_JFLOW_CONTINUE;
    }
}

ag_jflow ag_jexec(ag_jctx *c, const ag_jbody *body) {
    const ag_jnode *outer = c->statement;
    if (!ag_jenter(c)) return AG_JFLOW_FAIL;
    ag_jflow flow = AG_JFLOW_NEXT;
    for (size_t i = 0; i < body->n && flow == AG_JFLOW_NEXT; i++) {
        c->statement = c->at = body->items[i];
        if (!ag_jwork(c, 1)) flow = AG_JFLOW_FAIL;
        else flow = exec_statement(c, body->items[i]);
    }
    c->statement = outer;
    ag_jleave(c);
    return flow;
}
