/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of a schema. */
#include "constrain/schema/writer.h"
#include "core/fail.h"

enum {
    MANY_ITEMS = 16,      /* from here on the comma between items is a rule of its own */
    MOST_ITEMS = 1 << 13, /* of an array with more, as many are written at most */
};

/* ---- with items that are counted ---- */

enum { MOST_COUNTS = 256 };

/* Of each kind of items that is counted, how many there are, as one number: a digit for each, of
 * which the highest stands for more where there is no maximum. */
typedef struct counting {
    ag_schema_writer *w;
    const ag_array_shape *x;
    size_t caps[AG_MOST_CONTAINS]; /* the highest digits */
    size_t n_counts;
    uint32_t close, spaced_close;
    bool many;
    uint32_t *after; /* [n_counts] behind the items so far */
} counting;

static size_t digit_at(const counting *c, size_t count, size_t kind) {
    for (size_t i = 0; i < kind; i++) count /= c->caps[i] + 1;
    return count % (c->caps[kind] + 1);
}

static bool counts_enough(const counting *c, size_t count) {
    for (size_t k = 0; k < c->x->n_contains; k++) {
        if (digit_at(c, count, k) < c->x->contains[k].least) return false;
    }
    return true;
}

/* Item `at`, of the kinds in the set and, where there is a maximum, of no others. *goal NEVER: it
 * may not be. *to: the counts with it. */
static ag_status kind_of_item(const counting *c, size_t at, size_t count, unsigned kinds,
                              ag_goal *goal, size_t *to) {
    const ag_array_shape *x = c->x;
    ag_shaper *s = &c->w->s;
    size_t unit = 1;
    *goal = ag_array_item(x, at);
    *to = count;
    for (size_t k = 0; k < x->n_contains; unit *= c->caps[k++] + 1) {
        const ag_contains *kind = &x->contains[k];
        const bool limited = kind->most != SIZE_MAX, full = digit_at(c, count, k) == c->caps[k];
        if (kinds >> k & 1) {
            /* More than enough needs no counting, and more than the maximum may not be. */
            if (at < kind->from || full) *goal = AG_GOAL_NEVER;
            AG_TRY(ag_goal_and(s, *goal, kind->goal, goal));
            *to += unit;
        } else if (limited && at >= kind->from) {
            AG_TRY(ag_goal_and(s, *goal, kind->opposite, goal));
        }
    }
    return AG_OK;
}

/* Item `at` behind these counts, then what is behind them with it. */
static ag_status counted_item(const counting *c, size_t at, size_t count, uint32_t *out) {
    *out = AG_NET_NOWHERE;
    for (unsigned kinds = 0; kinds < 1u << c->x->n_contains; kinds++) {
        ag_goal goal;
        size_t to;
        uint32_t one;
        AG_TRY(kind_of_item(c, at, count, kinds, &goal, &to));
        if (goal == AG_GOAL_NEVER || c->after[to] == AG_NET_NOWHERE) continue;
        AG_TRY(ag_schema_call_goal(c->w, goal, c->after[to], &one));
        *out = ag_net_either(c->w->net, *out, one);
    }
    return AG_OK;
}

/* c->after behind so many items that all others are alike. */
static ag_status loop_items(counting *c, size_t at) {
    ag_net *net = c->w->net;
    for (size_t i = 0; i < c->n_counts; i++) {
        c->after[i] = ag_net_split(net, AG_NET_NOWHERE,
                                   counts_enough(c, i) ? c->spaced_close : AG_NET_NOWHERE);
    }
    for (size_t i = 0; i < c->n_counts; i++) {
        uint32_t item;
        AG_TRY(counted_item(c, at, i, &item));
        if (item != AG_NET_NOWHERE) item = ag_write_comma(c->w, c->many, item);
        ag_net_patch(net, c->after[i], item);
    }
    return AG_OK;
}

/* Items from the last that is written on its own to the first; *first: that one, or the end. */
static ag_status write_counted_items(counting *c, size_t last, bool loops, uint32_t *first) {
    ag_schema_writer *w = c->w;
    uint32_t *before = ag_shaper_get(&w->s, c->n_counts, sizeof *before);
    if (!before) return ag_shaper_no_memory(&w->s);
    for (size_t i = 0; i < c->n_counts; i++) {
        c->after[i] = counts_enough(c, i) ? c->spaced_close : AG_NET_NOWHERE;
    }
    if (loops) AG_TRY(loop_items(c, last));
    *first = AG_NET_NOWHERE;
    if (!last && loops) return counted_item(c, 0, 0, first);
    for (size_t at = last; at-- > 0 && w->net->status == AG_OK;) {
        if (!at) return counted_item(c, 0, 0, first);
        for (size_t i = 0; i < c->n_counts; i++) {
            AG_TRY(counted_item(c, at, i, &before[i]));
            if (before[i] != AG_NET_NOWHERE) before[i] = ag_write_comma(w, c->many, before[i]);
            const bool ends = at >= c->x->least && counts_enough(c, i);
            before[i] = ag_net_either(w->net, before[i], ends ? c->spaced_close : AG_NET_NOWHERE);
        }
        for (size_t i = 0; i < c->n_counts; i++) c->after[i] = before[i];
    }
    return AG_OK;
}

