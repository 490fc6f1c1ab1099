/* SPDX-License-Identifier: Apache-2.0 */
#include "text/vocab.h"

#include "core/alloc.h"
#include "core/fail.h"

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

/* The slot that holds the spelling, or the empty one where it would go. */
static size_t slot_of(const ag_vocab *v, const char *s, size_t n) {
    size_t i = hash(s, n) & (v->n_slots - 1);
    for (; v->slots[i]; i = (i + 1) & (v->n_slots - 1)) {
        const ag_vocab_entry *e = &v->entries[v->slots[i] - 1];
        if (e->len == n && memcmp(v->spellings.data + e->offset, s, n) == 0) break;
    }
    return i;
}

int32_t ag_vocab_find(const ag_vocab *v, const char *s, size_t n) {
    return v->slots[slot_of(v, s, n)] - 1;
}

int32_t ag_vocab_find_model(const ag_vocab *v, const char *s, size_t n) {
    int32_t id = ag_vocab_find(v, s, n);
    return id >= 0 && v->entries[id].flags & AG_VOCAB_MODEL ? id : -1;
}

/* How much of a spelling a message quotes. */
static int shown(size_t n) { return n > 60 ? 60 : (int)n; }

ag_status ag_vocab_add(ag_vocab *v, const char *s, size_t n, int32_t id, unsigned flags,
                       ag_error *err) {
    ag_vocab_entry *e = &v->entries[id];
    size_t slot = slot_of(v, s, n);
    int32_t there = v->slots[slot] - 1;
    if (there >= 0 && there != id && n) {
        return AG_FAIL(err, FORMAT, "token \"%.*s\" has id %d, but also id %d", shown(n), s,
                       (int)there, (int)id);
    }
    if (e->flags && there != id) {
        return AG_FAIL(err, FORMAT, "id %d belongs to \"%.*s\" and to \"%.*s\"", (int)id, shown(n),
                       s, shown(e->len), v->spellings.data + e->offset);
    }
    if (!e->flags) {
        e->offset = (uint32_t)v->spellings.len;
        e->len = (uint32_t)n;
        AG_TRY(ag_text_append(&v->spellings, s, n, err));
        if (there < 0) v->slots[slot] = id + 1;
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
    if (!v->entries || !v->slots) return AG_FAIL(err, NOMEM, "a vocabulary of %zu ids", n_ids);
    return ag_text_reserve(&v->spellings, n_bytes, err);
}

void ag_vocab_free(ag_vocab *v) {
    ag_free(v->entries);
    ag_free(v->slots);
    ag_text_free(&v->spellings);
    *v = (ag_vocab){0};
}
