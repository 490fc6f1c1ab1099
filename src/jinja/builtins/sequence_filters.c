/* SPDX-License-Identifier: Apache-2.0 */
/* Filters of sequences. Generators of Python are lazy here too: an item that is never read raises
 * no error. */
#include "jinja/builtins/arguments.h"
#include "jinja/builtins/filters.h"
#include "jinja/builtins/methods.h"
#include "jinja/parse/template.h"
#include "jinja/value/list.h"
#include "jinja/value/number.h"
#include "jinja/value/ops.h"
#include "jinja/value/string.h"

#include <string.h>

/* Path to an attribute, such as "a.b.0": parts are strings and integers. ignore_case: string
 * results become lower case. */
typedef struct attr_path {
    ag_jv *parts;
    size_t n;
    bool ignore_case;
    ag_jv default_value; /* replaces an undefined attribute; AG_JFAIL: none */
} attr_path;

static bool push_part(ag_jctx *c, ag_jlist *parts, ag_jstr *s, size_t begin, size_t end) {
    ag_jstr *part = ag_jstr_slice(c, s, begin, end);
    bool digits = part && part->len > 0;
    int64_t number;
    for (size_t i = 0; digits && i < part->len; i++) {
        digits = part->text[i] >= '0' && part->text[i] <= '9';
    }
    if (digits && ag_jparse_int(part->text, part->len, 10, &number)) {
        return ag_jlist_push(c, parts, ag_jint(number));
    }
    return part && ag_jlist_push(c, parts, ag_jstring(part));
}

static bool path_parse(ag_jctx *c, ag_jv attribute, attr_path *out) {
    *out = (attr_path){.default_value = ag_jfail_value()};
    if (ag_jfailed(attribute) || attribute.kind == AG_JNONE) return true;
    ag_jlist *parts = ag_jlist_create(c, 1);
    if (!parts) return false;
    if (attribute.kind != AG_JSTRING) {
        if (!ag_jlist_push(c, parts, attribute)) return false;
    } else {
        ag_jstr *s = attribute.as.string;
        size_t begin = 0;
        for (size_t i = 0; i <= s->len; i++) {
            if (i < s->len && s->text[i] != '.') continue;
            if (!push_part(c, parts, s, begin, i)) return false;
            begin = i + 1;
        }
    }
    out->parts = parts->items;
    out->n = parts->n;
    return true;
}

static ag_jv ignore_case(ag_jctx *c, ag_jv v) {
    if (v.kind != AG_JSTRING) return v;
    return ag_jstring(ag_jstr_with_case(c, v.as.string, false));
}

static ag_jv path_get(ag_jctx *c, const attr_path *path, ag_jv v) {
    for (size_t i = 0; i < path->n; i++) {
        v = ag_jitem(c, v, path->parts[i]);
        if (v.kind == AG_JUNDEFINED && !ag_jfailed(path->default_value)) v = path->default_value;
        if (ag_jfailed(v)) return v;
    }
    return path->ignore_case ? ignore_case(c, v) : v;
}

ag_jv ag_jfilter_first(ag_jctx *c, ag_jv v, const ag_jv *a) {
    (void)a;
    ag_jiter *it = ag_jiter_of(c, v);
    ag_jv item;
    int more = it ? ag_jiter_next(c, it, &item) : -1;
    if (more < 0) return ag_jfail_value();
    return more ? item : ag_jundefined_hint(c, "No first item, sequence was empty.");
}

ag_jv ag_jfilter_last(ag_jctx *c, ag_jv v, const ag_jv *a) {
    (void)a;
    int64_t n = ag_jlength(v);
    if (n < 0) return ag_jfail(c, "'%s' object is not reversible", ag_jtype_name(v));
    if (n == 0) return ag_jundefined_hint(c, "No last item, sequence was empty.");
    ag_jiter *it = ag_jiter_reversed(c, v);
    ag_jv item;
    return it && ag_jiter_next(c, it, &item) > 0 ? item : ag_jfail_value();
}

ag_jv ag_jfilter_reverse(ag_jctx *c, ag_jv v, const ag_jv *a) {
    (void)a;
    if (v.kind == AG_JSTRING) {
        ag_jv parts[3] = {ag_jnone(), ag_jnone(), ag_jint(-1)};
        return ag_jslice(c, v, parts);
    }
    if (v.kind == AG_JUNDEFINED) return ag_jlist_value(ag_jlist_create(c, 0));
    if (ag_jlength(v) >= 0) return ag_jiter_value(ag_jiter_reversed(c, v));
    ag_jlist *l = ag_jlist_of(c, v);
    for (size_t i = 0; l && i < l->n / 2; i++) {
        ag_jv swap = l->items[i];
        l->items[i] = l->items[l->n - 1 - i];
        l->items[l->n - 1 - i] = swap;
    }
    return ag_jlist_value(l);
}

