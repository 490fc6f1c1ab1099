/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/value/ops.h"

#include "jinja/parse/template.h"
#include "jinja/value/list.h"
#include "jinja/value/number.h"
#include "jinja/value/string.h"

#include <math.h>

static int equal_lists(ag_jctx *c, const ag_jlist *a, const ag_jlist *b) {
    if (a->n != b->n) return 0;
    for (size_t i = 0; i < a->n; i++) {
        int r = ag_jequal(c, ag_jlist_get(c, a, i), ag_jlist_get(c, b, i));
        if (r != 1) return r;
    }
    return 1;
}

static int equal_dicts(ag_jctx *c, ag_jdict *a, const ag_jdict *b) {
    if (a->n != b->n) return 0;
    const ag_jentry *e = ag_jdict_entries(c, a);
    if (c->status != AG_OK) return -1;
    for (size_t i = 0; i < a->n; i++, e++) {
        ag_jv other = ag_jdict_find(c, b, e->key);
        if (c->status != AG_OK) return -1;
        if (ag_jfailed(other)) return 0;
        int r = ag_jequal(c, e->value, other);
        if (r != 1) return r;
    }
    return 1;
}

/* Compares keys() and items() as sets, values() by identity. */
static int equal_views(ag_jctx *c, const ag_jview *a, const ag_jview *b) {
    if (a->kind != b->kind || a->kind == AG_JVIEW_VALUES) return a == b;
    if (a->kind == AG_JVIEW_ITEMS) return equal_dicts(c, a->dict, b->dict);
    if (a->dict->n != b->dict->n) return 0;
    const ag_jentry *e = ag_jdict_entries(c, a->dict);
    if (c->status != AG_OK) return -1;
    for (size_t i = 0; i < a->dict->n; i++, e++) {
        if (ag_jfailed(ag_jdict_find(c, b->dict, e->key))) return c->status != AG_OK ? -1 : 0;
    }
    return 1;
}

static int equal_ranges(const ag_jrange *a, const ag_jrange *b) {
    if (a->n != b->n) return 0;
    return a->n == 0 || (a->start == b->start && (a->n == 1 || a->step == b->step));
}

static int equal_within(ag_jctx *c, ag_jv a, ag_jv b) {
    if (ag_jis_number(a) && ag_jis_number(b)) return ag_jnumber_compare(a, b) == 0;
    if (a.kind != b.kind) return 0;
    switch (a.kind) {
    case AG_JUNDEFINED:
    case AG_JNONE:
        return 1;
    case AG_JSTRING:
        if (a.as.string->len != b.as.string->len) return 0;
        if (!ag_jwork_bytes(c, a.as.string->len)) return -1;
        return ag_jstr_equal(a.as.string, b.as.string);
    case AG_JLIST:
    case AG_JTUPLE:
        return equal_lists(c, a.as.list, b.as.list);
    case AG_JDICT:
        return equal_dicts(c, a.as.dict, b.as.dict);
    case AG_JRANGE:
        return equal_ranges(a.as.range, b.as.range);
    case AG_JVIEW:
        return equal_views(c, a.as.view, b.as.view);
    case AG_JFUNCTION:
        return a.as.integer == b.as.integer;
    case AG_JMETHOD:
        return a.as.method->id == b.as.method->id &&
               a.as.method->self.as.list == b.as.method->self.as.list;
    default:
        return a.as.iterator == b.as.iterator; /* identity */
    }
}

int ag_jequal(ag_jctx *c, ag_jv a, ag_jv b) {
    if (!ag_jenter(c)) return -1;
    int r = equal_within(c, a, b);
    ag_jleave(c);
    return c->status != AG_OK ? -1 : r;
}

static bool is_set_like(ag_jv v) {
    return v.kind == AG_JVIEW && v.as.view->kind != AG_JVIEW_VALUES;
}

