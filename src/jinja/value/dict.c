/* SPDX-License-Identifier: Apache-2.0 */
/* Dicts in insertion order. Small ones are searched linearly, larger ones by hash. */
#include "jinja/value/list.h"
#include "jinja/value/ops.h"
#include "jinja/value/string.h"

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
    case AG_JFLOAT: { /* hash of the equal integer */
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
        if (v.as.view->kind == AG_JVIEW_VALUES) return *out = (uint32_t)v.kind, true;
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
    ag_jdict *d = ag_jalloc_zeroed(c, sizeof *d);
    if (!d) return NULL;
    d->region = c->n_regions;
    if (!cap) return d;
    d->entries = cap < SIZE_MAX / 64 ? ag_jalloc(c, cap * sizeof *d->entries) : NULL;
    if (!d->entries) return NULL;
    d->cap = cap;
    return d;
}

static bool build_slots(ag_jctx *c, ag_jdict *d) {
    size_t n = d->n_slots ? d->n_slots * 2 : 32;
    while (n < d->cap * 2) n *= 2;
    d->slots = ag_jalloc_zeroed(c, n * sizeof *d->slots);
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
    /* One step in all: the number of probed slots depends on the random hash key. */
    if (!ag_jwork(c, 1)) return NULL;
    for (size_t k = hash & (d->n_slots - 1); d->slots[k]; k = (k + 1) & (d->n_slots - 1)) {
        ag_jentry *e = &d->entries[d->slots[k] - 1];
        if (same_key(c, e, key, hash)) return e;
    }
    return NULL;
}

/* ---- of JSON ---- */

ag_jdict *ag_jdict_of_json(ag_jctx *c, const json_t *object, bool from_input) {
    ag_jdict *d = ag_jdict_create(c, 0);
    if (!d) return NULL;
    d->source = object;
    d->n = json_object_size(object);
    d->from_input = from_input;
    return d;
}

static bool has_no_entries(const ag_jdict *d) { return d->source && !d->entries; }

static ag_jv find_member(ag_jctx *c, const ag_jdict *d, const ag_jstr *key) {
    char on_stack[128], *text = on_stack;
    if (key->len && memchr(key->text, '\0', key->len)) return ag_jfail_value();
    if (key->len >= sizeof on_stack && !(text = ag_jalloc(c, key->len + 1)))
        return ag_jfail_value();
    if (key->len) memcpy(text, key->text, key->len);
    text[key->len] = '\0';
    const json_t *v = json_object_get(d->source, text);
    return v ? ag_jfrom_json(c, v, d->from_input) : ag_jfail_value();
}

ag_jdict *ag_jdict_filled(ag_jctx *c, ag_jdict *d) {
    if (!has_no_entries(d) || d->n == 0) return d;
    json_t *object = (json_t *)(uintptr_t)d->source; /* iterating does not modify it */
    ag_jdict *filled = ag_jdict_create(c, d->n);
    if (!filled) return NULL;
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it)) {
        const char *key = json_object_iter_key(it);
        ag_jstr *s = ag_jstr_create(c, key, strlen(key), d->from_input);
        ag_jv v = ag_jfrom_json(c, json_object_iter_value(it), d->from_input);
        if (!ag_jdict_set(c, filled, ag_jstring(s), v)) return NULL;
    }
    filled->source = d->source;
    filled->from_input = d->from_input;
    return filled;
}

const ag_jentry *ag_jdict_entries(ag_jctx *c, ag_jdict *d) {
    const ag_jdict *filled = ag_jdict_filled(c, d);
    return filled ? filled->entries : NULL;
}

ag_jv ag_jdict_find(ag_jctx *c, const ag_jdict *d, ag_jv key) {
    uint32_t hash;
    if (has_no_entries(d) && key.kind == AG_JSTRING) return find_member(c, d, key.as.string);
    if (!ag_jhash(c, key, &hash) || has_no_entries(d)) return ag_jfail_value();
    const ag_jentry *e = find_hashed(c, d, key, hash);
    return e ? e->value : ag_jfail_value();
}

ag_jv ag_jdict_find_string(ag_jctx *c, const ag_jdict *d, const ag_jstr *key, uint32_t hash) {
    if (has_no_entries(d)) return find_member(c, d, key);
    size_t k = hash & (d->n_slots - 1);
    for (size_t i = 0; d->n_slots ? d->slots[k] != 0 : i < d->n; i++) {
        const ag_jentry *e = &d->entries[d->n_slots ? d->slots[k] - 1 : i];
        if (e->hash == hash && e->key.kind == AG_JSTRING && ag_jstr_equal(e->key.as.string, key)) {
            return e->value;
        }
        k = (k + 1) & (d->n_slots - 1);
    }
    return ag_jfail_value();
}

size_t ag_jdict_index(ag_jctx *c, const ag_jdict *d, ag_jstr *name) {
    return (size_t)(find_hashed(c, d, ag_jstring(name), ag_jstr_hash(name)) - d->entries);
}

bool ag_jdict_set(ag_jctx *c, ag_jdict *d, ag_jv key, ag_jv value) {
    uint32_t hash;
    if (ag_jfailed(key) || ag_jfailed(value) || !ag_jhash(c, key, &hash)) return false;
    ag_jentry *e = find_hashed(c, d, key, hash);
    if (c->status != AG_OK) return false;
    if (e) return e->value = value, true;
    if (d->n == d->cap && !ag_jgrow(c, &d->entries, d->n, &d->cap, sizeof *d->entries))
        return false;
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

ag_jdict *ag_jdict_copy(ag_jctx *c, ag_jdict *d) {
    const ag_jentry *entries = ag_jdict_entries(c, d);
    ag_jdict *copy = c->status == AG_OK ? ag_jdict_create(c, d->n) : NULL;
    for (size_t i = 0; copy && i < d->n; i++) {
        if (!ag_jdict_set(c, copy, entries[i].key, entries[i].value)) return NULL;
    }
    return copy;
}
