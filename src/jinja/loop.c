/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/loop.h"

#include "jinja/value/list.h"
#include "jinja/value/ops.h"
#include "jinja/value/string.h"

struct ag_jloop {
    const ag_jnode *node;
    ag_jscope *scope; /* around the loop */
    ag_jv iterable;
    ag_jiter *it;           /* NULL: items are read by index */
    int64_t index0, length; /* length -1: unknown */
    ag_jv before, current,
        after;       /* items of an iterator; `after` is AG_JFAIL until peek() reads it */
    bool at_end;     /* there is no next item */
    uint64_t region; /* number of the region that created it */
};

/* {% for x in y if test %}. The test can read the target but not `loop`. */
typedef struct filter_state {
    const ag_jnode *node;
    ag_jscope *scope; /* around the loop */
} filter_state;

/* Returns 1 if the item passes the test, else 0; -1 on failure. */
static int passes(ag_jctx *c, const filter_state *f, ag_jv item) {
    ag_jscope *scope = c->scope;
    ag_jregion r;
    ag_jregion_begin(c, &r);
    c->scope = ag_jscope_create(c, f->scope);
    if (!c->scope) return -1;
    ag_jv v = ag_jassign(c, f->node->a, item) ? ag_jeval(c, f->node->c) : ag_jfail_value();
    c->scope = scope;
    if (ag_jfailed(v)) return -1;
    const int result = ag_jtruth(v);
    ag_jregion_end(c, &r);
    return result;
}

static int next_passing(ag_jctx *c, ag_jiter *it, ag_jv *item) {
    for (;;) {
        ag_jregion r;
        ag_jregion_begin(c, &r);
        const int more = ag_jiter_next(c, it->inner, item);
        const int pass = more > 0 ? passes(c, it->state, *item) : more;
        if (more <= 0 || pass < 0) return pass;
        if (pass) {
            ag_jregion_keep(c, &r);
            return 1;
        }
        ag_jregion_end(c, &r);
    }
}

static bool start_loop(ag_jctx *c, ag_jloop *l, const ag_jnode *n, ag_jv iterable) {
    iterable = ag_jiterated(c, iterable);
    if (ag_jfailed(iterable)) return false;
    *l = (ag_jloop){.node = n, .scope = c->scope, .iterable = iterable, .length = -1};
    l->index0 = -1;
    l->region = c->n_regions;
    const bool has_numbers = ag_jis_sequence(iterable) || iterable.kind == AG_JRANGE ||
                             iterable.kind == AG_JDICT || iterable.kind == AG_JVIEW;
    if (!n->c && iterable.kind != AG_JITERATOR) l->length = ag_jlength(iterable);
    if (!n->c && has_numbers) return true;
    l->it = ag_jiter_of(c, iterable);
    if (!l->it || !n->c) return l->it != NULL;
    filter_state *f = ag_jalloc(c, sizeof *f);
    if (!f) return false;
    *f = (filter_state){n, c->scope};
    l->it = ag_jiter_create(c, "generator", next_passing, l->it, f);
    return l->it != NULL;
}

static bool peek(ag_jctx *c, ag_jloop *l) {
    if (!ag_jfailed(l->after) || l->at_end) return true;
    ag_jv v;
    int more = ag_jiter_next(c, l->it, &v);
    if (more < 0) return false;
    if (more) l->after = v;
    else l->at_end = true;
    ag_jstored(c, l->region);
    return true;
}

static int advance_by_number(ag_jctx *c, ag_jloop *l) {
    if (l->index0 + 1 >= l->length) return 0;
    if (!ag_jwork(c, 1)) return -1;
    l->current = ag_jitem_at(c, l->iterable, (size_t)++l->index0);
    return ag_jfailed(l->current) ? -1 : 1;
}

static int advance_loop(ag_jctx *c, ag_jloop *l) {
    if (!l->it) return advance_by_number(c, l);
    if (!peek(c, l)) return -1;
    if (ag_jfailed(l->after)) return 0;
    l->before = l->current;
    l->current = l->after;
    l->after = ag_jfail_value();
    l->index0++;
    return 1;
}

/* Returns the number of items, -1 on failure. Reads an iterator to its end. */
static int64_t loop_length(ag_jctx *c, ag_jloop *l) {
    if (l->length >= 0) return l->length;
    ag_jlist *remaining = ag_jlist_of(c, ag_jiter_value(l->it));
    ag_jiter *it = remaining ? ag_jiter_of(c, ag_jlist_value(remaining)) : NULL;
    if (!it) return -1;
    ag_jstored(c, l->region);
    l->it = it;
    l->length = (int64_t)remaining->n + l->index0 + 1 + !ag_jfailed(l->after);
    return l->length;
}

