/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/jinja_loop.h"

#include "chat/jinja_list.h"
#include "chat/jinja_ops.h"
#include "chat/jinja_string.h"

struct ag_jloop {
    const ag_jnode *node;
    ag_jscope *scope; /* around the loop */
    ag_jv iterable;
    ag_jiter *it;
    int64_t index0, length, depth0; /* length -1: not known yet */
    ag_jv before, current, after;   /* after AG_JFAIL: not peeked at */
    bool at_end;                    /* nothing comes after */
    ag_jv last_changed;
};

/* {% for x in y if test %}: the test sees the target, not `loop`. */
typedef struct filter_state {
    const ag_jnode *node;
    ag_jscope *scope;
} filter_state;

static int next_passing(ag_jctx *c, ag_jiter *it, ag_jv *item) {
    filter_state *f = it->state;
    for (;;) {
        int more = ag_jiter_next(c, it->inner, item);
        if (more <= 0) return more;
        ag_jscope *scope = c->scope;
        if (f->scope->captured) f->scope = ag_jscope_create(c, f->scope->parent);
        if (!f->scope) return -1;
        f->scope->n = 0;
        c->scope = f->scope;
        ag_jv v = ag_jassign(c, f->node->a, *item) ? ag_jeval(c, f->node->c) : ag_jfail_value();
        c->scope = scope;
        if (ag_jfailed(v)) return -1;
        if (ag_jtruth(v)) return 1;
    }
}

static bool start_loop(ag_jctx *c, ag_jloop *l, const ag_jnode *n, ag_jv iterable) {
    *l = (ag_jloop){.node = n, .scope = c->scope, .iterable = iterable, .length = -1};
    l->index0 = -1;
    l->it = ag_jiter_of(c, iterable);
    if (!l->it) return false;
    if (!n->c) {
        if (iterable.kind != AG_JITERATOR) l->length = ag_jlength(iterable);
        return true;
    }
    filter_state *f = ag_jtake(c, sizeof *f);
    if (!f) return false;
    *f = (filter_state){n, ag_jscope_create(c, c->scope)};
    l->it = f->scope ? ag_jiter_create(c, "generator", next_passing, l->it, f) : NULL;
    return l->it != NULL;
}

static bool peek(ag_jctx *c, ag_jloop *l) {
    if (!ag_jfailed(l->after) || l->at_end) return true;
    ag_jv v;
    int more = ag_jiter_next(c, l->it, &v);
    if (more < 0) return false;
    if (more) l->after = v;
    else l->at_end = true;
    return true;
}

static int advance_loop(ag_jctx *c, ag_jloop *l) {
    if (!peek(c, l)) return -1;
    if (ag_jfailed(l->after)) return 0;
    l->before = l->current;
    l->current = l->after;
    l->after = ag_jfail_value();
    l->index0++;
    return 1;
}

/* What has no length is read to its end. */
int64_t ag_jloop_length(ag_jctx *c, ag_jloop *l) {
    if (l->length >= 0) return l->length;
    ag_jlist *rest = ag_jlist_of(c, ag_jiter_value(l->it));
    ag_jiter *it = rest ? ag_jiter_of(c, ag_jlist_value(rest)) : NULL;
    if (!it) return -1;
    l->it = it;
    l->length = (int64_t)rest->n + l->index0 + 1 + !ag_jfailed(l->after);
    return l->length;
}

static ag_jflow exec_body(ag_jctx *c, ag_jloop *l, ag_jscope **scope) {
    if (!*scope || (*scope)->captured) *scope = ag_jscope_create(c, l->scope);
    if (!*scope) return AG_JFLOW_FAIL;
    (*scope)->n = 0;
    c->scope = *scope;
    bool ok = true;
    if (l->node->op & AG_JFOR_LOOP) {
        ok = ag_jscope_set(c, *scope, c->t->loop, (ag_jv){AG_JLOOP, {.loop = l}});
    }
    c->at = l->node;
    if (ok) ok = ag_jassign(c, l->node->a, l->current);
    ag_jflow flow = ok ? ag_jexec(c, &l->node->body) : AG_JFLOW_FAIL;
    c->scope = l->scope;
    return flow;
}

