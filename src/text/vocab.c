/* SPDX-License-Identifier: Apache-2.0 */
#include "text/vocab.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "text/json_get.h"

#include <string.h>

/* Ids may have gaps, but a file of a few bytes must not make the table large. */
enum { SPARE_IDS = 1 << 20, MAX_IDS = 1 << 28 };

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
    return id >= 0 && v->entries[id].flags & AG_TOKEN_MODEL ? id : -1;
}

ag_status ag_vocab_add(ag_vocab *v, const char *s, size_t n, int32_t id, unsigned flags,
                       ag_error *err) {
    ag_vocab_entry *e = &v->entries[id];
    size_t slot = slot_of(v, s, n);
    int32_t there = v->slots[slot] - 1;
    if (there >= 0 && there != id) {
        return AG_FAIL(err, FORMAT, "token \"%.60s\" has id %d, but also id %d", s, (int)there,
                       (int)id);
    }
    if (there < 0 && e->flags) {
        return AG_FAIL(err, FORMAT, "id %d belongs to \"%.60s\" and to \"%.*s\"", (int)id, s,
                       e->len > 60 ? 60 : (int)e->len, v->spellings.data + e->offset);
    }
    if (there < 0) {
        e->offset = (uint32_t)v->spellings.len;
        e->len = (uint32_t)n;
        AG_TRY(ag_text_append(&v->spellings, s, n, err));
        v->slots[slot] = id + 1;
        if (n > v->max_len) v->max_len = n;
    }
    e->flags |= (uint8_t)flags;
    return AG_OK;
}

static ag_status check_id(const json_t *v, const char *what, const char *name, json_int_t limit,
                          json_int_t *max, ag_error *err) {
    if (!json_is_integer(v)) {
        return AG_FAIL(err, FORMAT, "%s: the id of \"%.60s\" is not an integer", what, name);
    }
    json_int_t id = json_integer_value(v);
    if (id < 0 || id >= limit) {
        return AG_FAIL(err, FORMAT, "%s: id %lld of \"%.60s\" is not in 0..%lld", what,
                       (long long)id, name, (long long)limit - 1);
    }
    if (id > *max) *max = id;
    return AG_OK;
}

/* Checks the ids of both lists and returns their count, the length of the spellings and the
 * largest id. */
static ag_status measure_vocab(json_t *vocab, const json_t *added, size_t *n_tokens,
                               size_t *n_bytes, json_int_t *max, ag_error *err) {
    size_t n_added = json_array_size(added), i;
    *n_tokens = json_object_size(vocab) + n_added;
    if (*n_tokens > MAX_IDS / 4) {
        return AG_FAIL(err, FORMAT, "model.vocab has %zu tokens, more than %d", *n_tokens,
                       MAX_IDS / 4);
    }
    json_int_t limit = (json_int_t)(2 * *n_tokens) + SPARE_IDS;
    const char *key;
    json_t *v;
    json_object_foreach(vocab, key, v) {
        AG_TRY(check_id(v, "model.vocab", key, limit, max, err));
        *n_bytes += strlen(key);
    }
    json_array_foreach(added, i, v) {
        char place[AG_JSON_PLACE];
        snprintf(place, sizeof place, "added_tokens[%zu]", i);
        json_t *id, *content;
        AG_TRY(ag_json_expect_object(v, place, err));
        AG_TRY(ag_json_required(v, place, "content", JSON_STRING, &content, err));
        AG_TRY(ag_json_required(v, place, "id", JSON_INTEGER, &id, err));
        AG_TRY(check_id(id, place, json_string_value(content), limit, max, err));
        *n_bytes += json_string_length(content);
    }
    return AG_OK;
}

static ag_status add_model_vocab(ag_vocab *v, json_t *vocab, ag_error *err) {
    const char *key;
    json_t *id;
    json_object_foreach(vocab, key, id) {
        ag_status st =
            ag_vocab_add(v, key, strlen(key), (int32_t)json_integer_value(id), AG_TOKEN_MODEL, err);
        if (st != AG_OK) return ag_error_prefix(err, st, "model.vocab");
    }
    return AG_OK;
}

ag_status ag_vocab_init(ag_vocab *v, json_t *vocab, const json_t *added, ag_error *err) {
    *v = (ag_vocab){0};
    size_t n_tokens = 0, n_bytes = 0;
    json_int_t max = -1;
    AG_TRY(measure_vocab(vocab, added, &n_tokens, &n_bytes, &max, err));
    v->n_ids = (int32_t)(max + 1);
    for (v->n_slots = 16; v->n_slots < n_tokens * 2;) v->n_slots *= 2;
    v->entries = ag_calloc((size_t)v->n_ids, sizeof *v->entries);
    v->slots = ag_calloc(v->n_slots, sizeof *v->slots);
    if (!v->entries || !v->slots) {
        return AG_FAIL(err, NOMEM, "a vocabulary of %d ids", (int)v->n_ids);
    }
    AG_TRY(ag_text_reserve(&v->spellings, n_bytes, err));
    return add_model_vocab(v, vocab, err);
}

void ag_vocab_free(ag_vocab *v) {
    ag_free(v->entries);
    ag_free(v->slots);
    ag_text_free(&v->spellings);
    *v = (ag_vocab){0};
}