static int compare_lists(ag_jctx *c, const ag_jlist *a, const ag_jlist *b) {
    size_t n = a->n < b->n ? a->n : b->n;
    for (size_t i = 0; i < n; i++) {
        ag_jv x = ag_jlist_get(c, a, i), y = ag_jlist_get(c, b, i);
        int r = ag_jequal(c, x, y);
        if (r < 0) return AG_JCOMPARE_FAILED;
        if (r) continue;
        if (!ag_jenter(c)) return AG_JCOMPARE_FAILED;
        r = ag_jcompare(c, x, y);
        ag_jleave(c);
        return r;
    }
    return (a->n > b->n) - (a->n < b->n);
}

int ag_jcompare(ag_jctx *c, ag_jv a, ag_jv b) {
    if (ag_jis_number(a) && ag_jis_number(b)) {
        int r = ag_jnumber_compare(a, b);
        return r == 2 ? AG_JCOMPARE_UNORDERED : r;
    }
    if (a.kind == AG_JSTRING && b.kind == AG_JSTRING) {
        if (!ag_jwork_bytes(c, a.as.string->len)) return AG_JCOMPARE_FAILED;
        return ag_jstr_compare(a.as.string, b.as.string);
    }
    if (ag_jis_sequence(a) && a.kind == b.kind) return compare_lists(c, a.as.list, b.as.list);
    if (a.kind == AG_JUNDEFINED || b.kind == AG_JUNDEFINED) {
        ag_jfail_undefined(c, a.kind == AG_JUNDEFINED ? a : b);
    } else if (is_set_like(a) && is_set_like(b)) {
        ag_jfail_as(c, AG_UNSUPPORTED, "sets are not supported");
    } else {
        ag_jfail(c, "'%s' and '%s' cannot be ordered", ag_jtype_name(a), ag_jtype_name(b));
    }
    return AG_JCOMPARE_FAILED;
}

static int range_contains(const ag_jrange *r, ag_jv v) {
    int64_t i;
    if (v.kind == AG_JFLOAT) {
        if (!(fabs(v.as.number) < 1e18) || v.as.number != floor(v.as.number)) return 0;
        i = (int64_t)v.as.number;
    } else if (ag_jis_integer(v)) {
        i = ag_jinteger(v);
    } else {
        return 0;
    }
    if (!r->n || (r->step > 0 ? i < r->start : i > r->start)) return 0;
    const uint64_t from_start =
        r->step > 0 ? (uint64_t)i - (uint64_t)r->start : (uint64_t)r->start - (uint64_t)i;
    const uint64_t step = r->step > 0 ? (uint64_t)r->step : 0 - (uint64_t)r->step;
    return from_start % step == 0 && from_start / step < r->n;
}

static int iterated_contains(ag_jctx *c, ag_jv container, ag_jv item) {
    ag_jiter *it = ag_jiter_of(c, container);
    if (!it) return -1;
    for (;;) {
        ag_jv v;
        ag_jregion region;
        ag_jregion_begin(c, &region);
        int more = ag_jiter_next(c, it, &v);
        int r = more > 0 ? ag_jequal(c, v, item) : more;
        if (more < 0 || r < 0) return -1;
        ag_jregion_end(c, &region);
        if (more == 0 || r) return r;
    }
}

/* Returns 1 or 0; -1 on failure. */
static int contains(ag_jctx *c, ag_jv container, ag_jv item) {
    switch (container.kind) {
    case AG_JSTRING:
        if (item.kind != AG_JSTRING) {
            ag_jfail(c, "'in <string>' requires string as left operand, not %s",
                     ag_jtype_name(item));
            return -1;
        }
        if (!ag_jwork_search(c, container.as.string->len)) return -1;
        return ag_jstr_find(container.as.string, 0, container.as.string->len, item.as.string) !=
               AG_JNOT_FOUND;
    case AG_JDICT: {
        ag_jv found = ag_jdict_find(c, container.as.dict, item);
        return c->status != AG_OK ? -1 : !ag_jfailed(found);
    }
    case AG_JVIEW:
        if (container.as.view->kind == AG_JVIEW_KEYS) {
            return contains(c, ag_jdict_value(container.as.view->dict), item);
        }
        return iterated_contains(c, container, item);
    case AG_JRANGE:
        return range_contains(container.as.range, item);
    default:
        if (ag_jis_iterable(container)) return iterated_contains(c, container, item);
        ag_jfail(c, "argument of type '%s' is not iterable", ag_jtype_name(container));
        return -1;
    }
}