ag_jv ag_jfilter_join(ag_jctx *c, ag_jv v, const ag_jv *a) {
    attr_path path;
    if (!path_parse(c, a[1], &path)) return ag_jfail_value();
    ag_jlist *items = ag_jlist_of(c, v), *texts = items ? ag_jlist_create(c, items->n) : NULL;
    if (!texts) return ag_jfail_value();
    for (size_t i = 0; i < items->n; i++) {
        ag_jv item = path_get(c, &path, items->items[i]);
        ag_jstr *s = ag_jfailed(item) ? NULL : ag_jstr_of(c, item);
        if (!s || !ag_jlist_push(c, texts, ag_jstring(s))) return ag_jfail_value();
    }
    ag_jstr empty = {.text = ""};
    ag_jstr *separator = ag_jfailed(a[0]) ? &empty : ag_jstr_of(c, a[0]);
    return separator ? ag_jstring(ag_jstr_joined(c, separator, texts)) : ag_jfail_value();
}

static int next_of_items(ag_jctx *c, ag_jiter *it, ag_jv *item) {
    if (it->source.kind == AG_JUNDEFINED) return 0;
    if (it->source.kind != AG_JDICT) {
        ag_jfail(c, "Can only get item pairs from a mapping.");
        return -1;
    }
    const ag_jview items = {it->source.as.dict, AG_JVIEW_ITEMS};
    if (it->at >= items.dict->n) return 0;
    *item = ag_jview_item(c, &items, it->at++);
    return ag_jfailed(*item) ? -1 : 1;
}

ag_jv ag_jfilter_items(ag_jctx *c, ag_jv v, const ag_jv *a) {
    (void)a;
    ag_jiter *it = ag_jiter_create(c, "generator", next_of_items, NULL, NULL);
    if (it) it->source = ag_jiterated(c, v);
    return it && ag_jfailed(it->source) ? ag_jfail_value() : ag_jiter_value(it);
}

/* Call of a filter or test for each item of map, select, reject, selectattr and rejectattr. */
typedef struct item_call {
    bool has_path, negated;
    attr_path path;
    int id; /* filter or test; -1: the truth of the value */
    ag_jargs args;
} item_call;

static int next_mapped(ag_jctx *c, ag_jiter *it, ag_jv *item) {
    item_call *f = it->state;
    ag_jv v;
    int more = ag_jiter_next(c, it->inner, &v);
    if (more <= 0) return more;
    if (!ag_jenter(c)) return -1;
    *item = f->has_path ? path_get(c, &f->path, v) : ag_jfilter_call(c, f->id, v, &f->args);
    ag_jleave(c);
    return ag_jfailed(*item) ? -1 : 1;
}

/* Returns 1 if the item is selected, else 0; -1 on failure. */
static int is_selected(ag_jctx *c, const item_call *f, ag_jv item) {
    ag_jregion r;
    if (!ag_jenter(c)) return -1;
    ag_jregion_begin(c, &r);
    ag_jv v = f->has_path ? path_get(c, &f->path, item) : item;
    if (!ag_jfailed(v) && f->id >= 0) v = ag_jtest_call(c, f->id, v, &f->args);
    if (ag_jfailed(v)) return -1;
    const int selected = ag_jtruth(v) != f->negated;
    ag_jregion_end(c, &r);
    ag_jleave(c);
    return selected;
}

static int next_selected(ag_jctx *c, ag_jiter *it, ag_jv *item) {
    for (;;) {
        ag_jregion r;
        ag_jregion_begin(c, &r);
        const int more = ag_jiter_next(c, it->inner, item);
        const int selected = more > 0 ? is_selected(c, it->state, *item) : more;
        if (more <= 0 || selected < 0) return selected;
        if (selected) {
            ag_jregion_keep(c, &r);
            return 1;
        }
        ag_jregion_end(c, &r);
    }
}

/* A lazy filter before its first item. Its arguments are checked then, as in a generator of
 * Python. */
typedef struct pending_filter {
    item_call f;
    ag_jv value;
    ag_jargs args;
    bool maps, by_attribute;
} pending_filter;