static ag_jflow run_loop(ag_jctx *c, const ag_jnode *n, ag_jv iterable, int64_t depth0) {
    ag_jloop *l = ag_jtake(c, sizeof *l);
    if (!l || !start_loop(c, l, n, iterable)) return AG_JFLOW_FAIL;
    l->depth0 = depth0;
    ag_jscope *scope = NULL;
    bool ran = false; /* to the end of the body, or else is run, as Jinja has it */
    for (;;) {
        int more = advance_loop(c, l);
        if (more < 0) return AG_JFLOW_FAIL;
        if (!more) break;
        ag_jflow flow = exec_body(c, l, &scope);
        if (flow == AG_JFLOW_FAIL) return flow;
        if (flow == AG_JFLOW_BREAK) break;
        ran |= flow == AG_JFLOW_NEXT;
    }
    if (ran || !n->orelse.n) return AG_JFLOW_NEXT;
    c->scope = ag_jscope_create(c, l->scope);
    ag_jflow flow = c->scope ? ag_jexec(c, &n->orelse) : AG_JFLOW_FAIL;
    c->scope = l->scope;
    return flow;
}

ag_jflow ag_jexec_for(ag_jctx *c, const ag_jnode *n) {
    ag_jv iterable = ag_jeval(c, n->b);
    return ag_jfailed(iterable) ? AG_JFLOW_FAIL : run_loop(c, n, iterable, 0);
}

ag_jv ag_jloop_call(ag_jctx *c, ag_jloop *l, const ag_jargs *args) {
    if (!(l->node->op & AG_JFOR_RECURSIVE)) {
        return ag_jfail(c, "the loop must have the 'recursive' marker to be called recursively");
    }
    if (args->n != 1 || args->keywords) return ag_jfail(c, "loop() takes one argument");
    ag_jbuf *outer = c->out, *b = ag_jbuf_create(c);
    if (!b || !ag_jenter(c)) return ag_jfail_value();
    ag_jscope *scope = c->scope;
    const ag_jnode *statement = c->statement;
    c->out = b;
    c->scope = l->scope;
    ag_jflow flow = run_loop(c, l->node, args->items[0], l->depth0 + 1);
    c->scope = scope;
    c->out = outer;
    c->statement = statement;
    ag_jleave(c);
    return flow == AG_JFLOW_FAIL ? ag_jfail_value() : ag_jbuf_value(c, b);
}

ag_jv ag_jloop_cycle(ag_jctx *c, ag_jloop *l, const ag_jargs *args) {
    if (!args->n || args->keywords) return ag_jfail(c, "no items for cycling given");
    return args->items[(size_t)l->index0 % args->n];
}

ag_jv ag_jloop_changed(ag_jctx *c, ag_jloop *l, const ag_jargs *args) {
    ag_jlist *now = ag_jlist_create(c, args->n);
    for (size_t i = 0; now && i < args->n; i++) now->items[now->n++] = args->items[i];
    if (!now) return ag_jfail_value();
    int same =
        ag_jfailed(l->last_changed) ? 0 : ag_jequal(c, l->last_changed, ag_jtuple_value(now));
    if (same < 0) return ag_jfail_value();
    if (!same) l->last_changed = ag_jtuple_value(now);
    return ag_jbool(!same);
}

static ag_jv length_less(ag_jctx *c, ag_jloop *l, int64_t by) {
    int64_t n = ag_jloop_length(c, l);
    return n < 0 ? ag_jfail_value() : ag_jint(n - by);
}

static ag_jv neighbour(ag_jctx *c, ag_jloop *l, const ag_jstr *name) {
    if (ag_jstr_is(name, "previtem")) {
        return l->index0 == 0 ? ag_jundefined_hint(c, "there is no previous item") : l->before;
    }
    if (!peek(c, l)) return ag_jfail_value();
    bool is_last = ag_jfailed(l->after);
    if (ag_jstr_is(name, "last")) return ag_jbool(is_last);
    return is_last ? ag_jundefined_hint(c, "there is no next item") : l->after;
}

ag_jv ag_jloop_attribute(ag_jctx *c, ag_jv loop, const ag_jstr *name) {
    ag_jloop *l = loop.as.loop;
    if (ag_jstr_is(name, "index")) return ag_jint(l->index0 + 1);
    if (ag_jstr_is(name, "index0")) return ag_jint(l->index0);
    if (ag_jstr_is(name, "first")) return ag_jbool(l->index0 == 0);
    if (ag_jstr_is(name, "length")) return length_less(c, l, 0);
    if (ag_jstr_is(name, "revindex")) return length_less(c, l, l->index0);
    if (ag_jstr_is(name, "revindex0")) return length_less(c, l, l->index0 + 1);
    if (ag_jstr_is(name, "depth")) return ag_jint(l->depth0 + 1);
    if (ag_jstr_is(name, "depth0")) return ag_jint(l->depth0);
    if (ag_jstr_is(name, "last") || ag_jstr_is(name, "previtem") || ag_jstr_is(name, "nextitem")) {
        return neighbour(c, l, name);
    }
    return ag_jfail_value();
}
