/* SPDX-License-Identifier: Apache-2.0 */
/* Dicts keep the order of insertion; small ones are searched from the start, larger ones by hash.
 */
#include "chat/jinja_list.h"
#include "chat/jinja_number.h"
#include "chat/jinja_ops.h"
#include "chat/jinja_string.h"

#include <math.h>
#include <string.h>

enum { SMALL = 8 };

static uint32_t hash_int(int64_t i) {
    uint64_t h = (uint64_t)i * 0x9E3779B97F4A7C15u;
    return (uint32_t)(h >> 32);
}

bool ag_jhash(ag_jctx *c, ag_jv v, uint32_t *out) {
    switch (v.kind) {
    case AG_JSTRING:
        return *out = ag_jstr_hash(v.as.string), true;
    case AG_JBOOL:
    case AG_JINT:
        return *out = hash_int(ag_jinteger(v)), true;
    case AG_JFLOAT: { /* that of the integer it is equal to */
        double d = v.as.number;
        if (d == floor(d) && fabs(d) < 9.2e18) return *out = hash_int((int64_t)d), true;
        memcpy(out, &d, sizeof *out);
        return true;
    }
    case AG_JTUPLE:
        *out = 17;
        if (!ag_jenter(c)) return false;
        for (size_t i = 0; i < v.as.list->n; i++) {
            uint32_t h;
            if (!ag_jhash(c, v.as.list->items[i], &h)) return false;
            *out = *out * 31 + h;
        }
        ag_jleave(c);
        return true;
    case AG_JVIEW:
        if (v.as.view->which == AG_JVIEW_VALUES) return *out = (uint32_t)v.kind, true;
        ag_jfail(c, "unhashable type: '%s'", ag_jtype_name(v));
        return false;
    case AG_JLIST:
    case AG_JDICT:
        ag_jfail(c, "unhashable type: '%s'", ag_jtype_name(v));
        return false;
    default:
        return *out = (uint32_t)v.kind, true;
    }
}

ag_jdict *ag_jdict_create(ag_jctx *c, size_t cap) {
    ag_jdict *d = ag_jtake_zeroed(c, sizeof *d);
    if (!d || !cap) return d;
    d->entries = cap < SIZE_MAX / 64 ? ag_jtake(c, cap * sizeof *d->entries) : NULL;
    if (!d->entries) return NULL;
    d->cap = cap;
    return d;
}

static bool build_slots(ag_jctx *c, ag_jdict *d) {
    size_t n = d->n_slots ? d->n_slots * 2 : 32;
    while (n < d->cap * 2) n *= 2;
    d->slots = ag_jtake_zeroed(c, n * sizeof *d->slots);
    if (!d->slots) return false;
    d->n_slots = n;
    for (size_t i = 0; i < d->n; i++) {
        size_t k = d->entries[i].hash & (n - 1);
        while (d->slots[k]) k = (k + 1) & (n - 1);
        d->slots[k] = (uint32_t)i + 1;
    }
    return true;
}

static bool same_key(ag_jctx *c, const ag_jentry *e, ag_jv key, uint32_t hash) {
    if (e->hash != hash) return false;
    if (key.kind == AG_JSTRING && e->key.kind == AG_JSTRING) {
        return ag_jstr_equal(key.as.string, e->key.as.string);
    }
    return ag_jequal(c, e->key, key) == 1;
}

static ag_jentry *find_hashed(ag_jctx *c, const ag_jdict *d, ag_jv key, uint32_t hash) {
    if (!d->n_slots) {
        for (size_t i = 0; i < d->n; i++) {
            if (same_key(c, &d->entries[i], key, hash)) return &d->entries[i];
        }
        return NULL;
    }
    /* Not a step for each slot: how many there are depends on the key of the hash. */
    if (!ag_jwork(c, 1)) return NULL;
    for (size_t k = hash & (d->n_slots - 1); d->slots[k]; k = (k + 1) & (d->n_slots - 1)) {
        ag_jentry *e = &d->entries[d->slots[k] - 1];
        if (same_key(c, e, key, hash)) return e;
    }
    return NULL;
}

ag_jentry *ag_jdict_find(ag_jctx *c, const ag_jdict *d, ag_jv key) {
    uint32_t hash;
    return ag_jhash(c, key, &hash) ? find_hashed(c, d, key, hash) : NULL;
}

ag_jentry *ag_jdict_find_string(const ag_jdict *d, const ag_jstr *key, uint32_t hash) {
    size_t k = hash & (d->n_slots - 1);
    for (size_t i = 0; d->n_slots ? d->slots[k] != 0 : i < d->n; i++) {
        ag_jentry *e = &d->entries[d->n_slots ? d->slots[k] - 1 : i];
        if (e->hash == hash && e->key.kind == AG_JSTRING && ag_jstr_equal(e->key.as.string, key)) {
            return e;
        }
        k = (k + 1) & (d->n_slots - 1);
    }
    return NULL;
}

bool ag_jdict_set(ag_jctx *c, ag_jdict *d, ag_jv key, ag_jv value) {
    uint32_t hash;
    if (ag_jfailed(key) || ag_jfailed(value) || !ag_jhash(c, key, &hash)) return false;
    ag_jentry *e = find_hashed(c, d, key, hash);
    if (c->status != AG_OK) return false;
    if (e) return e->value = value, true;
    if (d->n == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 4;
        void *p = ag_jgrow(c, d->entries, d->cap * sizeof *d->entries, cap * sizeof *d->entries);
        if (!p) return false;
        d->entries = p;
        d->cap = cap;
    }
    d->entries[d->n++] = (ag_jentry){key, value, hash};
    if (d->n <= SMALL) return true;
    if (d->n * 2 > d->n_slots) return build_slots(c, d);
    size_t k = hash & (d->n_slots - 1);
    while (d->slots[k]) k = (k + 1) & (d->n_slots - 1);
    d->slots[k] = (uint32_t)d->n;
    return true;
}

bool ag_jdict_set_text(ag_jctx *c, ag_jdict *d, const char *key, ag_jv value) {
    return ag_jdict_set(c, d, ag_jstr_literal(c, key), value);
}

ag_jdict *ag_jdict_copy(ag_jctx *c, const ag_jdict *d) {
    ag_jdict *copy = ag_jdict_create(c, d->n);
    for (size_t i = 0; copy && i < d->n; i++) {
        if (!ag_jdict_set(c, copy, d->entries[i].key, d->entries[i].value)) return NULL;
    }
    return copy;
}