static ag_jv compared(ag_jctx *c, int op, ag_jv a, ag_jv b) {
    if (op == AG_JOP_EQ || op == AG_JOP_NE) {
        int r = ag_jequal(c, a, b);
        return r < 0 ? ag_jfail_value() : ag_jbool((r == 1) == (op == AG_JOP_EQ));
    }
    if (op == AG_JOP_IN || op == AG_JOP_NOT_IN) {
        int r = contains(c, b, a);
        return r < 0 ? ag_jfail_value() : ag_jbool((r == 1) == (op == AG_JOP_IN));
    }
    int r = ag_jcompare(c, a, b);
    if (r == AG_JCOMPARE_FAILED) return ag_jfail_value();
    if (r == AG_JCOMPARE_UNORDERED) return ag_jbool(false);
    switch (op) {
    case AG_JOP_LT:
        return ag_jbool(r < 0);
    case AG_JOP_LE:
        return ag_jbool(r <= 0);
    case AG_JOP_GT:
        return ag_jbool(r > 0);
    default:
        return ag_jbool(r >= 0);
    }
}

static bool append_all(ag_jctx *c, ag_jlist *l, const ag_jlist *items) {
    for (size_t i = 0; i < items->n; i++) {
        if (!ag_jlist_push(c, l, ag_jlist_get(c, items, i))) return false;
    }
    return true;
}

static ag_jv repeated(ag_jctx *c, ag_jv v, int64_t times) {
    if (times < 0) times = 0;
    if (v.kind == AG_JSTRING) {
        ag_jbuf *b = ag_jbuf_create(c);
        if (!b || !ag_jbuf_append_repeated(c, b, v.as.string, (size_t)times)) {
            return ag_jfail_value();
        }
        ag_jstr *s = ag_jbuf_string(c, b);
        return ag_jstring(s && v.as.string->markup ? ag_jstr_as_markup(c, s, true) : s);
    }
    size_t n = v.as.list->n;
    if (n && (uint64_t)times > SIZE_MAX / 256 / n) {
        return ag_jfail_as(c, AG_LIMIT, "the list is too long: %zu times %zu items", (size_t)times,
                           n);
    }
    ag_jlist *l = ag_jlist_create(c, n * (size_t)times);
    for (int64_t i = 0; l && n && i < times; i++) {
        if (!ag_jwork(c, n) || !append_all(c, l, v.as.list)) return ag_jfail_value();
    }
    return v.kind == AG_JLIST ? ag_jlist_value(l) : ag_jtuple_value(l);
}

static bool can_repeat(ag_jv v) { return v.kind == AG_JSTRING || ag_jis_sequence(v); }

static bool append_items(ag_jctx *c, ag_jbuf *b, const ag_jlist *l) {
    if (!ag_jwork(c, l->n / 8)) return false;
    for (size_t i = 0; i < l->n; i++) {
        const ag_jv v = ag_jlist_get(c, l, i);
        if (ag_jfailed(v)) return false;
        if (!ag_jbuf_append_bytes(c, b, (const char *)&v, sizeof v, false)) return false;
    }
    return true;
}