static ag_jflow exec_body(ag_jctx *c, ag_jloop *l) {
    c->scope = ag_jscope_create(c, l->scope);
    if (!c->scope) return AG_JFLOW_FAIL;
    bool ok = true;
    if (l->node->op) {
        ok = ag_jscope_set(c, c->scope, c->t->loop, (ag_jv){AG_JLOOP, {.loop = l}});
    }
    c->at = l->node;
    if (ok) ok = ag_jassign(c, l->node->a, l->current);
    ag_jflow flow = ok ? ag_jexec(c, &l->node->body) : AG_JFLOW_FAIL;
    c->scope = l->scope;
    return flow;
}

/* Runs the loop. Each iteration is a region, which contains the item too. Exception: the items of
 * an iterator whose body reads `loop` are outside, since a later iteration may return them. */
ag_jflow ag_jexec_for(ag_jctx *c, const ag_jnode *n) {
    ag_jv iterable = ag_jeval(c, n->b);
    if (ag_jfailed(iterable)) return AG_JFLOW_FAIL;
    ag_jloop *l = ag_jalloc(c, sizeof *l);
    if (!l || !start_loop(c, l, n, iterable)) return AG_JFLOW_FAIL;
    const bool keeps_items = l->it && n->op;
    bool ran =
        false; /* an iteration reached the end of the body; else `orelse` runs, as in Jinja */
    for (ag_jflow flow = AG_JFLOW_NEXT; flow != AG_JFLOW_BREAK;) {
        ag_jregion r;
        if (!keeps_items) ag_jregion_begin(c, &r);
        int more = advance_loop(c, l);
        if (more < 0) return AG_JFLOW_FAIL;
        if (keeps_items) ag_jregion_begin(c, &r);
        flow = more ? exec_body(c, l) : AG_JFLOW_BREAK;
        if (flow == AG_JFLOW_FAIL) return flow;
        ran |= flow == AG_JFLOW_NEXT;
        ag_jregion_end(c, &r);
    }
    if (ran || !n->orelse.n) return AG_JFLOW_NEXT;
    c->scope = ag_jscope_create(c, l->scope);
    ag_jflow flow = c->scope ? ag_jexec(c, &n->orelse) : AG_JFLOW_FAIL;
    c->scope = l->scope;
    return flow;
}

static ag_jv length_less(ag_jctx *c, ag_jloop *l, int64_t by) {
    int64_t n = loop_length(c, l);
    return n < 0 ? ag_jfail_value() : ag_jint(n - by);
}

static ag_jv neighbour(ag_jctx *c, ag_jloop *l, const ag_jstr *name) {
    if (ag_jstr_is(name, "previtem")) {
        if (l->index0 == 0)
            return ag_jundefined_hint(c, "loop.previtem: the first item has no previous one");
        return l->it ? l->before : ag_jitem_at(c, l->iterable, (size_t)l->index0 - 1);
    }
    if (l->it && !peek(c, l)) return ag_jfail_value();
    bool is_last = l->it ? ag_jfailed(l->after) : l->index0 + 1 >= l->length;
    if (ag_jstr_is(name, "last")) return ag_jbool(is_last);
    if (is_last) return ag_jundefined_hint(c, "loop.nextitem: the last item has no next one");
    return l->it ? l->after : ag_jitem_at(c, l->iterable, (size_t)l->index0 + 1);
}

ag_jv ag_jloop_attribute(ag_jctx *c, ag_jv loop, const ag_jstr *name) {
    ag_jloop *l = loop.as.loop;
    if (ag_jstr_is(name, "index")) return ag_jint(l->index0 + 1);
    if (ag_jstr_is(name, "index0")) return ag_jint(l->index0);
    if (ag_jstr_is(name, "first")) return ag_jbool(l->index0 == 0);
    if (ag_jstr_is(name, "length")) return length_less(c, l, 0);
    if (ag_jstr_is(name, "revindex")) return length_less(c, l, l->index0);
    if (ag_jstr_is(name, "revindex0")) return length_less(c, l, l->index0 + 1);
    if (ag_jstr_is(name, "last") || ag_jstr_is(name, "previtem") || ag_jstr_is(name, "nextitem")) {
        return neighbour(c, l, name);
    }
    return ag_jfail_value();
}