static bool unknown_name(ag_jctx *c, const char *kind, ag_jv name) {
    if (name.kind == AG_JSTRING) {
        ag_jfail(c, "unknown %s '%.*s'", kind, (int)name.as.string->len, name.as.string->text);
    } else {
        ag_jfail(c, "the name of a %s must be a string, not '%s'", kind, ag_jtype_name(name));
    }
    return false;
}

static bool prepare_map(ag_jctx *c, pending_filter *p) {
    ag_jdict *k = p->args.keywords;
    ag_jstr attribute = {.text = "attribute", .len = 9},
            default_value = {.text = "default", .len = 7};
    ag_jv by = ag_jfail_value(), d = by;
    if (k) by = ag_jdict_find_string(c, k, &attribute, ag_jstr_hash_of("attribute", 9));
    if (!p->args.n && !ag_jfailed(by)) {
        d = ag_jdict_find_string(c, k, &default_value, ag_jstr_hash_of("default", 7));
        if (k->n > (ag_jfailed(d) ? 1u : 2u)) {
            return ag_jfail(c, "map takes no keyword arguments but attribute and default"), false;
        }
        p->f.has_path = true;
        if (!path_parse(c, by, &p->f.path)) return false;
        if (d.kind != AG_JNONE) p->f.path.default_value = d;
        return true;
    }
    if (!p->args.n) return ag_jfail(c, "map requires a filter argument"), false;
    ag_jv name = p->args.items[0];
    p->f.id =
        name.kind == AG_JSTRING ? ag_jfilter_find(name.as.string->text, name.as.string->len) : -1;
    if (p->f.id < 0) return unknown_name(c, "filter", name);
    p->f.args = (ag_jargs){p->args.items + 1, p->args.n - 1, k};
    return true;
}

static bool prepare_select(ag_jctx *c, pending_filter *p) {
    size_t at = 0;
    p->f.id = -1;
    if (p->by_attribute) {
        if (!p->args.n) return ag_jfail(c, "Missing parameter for attribute name"), false;
        p->f.has_path = true;
        if (!path_parse(c, p->args.items[at++], &p->f.path)) return false;
    }
    if (at >= p->args.n) return true;
    ag_jv name = p->args.items[at++];
    p->f.id =
        name.kind == AG_JSTRING ? ag_jtest_find(name.as.string->text, name.as.string->len) : -1;
    if (p->f.id < 0) return unknown_name(c, "test", name);
    p->f.args = (ag_jargs){p->args.items + at, p->args.n - at, p->args.keywords};
    return true;
}

static int next_of_pending(ag_jctx *c, ag_jiter *it, ag_jv *item) {
    pending_filter *p = it->state;
    if (!ag_jtruth(p->value)) return 0;
    bool ok = p->maps ? prepare_map(c, p) : prepare_select(c, p);
    it->inner = ok ? ag_jiter_of(c, p->value) : NULL;
    if (!it->inner) return -1;
    ag_jstored(c, it->region);
    it->state = &p->f;
    it->next = p->maps ? next_mapped : next_selected;
    return it->next(c, it, item);
}

static ag_jv lazy_filter(ag_jctx *c, ag_jv v, const ag_jargs *args, bool maps, bool negated,
                         bool by_attribute) {
    pending_filter *p = ag_jalloc_zeroed(c, sizeof *p);
    if (!p) return ag_jfail_value();
    p->value = v;
    p->args = *args;
    p->maps = maps;
    p->by_attribute = by_attribute;
    p->f.negated = negated;
    return ag_jiter_value(ag_jiter_create(c, "generator", next_of_pending, NULL, p));
}

ag_jv ag_jfilter_map(ag_jctx *c, ag_jv v, const ag_jargs *args) {
    return lazy_filter(c, v, args, true, false, false);
}
ag_jv ag_jfilter_select(ag_jctx *c, ag_jv v, const ag_jargs *args) {
    return lazy_filter(c, v, args, false, false, false);
}
ag_jv ag_jfilter_reject(ag_jctx *c, ag_jv v, const ag_jargs *args) {
    return lazy_filter(c, v, args, false, true, false);
}
ag_jv ag_jfilter_selectattr(ag_jctx *c, ag_jv v, const ag_jargs *args) {
    return lazy_filter(c, v, args, false, false, true);
}
ag_jv ag_jfilter_rejectattr(ag_jctx *c, ag_jv v, const ag_jargs *args) {
    return lazy_filter(c, v, args, false, true, true);
}

typedef struct unique_state {
    attr_path path;
    ag_jdict *seen;
} unique_state;

