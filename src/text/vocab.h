/* SPDX-License-Identifier: Apache-2.0 */
/* Spelling <-> id: the model's vocabulary and the added tokens in one table. */
#ifndef AG_TEXT_VOCAB_H
#define AG_TEXT_VOCAB_H

#include "text/bytes.h"

#include <jansson.h>

enum {
    AG_VOCAB_MODEL = 1, /* of the model: what a text without added tokens becomes */
    AG_VOCAB_ADDED = 2,
    AG_VOCAB_SPECIAL = 4,
};

typedef struct ag_vocab_entry {
    uint32_t offset, len; /* in ag_vocab.spellings */
    uint8_t flags;        /* 0: a gap, no such id */
} ag_vocab_entry;

typedef struct ag_vocab_slot {
    int32_t next_id; /* id + 1, 0 in an empty slot */
    uint32_t tag;    /* of the spelling's hash: others need not be looked at */
} ag_vocab_slot;

typedef struct ag_vocab {
    ag_vocab_entry *entries; /* by id, n_ids of them */
    ag_text spellings;
    ag_vocab_slot *slots; /* open addressing over the spellings */
    size_t n_slots;       /* a power of two */
    int32_t n_ids;
    size_t max_len; /* of a spelling */
} ag_vocab;

enum { AG_VOCAB_MAX_IDS = 1 << 28 };

/* Room for ids 0 to n_ids - 1 (at most AG_VOCAB_MAX_IDS), none of which exists yet, and for so many
 * tokens of so many bytes together. Whatever it returns, release with ag_vocab_free. */
ag_status ag_vocab_init(ag_vocab *v, size_t n_ids, size_t n_tokens, size_t n_bytes, ag_error *err);
void ag_vocab_free(ag_vocab *v);
/* vocab_json.c: from model.vocab (a JSON object) and with room for the ids of added_tokens (an
 * array or NULL), which the caller then puts in with ag_vocab_add. In place of ag_vocab_init. */
ag_status ag_vocab_read_json(ag_vocab *v, json_t *vocab, const json_t *added, ag_error *err);
/* The same from an array of arrays that begin with a spelling: ids are places. */
ag_status ag_vocab_read_json_list(ag_vocab *v, const json_t *list, const json_t *added,
                                  ag_error *err);

/* Puts a spelling in at an id that there is room for; an existing entry with the same spelling
 * and id gets the flags too. AG_FORMAT if one of the two is taken by another; only an empty
 * spelling may be that of several ids, and the first is found. */
ag_status ag_vocab_add(ag_vocab *v, const char *s, size_t n, int32_t id, unsigned flags,
                       ag_error *err);

/* -1 when there is no such token. */
int32_t ag_vocab_find(const ag_vocab *v, const char *s, size_t n);
/* The same, only among the tokens of the model. */
int32_t ag_vocab_find_model(const ag_vocab *v, const char *s, size_t n);
/* The tokens of the model "<0x00>" to "<0xFF>", or -1. */
void ag_vocab_byte_ids(const ag_vocab *v, int32_t ids[256]);

typedef struct ag_vocab_query {
    const char *s;
    size_t n;
    int32_t id; /* written */
    uint64_t hash;
} ag_vocab_query;
/* ag_vocab_find_model for many at once, a few dozen best: what one waits for in memory comes while
 * others are looked up. */
void ag_vocab_find_models(const ag_vocab *v, ag_vocab_query *q, size_t n);

static inline bool ag_vocab_has(const ag_vocab *v, int32_t id) {
    return id >= 0 && id < v->n_ids && v->entries[id].flags;
}
/* Borrowed; id must exist. */
static inline const char *ag_vocab_spelling(const ag_vocab *v, int32_t id, size_t *n) {
    *n = v->entries[id].len;
    return v->spellings.data + v->entries[id].offset;
}

#endif
