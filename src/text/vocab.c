/* SPDX-License-Identifier: Apache-2.0 */
#include "text/vocab.h"

#include "core/alloc.h"
#include "core/fail.h"

#include <stdio.h>
#include <string.h>

static uint64_t mix(uint64_t h, uint64_t x) {
    h = (h ^ x) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 29;
}

static uint64_t hash(const char *s, size_t n) {
    uint64_t h = n, x;
    for (; n >= sizeof x; s += sizeof x, n -= sizeof x) {
        memcpy(&x, s, sizeof x);
        h = mix(h, x);
    }
    x = 0;
    for (size_t i = 0; i < n; i++) x = x << 8 | (unsigned char)s[i];
    h = mix(h, x);
    return h ^ h >> 32;
}

/* Returns the slot of the spelling, or the empty slot for it. */
static ag_vocab_slot *slot_of(const ag_vocab *v, const char *s, size_t n, uint64_t h) {
    for (size_t i = h & (v->n_slots - 1);; i = (i + 1) & (v->n_slots - 1)) {
        ag_vocab_slot *slot = &v->slots[i];
        if (!slot->next_id) return slot;
        if (slot->tag != (uint32_t)(h >> 32)) continue;
        const ag_vocab_entry *e = &v->entries[slot->next_id - 1];
        if (e->len == n && memcmp(v->spellings.data + e->offset, s, n) == 0) return slot;
    }
}

int32_t ag_vocab_find(const ag_vocab *v, const char *s, size_t n) {
    return slot_of(v, s, n, hash(s, n))->next_id - 1;
}

static int32_t of_model(const ag_vocab *v, int32_t id) {
    return id >= 0 && v->entries[id].flags & AG_VOCAB_MODEL ? id : -1;
}

int32_t ag_vocab_find_model(const ag_vocab *v, const char *s, size_t n) {
    return of_model(v, ag_vocab_find(v, s, n));
}

void ag_vocab_find_models(const ag_vocab *v, ag_vocab_query *q, size_t n) {
    for (size_t i = 0; i < n; i++) {
        q[i].hash = hash(q[i].s, q[i].n);
        __builtin_prefetch(&v->slots[q[i].hash & (v->n_slots - 1)]);
    }
    for (size_t i = 0; i < n; i++) {
        q[i].id = v->slots[q[i].hash & (v->n_slots - 1)].next_id - 1;
        if (q[i].id >= 0) __builtin_prefetch(&v->entries[q[i].id]);
    }
    for (size_t i = 0; i < n; i++) {
        if (q[i].id >= 0) __builtin_prefetch(v->spellings.data + v->entries[q[i].id].offset);
    }
    for (size_t i = 0; i < n; i++) {
        q[i].id = of_model(v, slot_of(v, q[i].s, q[i].n, q[i].hash)->next_id - 1);
    }
}

void ag_vocab_byte_ids(const ag_vocab *v, int32_t ids[256]) {
    for (unsigned b = 0; b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", b);
        ids[b] = ag_vocab_find_model(v, name, 6);
    }
}

/* Returns how many bytes of a spelling a message quotes. */
static int quoted_len(size_t n) { return n > 60 ? 60 : (int)n; }

ag_status ag_vocab_add(ag_vocab *v, const char *s, size_t n, int32_t id, unsigned flags,
                       ag_error *err) {
    ag_vocab_entry *e = &v->entries[id];
    uint64_t h = hash(s, n);
    ag_vocab_slot *slot = slot_of(v, s, n, h);
    int32_t found_id = slot->next_id - 1;
    if (found_id >= 0 && found_id != id && n) {
        return AG_FAIL(err, FORMAT, "token \"%.*s\" has id %d, but also id %d", quoted_len(n), s,
                       (int)found_id, (int)id);
    }
    if (e->flags && found_id != id) {
        return AG_FAIL(err, FORMAT, "id %d belongs to \"%.*s\" and to \"%.*s\"", (int)id,
                       quoted_len(n), s, quoted_len(e->len), v->spellings.data + e->offset);
    }
    if (!e->flags) {
        e->offset = (uint32_t)v->spellings.len;
        e->len = (uint32_t)n;
        AG_TRY(ag_text_append(&v->spellings, s, n, err));
        if (found_id < 0) *slot = (ag_vocab_slot){id + 1, (uint32_t)(h >> 32)};
        if (n > v->max_len) v->max_len = n;
    }
    e->flags |= (uint8_t)flags;
    return AG_OK;
}

ag_status ag_vocab_init(ag_vocab *v, size_t n_ids, size_t n_tokens, size_t n_bytes, ag_error *err) {
    *v = (ag_vocab){.n_ids = (int32_t)n_ids};
    for (v->n_slots = 16; v->n_slots < n_tokens * 2;) v->n_slots *= 2;
    v->entries = ag_calloc(n_ids, sizeof *v->entries);
    v->slots = ag_calloc(v->n_slots, sizeof *v->slots);
    if (!v->entries || !v->slots) return AG_FAIL(err, NOMEM, "vocabulary of %zu ids", n_ids);
    return ag_text_reserve(&v->spellings, n_bytes, err);
}

void ag_vocab_free(ag_vocab *v) {
    ag_free(v->entries);
    ag_free(v->slots);
    ag_text_free(&v->spellings);
    *v = (ag_vocab){0};
}
