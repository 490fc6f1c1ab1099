/* SPDX-License-Identifier: Apache-2.0 */
/* Lists, dicts and iterators. */
#ifndef AG_JINJA_VALUE_LIST_H
#define AG_JINJA_VALUE_LIST_H

#include "jinja/context.h"

ag_jlist *ag_jlist_create(ag_jctx *c, size_t cap);
/* Creates a list that borrows the array. Each access creates a value. */
ag_jlist *ag_jlist_of_json(ag_jctx *c, const json_t *array, bool from_input);
/* Returns item i; i must be below l->n. Returns AG_JFAIL if out of memory. */
ag_jv ag_jlist_get(ag_jctx *c, const ag_jlist *l, size_t i);
/* Returns l[begin..begin+n), which shares the items of l. */
ag_jlist *ag_jlist_slice(ag_jctx *c, const ag_jlist *l, size_t begin, size_t n);
bool ag_jlist_push(ag_jctx *c, ag_jlist *l, ag_jv v);
ag_jlist *ag_jlist_pair(ag_jctx *c, ag_jv a, ag_jv b);
/* Returns a list of all items that iterating over v gives. */
ag_jlist *ag_jlist_of(ag_jctx *c, ag_jv v);
/* Sorts stably. compare returns a negative value, 0, a positive value, or AG_JCOMPARE_FAILED. */
bool ag_jlist_sort(ag_jctx *c, void *items, size_t n, size_t size,
                   int (*compare)(ag_jctx *c, const void *a, const void *b));

ag_jdict *ag_jdict_create(ag_jctx *c, size_t cap);
bool ag_jdict_set(ag_jctx *c, ag_jdict *d, ag_jv key,
                  ag_jv value); /* fails for an unhashable key */
bool ag_jdict_set_text(ag_jctx *c, ag_jdict *d, const char *key, ag_jv value);
/* Creates a dict that borrows the object. Each access creates a value. */
ag_jdict *ag_jdict_of_json(ag_jctx *c, const json_t *object, bool from_input);
/* Returns d, or a new dict with the entries of its JSON object. Returns NULL on failure. */
ag_jdict *ag_jdict_filled(ag_jctx *c, ag_jdict *d);
/* Returns all d->n entries. Returns NULL on failure (c->status is set) or if there are none. */
const ag_jentry *ag_jdict_entries(ag_jctx *c, ag_jdict *d);
/* Returns v ready for iteration: a dict or a view of a dict gets its entries. Returns AG_JFAIL on
 * failure. */
ag_jv ag_jiterated(ag_jctx *c, ag_jv v);
/* Returns the value of the key, AG_JFAIL if it is absent or on failure (c->status is set). */
ag_jv ag_jdict_find(ag_jctx *c, const ag_jdict *d, ag_jv key);
ag_jv ag_jdict_find_string(ag_jctx *c, const ag_jdict *d, const ag_jstr *key, uint32_t hash);
/* Returns the number of the entry `name`, which must exist. */
size_t ag_jdict_index(ag_jctx *c, const ag_jdict *d, ag_jstr *name);
ag_jdict *ag_jdict_copy(ag_jctx *c, ag_jdict *d);
/* Computes a hash; equal values have equal hashes. Fails for unhashable values. */
bool ag_jhash(ag_jctx *c, ag_jv v, uint32_t *out);

/* Returns the value of a JSON tree, which it borrows. */
ag_jv ag_jfrom_json(ag_jctx *c, const json_t *j, bool from_input);

/* Returns iter(v), NULL with the error recorded if v is not iterable. */
ag_jiter *ag_jiter_of(ag_jctx *c, ag_jv v);
ag_jiter *ag_jiter_create(ag_jctx *c, const char *type_name,
                          int (*next)(ag_jctx *c, ag_jiter *it, ag_jv *item), ag_jiter *inner,
                          void *state);
ag_jiter *ag_jiter_reversed(ag_jctx *c, ag_jv v); /* v: a sequence */
/* Stores the next item and returns 1; returns 0 at the end, -1 on failure. Bounds the depth of
 * iterators over iterators. */
static inline int ag_jiter_next(ag_jctx *c, ag_jiter *it, ag_jv *item) {
    if (!ag_jenter(c)) return -1;
    int more = it->next(c, it, item);
    ag_jleave(c);
    return more;
}
bool ag_jis_iterable(ag_jv v);

/* Returns len(v), -1 if it has none. Records no error. */
int64_t ag_jlength(ag_jv v);
/* Returns item i, which must exist, of a list, tuple, range or string (a character), or of a dict
 * (a key) or view returned by ag_jiterated(). */
ag_jv ag_jitem_at(ag_jctx *c, ag_jv v, size_t i);
ag_jv ag_jview_item(ag_jctx *c, const ag_jview *view, size_t i);

#endif