static int next_unique(ag_jctx *c, ag_jiter *it, ag_jv *item) {
    unique_state *u = it->state;
    if (!it->inner) {
        it->inner = ag_jiter_of(c, it->source);
        ag_jstored(c, it->region);
    }
    if (!it->inner) return -1;
    for (;;) {
        int more = ag_jiter_next(c, it->inner, item);
        if (more <= 0) return more;
        ag_jv key = path_get(c, &u->path, *item);
        if (ag_jfailed(key)) return -1;
        ag_jv seen = ag_jdict_find(c, u->seen, key);
        if (c->status != AG_OK) return -1;
        if (!ag_jfailed(seen)) continue;
        ag_jstored(c, it->region);
        return ag_jdict_set(c, u->seen, key, ag_jnone()) ? 1 : -1;
    }
}

ag_jv ag_jfilter_unique(ag_jctx *c, ag_jv v, const ag_jv *a) {
    unique_state *u = ag_jalloc(c, sizeof *u);
    if (!u || !path_parse(c, a[1], &u->path)) return ag_jfail_value();
    u->path.ignore_case = !ag_jtruth(a[0]);
    u->seen = ag_jdict_create(c, 0);
    ag_jiter *it = u->seen ? ag_jiter_create(c, "generator", next_unique, NULL, u) : NULL;
    if (it) it->source = v;
    return ag_jiter_value(it);
}

/* Builds the lists that slice(n) returns. batch(n) builds its lists in the same way; both hand them
 * out one by one. */

static ag_jlist *slice_rows(ag_jctx *c, const ag_jlist *all, int64_t slices, ag_jv fill) {
    ag_jlist *rows = ag_jlist_create(c, 0);
    size_t per = all->n / (size_t)slices, extra = all->n % (size_t)slices, at = 0;
    for (size_t k = 0; rows && k < (size_t)slices; k++) {
        ag_jlist *row = ag_jlist_create(c, per + 1);
        if (!row || !ag_jwork(c, per + 1)) return NULL;
        for (size_t i = 0; i < per + (k < extra); i++) row->items[row->n++] = all->items[at++];
        bool fills = !ag_jfailed(fill) && fill.kind != AG_JNONE && k >= extra;
        if (fills && !ag_jlist_push(c, row, fill)) return NULL;
        if (!ag_jlist_push(c, rows, ag_jlist_value(row))) return NULL;
    }
    return rows;
}

ag_jv ag_jfilter_slice(ag_jctx *c, ag_jv v, const ag_jv *a) {
    int64_t n;
    if (!ag_jargument_int(c, a[0], 0, &n)) return ag_jfail_value();
    ag_jlist *all = ag_jlist_of(c, v);
    if (!all) return ag_jfail_value();
    if (n == 0) return ag_jfail(c, "slice: the number of slices must not be 0");
    ag_jlist *rows = n < 0 ? ag_jlist_create(c, 0) : slice_rows(c, all, n, a[1]);
    ag_jiter *it = rows ? ag_jiter_of(c, ag_jlist_value(rows)) : NULL;
    if (it) it->type_name = "generator";
    return ag_jiter_value(it);
}

ag_jv ag_jfilter_batch(ag_jctx *c, ag_jv v, const ag_jv *a) {
    ag_jlist *all = ag_jlist_of(c, v), *rows = all ? ag_jlist_create(c, 0) : NULL, *row = NULL;
    if (!rows) return ag_jfail_value();
    double count = ag_jis_number(a[0]) ? ag_jnumber(a[0]) : -1;
    for (size_t i = 0; i < all->n; i++) {
        if (!row || (double)row->n == count) {
            row = ag_jlist_create(c, 0);
            if (!row || !ag_jlist_push(c, rows, ag_jlist_value(row))) return ag_jfail_value();
        }
        if (i == 0 && count == 0) { /* the first row is full while it is empty */
            row = ag_jlist_create(c, 0);
            if (!row || !ag_jlist_push(c, rows, ag_jlist_value(row))) return ag_jfail_value();
        }
        if (!ag_jwork(c, 1) || !ag_jlist_push(c, row, all->items[i])) return ag_jfail_value();
    }
    bool fills = row && !ag_jfailed(a[1]) && a[1].kind != AG_JNONE;
    while (fills && (double)row->n < count) {
        if (!ag_jwork(c, 1) || !ag_jlist_push(c, row, a[1])) return ag_jfail_value();
    }
    ag_jiter *it = ag_jiter_of(c, ag_jlist_value(rows));
    if (it) it->type_name = "generator";
    return ag_jiter_value(it);
}

