/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/value/list.h"

#include "jinja/value/string.h"

#include <string.h>

ag_jlist *ag_jlist_create(ag_jctx *c, size_t cap) {
    ag_jlist *l = ag_jalloc_zeroed(c, sizeof *l);
    if (!l || !cap) return l;
    l->items = cap < SIZE_MAX / 64 ? ag_jalloc(c, cap * sizeof *l->items) : NULL;
    if (!l->items) return NULL;
    l->cap = cap;
    return l;
}

ag_jlist *ag_jlist_of_json(ag_jctx *c, const json_t *array, bool from_input) {
    ag_jlist *l = ag_jlist_create(c, 0);
    if (!l) return NULL;
    l->source = array;
    l->n = json_array_size(array);
    l->from_input = from_input;
    return l;
}

ag_jv ag_jlist_get(ag_jctx *c, const ag_jlist *l, size_t i) {
    if (!l->source) return l->items[i];
    return ag_jfrom_json(c, json_array_get(l->source, l->first + i), l->from_input);
}

ag_jlist *ag_jlist_slice(ag_jctx *c, const ag_jlist *l, size_t begin, size_t n) {
    ag_jlist *part = ag_jalloc(c, sizeof *part);
    if (!part) return NULL;
    *part = *l;
    if (l->source) part->first += begin;
    else if (l->items) part->items += begin;
    part->n = part->cap = n;
    part->is_group = false;
    part->is_slice = true;
    return part;
}

bool ag_jlist_push(ag_jctx *c, ag_jlist *l, ag_jv v) {
    if (ag_jfailed(v)) return false;
    if (l->n == l->cap && !ag_jgrow(c, &l->items, l->n, &l->cap, sizeof *l->items)) return false;
    l->items[l->n++] = v;
    return true;
}

ag_jlist *ag_jlist_pair(ag_jctx *c, ag_jv a, ag_jv b) {
    ag_jlist *l = ag_jlist_create(c, 2);
    if (!l || ag_jfailed(a) || ag_jfailed(b)) return NULL;
    l->items[0] = a;
    l->items[1] = b;
    l->n = 2;
    return l;
}

ag_jlist *ag_jlist_of(ag_jctx *c, ag_jv v) {
    ag_jiter *it = ag_jiter_of(c, v);
    int64_t n = ag_jlength(v);
    ag_jlist *l = it ? ag_jlist_create(c, n > 0 ? (size_t)n : 0) : NULL;
    if (!l) return NULL;
    for (;;) {
        ag_jv item;
        int more = ag_jiter_next(c, it, &item);
        if (more < 0) return NULL;
        if (!more) return l;
        if (!ag_jwork(c, 1) || !ag_jlist_push(c, l, item)) return NULL;
    }
}

/* Merge sort, bottom up. */
bool ag_jlist_sort(ag_jctx *c, void *items, size_t n, size_t size,
                   int (*compare)(ag_jctx *c, const void *a, const void *b)) {
    char *from = items, *to = n > 1 ? ag_jalloc(c, n * size) : from, *scratch = to;
    if (!to) return false;
    for (size_t run = 1; run < n; run *= 2) {
        for (size_t begin = 0; begin < n; begin += 2 * run) {
            size_t a = begin, a_end = begin + run < n ? begin + run : n;
            size_t b = a_end, b_end = a_end + run < n ? a_end + run : n;
            for (size_t k = begin; k < b_end; k++) {
                bool take_b = a == a_end;
                if (!take_b && b < b_end) {
                    int r = compare(c, from + b * size, from + a * size);
                    if (r == AG_JCOMPARE_FAILED || !ag_jwork(c, 1)) return false;
                    take_b = r < 0;
                }
                memcpy(to + k * size, from + (take_b ? b++ : a++) * size, size);
            }
        }
        char *swap = from;
        from = to;
        to = swap;
    }
    if (from == scratch && n > 1) memcpy(items, from, n * size);
    return true;
}

static int next_item(ag_jctx *c, ag_jiter *it, ag_jv *item) {
    if (it->at >= it->end) return 0;
    *item = ag_jitem_at(c, it->source, it->at++);
    return ag_jfailed(*item) ? -1 : 1;
}

static int next_char(ag_jctx *c, ag_jiter *it, ag_jv *item) {
    const ag_jstr *s = it->source.as.string;
    if (it->at >= s->len) return 0;
    size_t n = 1;
    while (it->at + n < s->len && ((unsigned char)s->text[it->at + n] & 0xC0) == 0x80) n++;
    *item = ag_jstring(ag_jstr_slice(c, s, it->at, it->at + n));
    it->at += n;
    if (ag_jfailed(*item)) return -1;
    item->as.string->markup = false; /* Python's iterator drops the markup flag */
    return 1;
}

static int next_nothing(ag_jctx *c, ag_jiter *it, ag_jv *item) {
    (void)c;
    (void)it;
    (void)item;
    return 0;
}

