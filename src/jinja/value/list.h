/* SPDX-License-Identifier: Apache-2.0 */
/* Lists, dicts and iterators. */
#ifndef AG_JINJA_VALUE_LIST_H
#define AG_JINJA_VALUE_LIST_H

#include "jinja/context.h"

ag_jlist *ag_jlist_create(ag_jctx *c, size_t cap);
/* Creates a list that borrows the array: each access to an item creates its value. */
ag_jlist *ag_jlist_of_json(ag_jctx *c, const json_t *array, bool from_input);
/* Item number i, of which there are more; AG_JFAIL: no memory. */
ag_jv ag_jlist_get(ag_jctx *c, const ag_jlist *l, size_t i);
/* l[begin..begin+n), which shares what l has. */
ag_jlist *ag_jlist_slice(ag_jctx *c, const ag_jlist *l, size_t begin, size_t n);
bool ag_jlist_push(ag_jctx *c, ag_jlist *l, ag_jv v);
ag_jlist *ag_jlist_pair(ag_jctx *c, ag_jv a, ag_jv b);
/* All that v gives when it is iterated over. */
ag_jlist *ag_jlist_of(ag_jctx *c, ag_jv v);
/* Stable; negative, 0, positive, or AG_JCOMPARE_FAILED. */
bool ag_jlist_sort(ag_jctx *c, void *items, size_t n, size_t size,
                   int (*compare)(ag_jctx *c, const void *a, const void *b));

ag_jdict *ag_jdict_create(ag_jctx *c, size_t cap);
bool ag_jdict_set(ag_jctx *c, ag_jdict *d, ag_jv key, ag_jv value); /* fails for a list as a key */
bool ag_jdict_set_text(ag_jctx *c, ag_jdict *d, const char *key, ag_jv value);
/* Creates a dict that borrows the object: each access to an entry creates its value. */
ag_jdict *ag_jdict_of_json(ag_jctx *c, const json_t *object, bool from_input);
/* d, or a dict with the entries of its object, whose values are made so far; NULL: failed. */
ag_jdict *ag_jdict_filled(ag_jctx *c, ag_jdict *d);
/* All d->n entries of that; NULL: failed, or there are none. */
const ag_jentry *ag_jdict_entries(ag_jctx *c, ag_jdict *d);
/* Returns v for an iteration; a dict, or a view of one, gets all its entries first. AG_JFAIL:
 * failed.
 */
ag_jv ag_jiterated(ag_jctx *c, ag_jv v);
/* The value; AG_JFAIL: absent, or failed, then with an error in the context. */
ag_jv ag_jdict_find(ag_jctx *c, const ag_jdict *d, ag_jv key);
ag_jv ag_jdict_find_string(ag_jctx *c, const ag_jdict *d, const ag_jstr *key, uint32_t hash);
/* The number of the entry of that name, which is there. */
size_t ag_jdict_index(ag_jctx *c, const ag_jdict *d, ag_jstr *name);
ag_jdict *ag_jdict_copy(ag_jctx *c, ag_jdict *d);
/* What hash() gives: equal values have the same. False: it cannot be hashed. */
bool ag_jhash(ag_jctx *c, ag_jv v, uint32_t *out);

/* The values of a JSON text's tree; strings are borrowed from it. */
ag_jv ag_jfrom_json(ag_jctx *c, const json_t *j, bool from_input);

/* iter(v); NULL: v cannot be iterated over. */
ag_jiter *ag_jiter_of(ag_jctx *c, ag_jv v);
ag_jiter *ag_jiter_create(ag_jctx *c, const char *type_name,
                          int (*next)(ag_jctx *c, ag_jiter *it, ag_jv *item), ag_jiter *inner,
                          void *state);
ag_jiter *ag_jiter_reversed(ag_jctx *c, ag_jv v); /* of a sequence */
/* 1 and an item, 0 at the end, -1 failed. Iterators over iterators may be nested deeply. */
static inline int ag_jiter_next(ag_jctx *c, ag_jiter *it, ag_jv *item) {
    if (!ag_jenter(c)) return -1;
    int more = it->next(c, it, item);
    ag_jleave(c);
    return more;
}
bool ag_jis_iterable(ag_jv v);

/* len(v) without recording an error; -1: it has none. */
int64_t ag_jlength(ag_jv v);
/* Item number i of a list, tuple, range, string (a character), or of a dict (a key) or view that
 * ag_jiterated() gave; there are more than i. */
ag_jv ag_jitem_at(ag_jctx *c, ag_jv v, size_t i);
ag_jv ag_jview_item(ag_jctx *c, const ag_jview *view, size_t i);

#endif