/* Concatenates lists. If `a` is at the end of its buffer, copies only the items of `b`. */
static ag_jlist *joined_lists(ag_jctx *c, const ag_jlist *a, const ag_jlist *b) {
    ag_jbuf *buffer = a->buffer;
    const bool in_place =
        buffer && a->n && (const char *)(a->items + a->n) == buffer->text + buffer->len;
    const size_t begin = in_place ? (size_t)((const char *)a->items - buffer->text) : 0;
    if (!in_place) {
        buffer = ag_jbuf_create(c);
        if (!buffer || !append_items(c, buffer, a)) return NULL;
    }
    ag_jlist *l = append_items(c, buffer, b) ? ag_jlist_create(c, 0) : NULL;
    if (!l) return NULL;
    buffer->shares_text = true;
    l->buffer = buffer;
    l->items = (ag_jv *)(void *)(buffer->text ? buffer->text + begin : NULL);
    l->n = l->cap = a->n + b->n;
    return l;
}

static ag_jv concatenated(ag_jctx *c, ag_jv a, ag_jv b) {
    if (a.kind == AG_JSTRING) {
        ag_jstr *x = a.as.string, *y = b.as.string;
        bool markup = x->markup || y->markup;
        if (markup) {
            x = ag_jescape(c, a);
            y = x ? ag_jescape(c, b) : NULL;
            if (!y) return ag_jfail_value();
        }
        ag_jstr *s = ag_jstr_concat(c, x, y);
        return ag_jstring(s && markup ? ag_jstr_as_markup(c, s, true) : s);
    }
    ag_jlist *l = joined_lists(c, a.as.list, b.as.list);
    return a.kind == AG_JLIST ? ag_jlist_value(l) : ag_jtuple_value(l);
}

static ag_jv unsupported(ag_jctx *c, int op, ag_jv a, ag_jv b) {
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "**"};
    if (op == AG_JOP_ADD && can_repeat(a) && a.kind != AG_JTUPLE) {
        return ag_jfail(c, "can only concatenate %s (not \"%s\") to %s", ag_jtype_name(a),
                        ag_jtype_name(b), ag_jtype_name(a));
    }
    return ag_jfail(c, "unsupported operand types for %s: '%s' and '%s'", names[op],
                    ag_jtype_name(a), ag_jtype_name(b));
}

ag_jv ag_jbinary(ag_jctx *c, int op, ag_jv a, ag_jv b) {
    if (op >= AG_JOP_EQ) return compared(c, op, a, b);
    if (ag_jis_number(a) && ag_jis_number(b)) return ag_jnumber_op(c, op, a, b);
    if (op == AG_JOP_MOD && a.kind == AG_JSTRING) return ag_jpercent_format(c, a.as.string, b);
    if (op == AG_JOP_SUB && is_set_like(a) && ag_jis_iterable(b)) {
        return ag_jfail_as(c, AG_UNSUPPORTED, "sets are not supported");
    }
    if (a.kind == AG_JUNDEFINED || b.kind == AG_JUNDEFINED) {
        return ag_jfail_undefined(c, a.kind == AG_JUNDEFINED ? a : b);
    }
    if (op == AG_JOP_ADD && a.kind == b.kind && can_repeat(a)) return concatenated(c, a, b);
    if (op == AG_JOP_SUB && is_set_like(b) && ag_jis_iterable(a)) {
        return ag_jfail_as(c, AG_UNSUPPORTED, "sets are not supported");
    }
    if (op == AG_JOP_MUL && can_repeat(a) && ag_jis_integer(b)) {
        return repeated(c, a, ag_jinteger(b));
    }
    if (op == AG_JOP_MUL && can_repeat(b) && ag_jis_integer(a)) {
        return repeated(c, b, ag_jinteger(a));
    }
    return unsupported(c, op, a, b);
}

ag_jv ag_jnegate(ag_jctx *c, ag_jv v, bool negative) {
    if (v.kind == AG_JFLOAT) return ag_jfloat(negative ? -v.as.number : v.as.number);
    if (v.kind == AG_JUNDEFINED) return ag_jfail_undefined(c, v);
    if (!ag_jis_integer(v)) {
        return ag_jfail(c, "bad operand type for a sign: '%s'", ag_jtype_name(v));
    }
    if (!negative) return ag_jint(ag_jinteger(v));
    return ag_jnumber_op(c, AG_JOP_SUB, ag_jint(0), v);
}