bool ag_jis_iterable(ag_jv v) {
    switch (v.kind) {
    case AG_JSTRING:
    case AG_JLIST:
    case AG_JTUPLE:
    case AG_JDICT:
    case AG_JRANGE:
    case AG_JVIEW:
    case AG_JITERATOR:
    case AG_JUNDEFINED:
        return true;
    default:
        return false;
    }
}

ag_jiter *ag_jiter_create(ag_jctx *c, const char *type_name,
                          int (*next)(ag_jctx *c, ag_jiter *it, ag_jv *item), ag_jiter *inner,
                          void *state) {
    ag_jiter *it = ag_jalloc_zeroed(c, sizeof *it);
    if (!it) return NULL;
    it->type_name = type_name;
    it->next = next;
    it->inner = inner;
    it->state = state;
    it->region = c->n_regions;
    return it;
}

ag_jv ag_jiterated(ag_jctx *c, ag_jv v) {
    if (v.kind == AG_JDICT) return ag_jdict_value(ag_jdict_filled(c, v.as.dict));
    if (v.kind != AG_JVIEW) return v;
    ag_jdict *filled = ag_jdict_filled(c, v.as.view->dict);
    if (filled == v.as.view->dict) return v;
    ag_jview *view = filled ? ag_jalloc(c, sizeof *view) : NULL;
    if (!view) return ag_jfail_value();
    *view = (ag_jview){filled, v.as.view->kind};
    return (ag_jv){AG_JVIEW, {.view = view}};
}

ag_jiter *ag_jiter_of(ag_jctx *c, ag_jv v) {
    if (v.kind == AG_JITERATOR) return v.as.iterator;
    if (!ag_jis_iterable(v)) {
        ag_jfail(c, "'%s' object is not iterable", ag_jtype_name(v));
        return NULL;
    }
    ag_jiter *it = ag_jiter_create(c, "iterator", next_item, NULL, NULL);
    if (it) it->source = ag_jiterated(c, v);
    if (!it || ag_jfailed(it->source)) return NULL;
    if (v.kind == AG_JSTRING) {
        it->next = next_char;
    } else if (v.kind == AG_JUNDEFINED) {
        it->next = next_nothing;
    } else {
        it->end = (size_t)ag_jlength(v);
    }
    return it;
}

static int next_reversed(ag_jctx *c, ag_jiter *it, ag_jv *item) {
    if (it->end == 0) return 0;
    *item = ag_jitem_at(c, it->source, --it->end);
    return ag_jfailed(*item) ? -1 : 1;
}

ag_jiter *ag_jiter_reversed(ag_jctx *c, ag_jv v) {
    ag_jiter *it = ag_jiter_create(c, "list_reverseiterator", next_reversed, NULL, NULL);
    if (it) it->source = ag_jiterated(c, v);
    if (!it || ag_jfailed(it->source)) return NULL;
    it->end = (size_t)ag_jlength(v);
    return it;
}

int64_t ag_jlength(ag_jv v) {
    switch (v.kind) {
    case AG_JSTRING:
        return (int64_t)ag_jstr_chars(v.as.string);
    case AG_JLIST:
    case AG_JTUPLE:
        return (int64_t)v.as.list->n;
    case AG_JDICT:
        return (int64_t)v.as.dict->n;
    case AG_JRANGE:
        return (int64_t)v.as.range->n;
    case AG_JVIEW:
        return (int64_t)v.as.view->dict->n;
    case AG_JUNDEFINED:
        return 0;
    default:
        return -1;
    }
}

ag_jv ag_jitem_at(ag_jctx *c, ag_jv v, size_t i) {
    if (ag_jis_sequence(v)) return ag_jlist_get(c, v.as.list, i);
    if (v.kind == AG_JRANGE) { return ag_jint(v.as.range->start + (int64_t)i * v.as.range->step); }
    if (v.kind == AG_JVIEW) return ag_jview_item(c, v.as.view, i);
    if (v.kind == AG_JDICT) return v.as.dict->entries[i].key;
    ag_jstr *s = v.as.string;
    size_t begin = ag_jstr_offset(s, i), end = begin + 1;
    if (!ag_jstr_is_ascii(s)) {
        if (!ag_jwork_bytes(c, s->len)) return ag_jfail_value();
        while (end < s->len && ((unsigned char)s->text[end] & 0xC0) == 0x80) end++;
    }
    return ag_jstring(ag_jstr_slice(c, s, begin, end));
}

ag_jv ag_jview_item(ag_jctx *c, const ag_jview *view, size_t i) {
    const ag_jentry *e = &view->dict->entries[i];
    if (view->kind == AG_JVIEW_KEYS) return e->key;
    if (view->kind == AG_JVIEW_VALUES) return e->value;
    return ag_jtuple_value(ag_jlist_pair(c, e->key, e->value));
}
