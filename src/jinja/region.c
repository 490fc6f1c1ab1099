/* SPDX-License-Identifier: Apache-2.0 */
/* Regions: memory of a part of a render, released at its end. Strings stored in a namespace are
 * moved out first, so a loop that sets one in each iteration needs little memory. */
#include "jinja/context.h"
#include "jinja/value/string.h"

#include <string.h>

/* Strings up to this size are copied, longer ones move with their buffer. */
enum { COPY_BYTES = 256, COPY_SPANS = 8 };

void ag_jregion_begin(ag_jctx *c, ag_jregion *r) {
    r->mark = ag_jinja_arena_mark(&c->arena);
    r->bufs = c->bufs;
    r->number = ++c->n_regions;
    r->outer_store = c->oldest_store;
    r->outer_first = c->first_store;
    c->oldest_store = UINT64_MAX;
    c->first_store = c->n_stores;
}

/* ---- what was stored ---- */

void ag_jstored_string(ag_jctx *c, ag_jdict *d, size_t entry) {
    for (size_t i = c->first_store; i < c->n_stores; i++) {
        if (c->stores[i].dict == d && c->stores[i].entry == entry) return;
    }
    if (c->n_stores == AG_JMAX_STORES) ag_jstored(c, d->region);
    else c->stores[c->n_stores++] = (ag_jstore){d, entry};
}

/* Removes the records of an ending region. *out gets those whose namespace is older; returns how
 * many. */
static size_t pop_stores(ag_jctx *c, const ag_jregion *r, ag_jstore out[AG_JMAX_STORES]) {
    size_t n = 0;
    for (size_t i = c->first_store; i < c->n_stores; i++) {
        if (c->stores[i].dict->region < r->number) out[n++] = c->stores[i];
    }
    c->n_stores = c->first_store;
    c->first_store = r->outer_first;
    if (r->outer_store < c->oldest_store) c->oldest_store = r->outer_store;
    return n;
}

static void push_stores(ag_jctx *c, const ag_jstore *stores, size_t n) {
    for (size_t i = 0; i < n; i++) ag_jstored_string(c, stores[i].dict, stores[i].entry);
}

void ag_jregion_keep(ag_jctx *c, const ag_jregion *r) {
    ag_jstore stores[AG_JMAX_STORES];
    push_stores(c, stores, pop_stores(c, r, stores));
}

/* ---- strings that outlive a region ---- */

/* Copy of a string outside the memory of regions, made while a region is released. */
typedef struct saved {
    ag_jstore store;
    ag_jstr string;
    ag_jbuf buf; /* the string's buffer if it is moved; else text is NULL */
    char text[COPY_BYTES];
    ag_jinja_span spans[COPY_SPANS];
    bool is_copied;
} saved;

static bool is_of_region(const ag_jbuf *b, const ag_jregion *r) {
    return b && b->region >= r->number;
}

/* Returns the recorded string if it must be saved, else NULL. */
static ag_jstr *string_to_save(const ag_jstore *s) {
    ag_jv v = s->dict->entries[s->entry].value;
    return v.kind == AG_JSTRING && !v.as.string->is_permanent ? v.as.string : NULL;
}

static bool copies(const ag_jstr *s, saved *out) {
    size_t n;
    if (s->len > COPY_BYTES || !ag_jstr_spans(s, out->spans, COPY_SPANS, &n)) return false;
    out->string.n_spans = n;
    memcpy(out->text, s->text, s->len);
    out->is_copied = true;
    return true;
}

/* Returns false if two strings share a buffer of the region. */
static bool can_save(const ag_jregion *r, const ag_jstore *stores, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const ag_jstr *a = string_to_save(&stores[i]);
        for (size_t k = 0; a && is_of_region(a->buffer, r) && k < i; k++) {
            const ag_jstr *b = string_to_save(&stores[k]);
            if (b && b->buffer == a->buffer) return false;
        }
    }
    return true;
}

static void save(const ag_jregion *r, const ag_jstore *store, saved *out) {
    ag_jstr *s = string_to_save(store);
    out->store = *store;
    out->string = *s;
    out->buf.text = NULL;
    out->is_copied = false;
    if ((!is_of_region(s->buffer, r) && !s->is_local) || copies(s, out)) return;
    out->buf = *s->buffer;
    s->buffer->text = NULL;
    s->buffer->spans = NULL;
    s->buffer->retired = (ag_jretired){0};
}

static bool restore_copy(ag_jctx *c, const saved *from, ag_jstr *s) {
    char *text = ag_jalloc(c, s->len + 1);
    ag_jinja_span *spans = text ? ag_jalloc(c, (s->n_spans + 1) * sizeof *spans) : NULL;
    if (!spans) return false;
    memcpy(text, from->text, s->len);
    memcpy(spans, from->spans, s->n_spans * sizeof *spans);
    s->text = text;
    s->spans = spans;
    s->origin = 0;
    s->buffer = NULL;
    s->is_local = true;
    return true;
}

static bool restore(ag_jctx *c, const saved *from) {
    ag_jstr *s = ag_jalloc(c, sizeof *s);
    if (!s) return false;
    *s = from->string;
    if (from->buf.text) {
        ag_jbuf *b = ag_jbuf_create(c);
        if (!b) return false;
        const ag_jbuf made = *b;
        *b = from->buf;
        b->older = made.older;
        b->region = made.region;
        s->buffer = b;
    }
    if (from->is_copied && !restore_copy(c, from, s)) return false;
    from->store.dict->entries[from->store.entry].value = ag_jstring(s);
    return true;
}

static void release(ag_jctx *c, const ag_jregion *r) {
    ag_jbufs_free(c, r->bufs);
    ag_jinja_arena_release(&c->arena, &r->mark);
}

static void release_except(ag_jctx *c, const ag_jregion *r, const ag_jstore *stores, size_t n) {
    saved list[AG_JMAX_STORES];
    size_t n_saved = 0;
    for (size_t i = 0; i < n; i++) {
        if (string_to_save(&stores[i])) save(r, &stores[i], &list[n_saved++]);
    }
    release(c, r);
    for (size_t i = 0; i < n_saved; i++) {
        if (c->status == AG_OK && restore(c, &list[i])) continue;
        if (list[i].buf.text) ag_jbuf_free(c, &list[i].buf);
        list[i].store.dict->entries[list[i].store.entry].value = ag_jnone();
    }
}

void ag_jregion_end(ag_jctx *c, const ag_jregion *r) {
    const bool is_referred_to = c->oldest_store < r->number;
    ag_jstore stores[AG_JMAX_STORES];
    const size_t n = pop_stores(c, r, stores);
    if (is_referred_to || !can_save(r, stores, n)) {
        push_stores(c, stores, n);
        return;
    }
    if (n == 0) {
        release(c, r);
        return;
    }
    release_except(c, r, stores, n);
    push_stores(c, stores, n);
}

void ag_jbufs_free(ag_jctx *c, const ag_jbuf *until) {
    while (c->bufs != until) {
        ag_jbuf *b = c->bufs;
        c->bufs = b->older;
        ag_jbuf_free(c, b);
    }
}