/* Item with its sort key. */
typedef struct keyed {
    ag_jv key, item;
    bool reverse;
} keyed;

static int by_sort_key(ag_jctx *c, const void *a, const void *b) {
    const keyed *x = a, *y = b;
    int r = ag_jcompare(c, x->key, y->key);
    if (r == AG_JCOMPARE_FAILED) return r;
    if (r == AG_JCOMPARE_UNORDERED) return 0;
    return x->reverse ? -r : r;
}

/* Returns the sort key of v: the value of one attribute if n is 0, else a list of the values of n
 * attributes ("a,b.c"). */
static ag_jv sort_key(ag_jctx *c, const attr_path *paths, size_t n, ag_jv v) {
    if (n == 0) return path_get(c, &paths[0], v);
    ag_jlist *l = ag_jlist_create(c, n);
    for (size_t i = 0; l && i < n; i++) {
        if (!ag_jlist_push(c, l, path_get(c, &paths[i], v))) return ag_jfail_value();
    }
    return ag_jlist_value(l);
}

static keyed *keyed_items(ag_jctx *c, ag_jlist *l, const attr_path *paths, size_t n, bool reverse) {
    keyed *k = ag_jalloc(c, (l->n + 1) * sizeof *k);
    for (size_t i = 0; k && i < l->n; i++) {
        k[i] = (keyed){sort_key(c, paths, n, l->items[i]), l->items[i], reverse};
        if (ag_jfailed(k[i].key) || !ag_jwork(c, 1)) return NULL;
    }
    return k;
}

static ag_jlist *sorted_by(ag_jctx *c, ag_jlist *l, const attr_path *paths, size_t n,
                           bool reverse) {
    keyed *k = keyed_items(c, l, paths, n, reverse);
    if (!k || !ag_jlist_sort(c, k, l->n, sizeof *k, by_sort_key)) return NULL;
    ag_jlist *sorted = ag_jlist_create(c, l->n);
    for (size_t i = 0; sorted && i < l->n; i++) {
        if (!ag_jwork(c, 1)) return NULL;
        sorted->items[sorted->n++] = k[i].item;
    }
    return sorted;
}

enum { MAX_SORT_KEYS = 16 };

ag_jv ag_jfilter_sort(ag_jctx *c, ag_jv v, const ag_jv *a) {
    attr_path paths[MAX_SORT_KEYS];
    size_t n = 1;
    if (a[2].kind == AG_JSTRING) {
        ag_jstr comma = {.text = ",", .len = 1};
        ag_jv parts = ag_jstr_split(c, a[2], (ag_jv[]){ag_jstring(&comma), ag_jfail_value()});
        if (ag_jfailed(parts)) return parts;
        n = parts.as.list->n;
        if (n > MAX_SORT_KEYS)
            return ag_jfail_as(c, AG_LIMIT, "sort takes at most %d attributes, not %zu",
                               MAX_SORT_KEYS, n);
        for (size_t i = 0; i < n; i++) {
            if (!path_parse(c, parts.as.list->items[i], &paths[i])) return ag_jfail_value();
        }
    } else if (!path_parse(c, a[2], &paths[0])) {
        return ag_jfail_value();
    }
    int64_t reverse;
    for (size_t i = 0; i < n; i++) paths[i].ignore_case = !ag_jtruth(a[1]);
    if (!ag_jargument_int(c, a[0], 0, &reverse)) return ag_jfail_value();
    ag_jlist *l = ag_jlist_of(c, v);
    return l ? ag_jlist_value(sorted_by(c, l, paths, n, reverse != 0)) : ag_jfail_value();
}

ag_jv ag_jfilter_dictsort(ag_jctx *c, ag_jv v, const ag_jv *a) {
    bool by_value = a[1].kind == AG_JSTRING && ag_jstr_is(a[1].as.string, "value");
    bool by_name =
        ag_jfailed(a[1]) || (a[1].kind == AG_JSTRING && ag_jstr_is(a[1].as.string, "key"));
    if (!by_value && !by_name)
        return ag_jfail(c, "You can only sort by either \"key\" or \"value\"");
    if (v.kind == AG_JUNDEFINED) return ag_jfail_undefined(c, v);
    if (v.kind != AG_JDICT) return ag_jfail(c, "dictsort needs a dict, not '%s'", ag_jtype_name(v));
    ag_jlist *l = ag_jlist_create(c, v.as.dict->n);
    const ag_jentry *e = ag_jdict_entries(c, v.as.dict);
    if (c->status != AG_OK) return ag_jfail_value();
    for (size_t i = 0; l && i < v.as.dict->n; i++, e++) {
        if (!ag_jlist_push(c, l, ag_jtuple_value(ag_jlist_pair(c, e->key, e->value)))) {
            return ag_jfail_value();
        }
    }
    ag_jv part = ag_jint(by_value);
    int64_t reverse;
    if (!ag_jargument_int(c, a[2], 0, &reverse)) return ag_jfail_value();
    attr_path path = {.parts = &part, .n = 1, .ignore_case = !ag_jtruth(a[0])};
    return l ? ag_jlist_value(sorted_by(c, l, &path, 0, reverse != 0)) : ag_jfail_value();
}