static ag_status write_counting(ag_schema_writer *w, const ag_array_shape *x, uint32_t next,
                                uint32_t *out) {
    ag_net *net = w->net;
    counting c = {.w = w, .x = x, .n_counts = 1};
    size_t fixed = x->n_prefix > x->least ? x->n_prefix : x->least;
    for (size_t k = 0; k < x->n_contains; k++) {
        const ag_contains *kind = &x->contains[k];
        c.caps[k] = kind->most != SIZE_MAX ? kind->most : kind->least;
        if (c.caps[k] >= MOST_COUNTS || (c.n_counts *= c.caps[k] + 1) > MOST_COUNTS) {
            return ag_schema_unsupported(&w->s, w->schema, "contains", "counts too many items");
        }
        if (kind->from > fixed) fixed = kind->from;
    }
    const bool loops = x->most == SIZE_MAX;
    const size_t last = loops ? fixed : x->most < MOST_ITEMS ? x->most : MOST_ITEMS;
    if (last * c.n_counts > net->limits.ops / 16) {
        return ag_schema_unsupported(&w->s, w->schema, "contains", "in an array of too many items");
    }
    c.after = ag_shaper_get(&w->s, c.n_counts, sizeof *c.after);
    if (!c.after) return ag_shaper_no_memory(&w->s);
    c.close = ag_net_bytes(net, ']', ']', next);
    c.spaced_close = ag_write_space(w, c.close);
    c.many = last * c.n_counts > MANY_ITEMS;
    uint32_t inside;
    AG_TRY(write_counted_items(&c, last, loops, &inside));
    if (!x->least && counts_enough(&c, 0)) inside = ag_net_either(net, inside, c.close);
    *out =
        inside == AG_NET_NOWHERE ? inside : ag_net_bytes(net, '[', '[', ag_write_space(w, inside));
    return AG_OK;
}

/* ---- all ---- */

/* Backwards from the last item that is written on its own. */
ag_status ag_write_array(ag_schema_writer *w, const ag_array_shape *x, uint32_t next,
                         uint32_t *out) {
    ag_net *net = w->net;
    if (x->unique) return ag_write_unique(w, x, next, out);
    if (x->n_contains) return write_counting(w, x, next, out);
    if (x == &ag_any_array && ag_schema_is_marked(w)) return ag_schema_marked_array(w, next, out);
    if (x == &ag_any_array) {
        *out = ag_net_call(net, w->json->array, next);
        return AG_OK;
    }
    size_t most = x->most, fixed = x->n_prefix > x->least ? x->n_prefix : x->least;
    if (fixed > MOST_ITEMS) {
        char place[AG_SCHEMA_PLACE];
        return AG_FAIL(w->err, LIMIT, "schema: %s: %zu items, more than %d",
                       ag_schema_doc_place(&w->s.doc, w->schema, "minItems", place), fixed,
                       MOST_ITEMS);
    }
    const bool open_end = most == SIZE_MAX || most > MOST_ITEMS + fixed;
    if (most != SIZE_MAX && open_end) most = MOST_ITEMS;
    const uint32_t close = ag_net_bytes(net, ']', ']', next),
                   spaced_close = ag_write_space(w, close);
    const bool loops = x->most == SIZE_MAX;
    const size_t last = loops ? fixed : most;
    const bool many = last > MANY_ITEMS;
    uint32_t after = spaced_close; /* behind `i` items, i > 0 */
    uint32_t item = AG_NET_NOWHERE;
    if (loops) {
        const uint32_t loop = ag_net_split(net, AG_NET_NOWHERE, spaced_close);
        AG_TRY(ag_schema_call_goal(w, x->rest, loop, &item));
        ag_net_patch(net, loop, item == AG_NET_NOWHERE ? item : ag_write_comma(w, many, item));
        after = loop;
    }
    for (size_t i = last; i-- > 0 && net->status == AG_OK;) {
        AG_TRY(ag_schema_call_goal(w, ag_array_item(x, i), after, &item));
        if (i == 0) break;
        const uint32_t more = item == AG_NET_NOWHERE ? item : ag_write_comma(w, many, item);
        after = ag_net_either(net, more, i >= x->least ? spaced_close : AG_NET_NOWHERE);
        if (after == AG_NET_NOWHERE) break;
    }
    if (last == 0 && !loops) item = AG_NET_NOWHERE;
    const uint32_t empty = x->least == 0 ? close : AG_NET_NOWHERE;
    const uint32_t inside = ag_net_either(net, item, empty);
    *out =
        inside == AG_NET_NOWHERE ? inside : ag_net_bytes(net, '[', '[', ag_write_space(w, inside));
    return AG_OK;
}