static ag_jv extreme(ag_jctx *c, ag_jv v, const ag_jv *a, bool largest) {
    attr_path path;
    if (!path_parse(c, a[1], &path)) return ag_jfail_value();
    path.ignore_case = !ag_jtruth(a[0]);
    ag_jlist *l = ag_jlist_of(c, v);
    if (!l) return ag_jfail_value();
    if (!l->n) return ag_jundefined_hint(c, "No aggregated item, sequence was empty.");
    keyed *k = keyed_items(c, l, &path, 0, false);
    size_t best = 0;
    for (size_t i = 1; k && i < l->n; i++) {
        int r = ag_jcompare(c, k[i].key, k[best].key);
        if (r == AG_JCOMPARE_FAILED) return ag_jfail_value();
        if (r != AG_JCOMPARE_UNORDERED && (largest ? r > 0 : r < 0)) best = i;
    }
    return k ? l->items[best] : ag_jfail_value();
}

ag_jv ag_jfilter_min(ag_jctx *c, ag_jv v, const ag_jv *a) { return extreme(c, v, a, false); }
ag_jv ag_jfilter_max(ag_jctx *c, ag_jv v, const ag_jv *a) { return extreme(c, v, a, true); }

ag_jv ag_jfilter_sum(ag_jctx *c, ag_jv v, const ag_jv *a) {
    attr_path path;
    ag_jv sum = ag_jfailed(a[1]) ? ag_jint(0) : a[1];
    if (!path_parse(c, a[0], &path)) return ag_jfail_value();
    if (sum.kind == AG_JSTRING) return ag_jfail(c, "sum() can't sum strings");
    ag_jiter *it = ag_jiter_of(c, v);
    for (;;) {
        ag_jv item;
        int more = it ? ag_jiter_next(c, it, &item) : -1;
        if (more < 0) return ag_jfail_value();
        if (!more) return sum;
        item = path_get(c, &path, item);
        if (ag_jfailed(item)) return item;
        sum = ag_jbinary(c, AG_JOP_ADD, sum, item);
        if (ag_jfailed(sum)) return sum;
    }
}

static ag_jv group_value(ag_jctx *c, ag_jv grouper, ag_jlist *items) {
    ag_jlist *l = ag_jlist_pair(c, grouper, ag_jlist_value(items));
    if (l) l->is_group = true;
    return ag_jtuple_value(l);
}

ag_jv ag_jfilter_groupby(ag_jctx *c, ag_jv v, const ag_jv *a) {
    attr_path path;
    if (!path_parse(c, a[0], &path)) return ag_jfail_value();
    if (a[1].kind != AG_JNONE) path.default_value = a[1];
    path.ignore_case = !ag_jtruth(a[2]);
    ag_jlist *l = ag_jlist_of(c, v), *groups = l ? ag_jlist_create(c, 0) : NULL, *items = NULL;
    keyed *k = groups ? keyed_items(c, l, &path, 0, false) : NULL;
    if (!k || !ag_jlist_sort(c, k, l->n, sizeof *k, by_sort_key)) return ag_jfail_value();
    path.ignore_case = false;
    for (size_t i = 0; i < l->n; i++) {
        int same = i ? ag_jequal(c, k[i].key, k[i - 1].key) : 0;
        if (same < 0) return ag_jfail_value();
        if (!same) {
            items = ag_jlist_create(c, 1);
            ag_jv key = items ? path_get(c, &path, k[i].item) : ag_jfail_value();
            if (!items || !ag_jlist_push(c, groups, group_value(c, key, items))) {
                return ag_jfail_value();
            }
        }
        if (!ag_jlist_push(c, items, k[i].item)) return ag_jfail_value();
    }
    return ag_jlist_value(groups);
}
