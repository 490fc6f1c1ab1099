/* SPDX-License-Identifier: Apache-2.0 */
/* Vocabulary: maps spellings to ids and back, for the tokens of the model and added tokens. */
#ifndef AG_TEXT_VOCAB_H
#define AG_TEXT_VOCAB_H

#include "text/bytes.h"

#include <jansson.h>

enum {
    AG_VOCAB_MODEL = 1, /* token of the model: used to encode text */
    AG_VOCAB_ADDED = 2,
    AG_VOCAB_SPECIAL = 4,
};

typedef struct ag_vocab_entry {
    uint32_t offset, len; /* in ag_vocab.spellings */
    uint8_t flags;        /* 0: no token has this id */
} ag_vocab_entry;

typedef struct ag_vocab_slot {
    int32_t next_id; /* id + 1; 0: empty slot */
    uint32_t tag;    /* upper half of the spelling's hash */
} ag_vocab_slot;

typedef struct ag_vocab {
    ag_vocab_entry *entries; /* by id; n_ids entries */
    ag_text spellings;
    ag_vocab_slot *slots; /* open addressing over the spellings */
    size_t n_slots;       /* power of two */
    int32_t n_ids;
    size_t max_len; /* maximum length of a spelling */
} ag_vocab;

enum { AG_VOCAB_MAX_IDS = 1 << 28 };

/* Reserves ids 0 to n_ids - 1 (at most AG_VOCAB_MAX_IDS) and space for n_tokens tokens of n_bytes
 * bytes in total. The caller must call ag_vocab_free(), also after a failure. */
ag_status ag_vocab_init(ag_vocab *v, size_t n_ids, size_t n_tokens, size_t n_bytes, ag_error *err);
void ag_vocab_free(ag_vocab *v);
/* vocab_json.c: initialises from model.vocab (a JSON object), instead of ag_vocab_init(). Reserves
 * the ids of added_tokens (an array or NULL), which the caller must add with ag_vocab_add(). */
ag_status ag_vocab_read_json(ag_vocab *v, json_t *vocab, const json_t *added, ag_error *err);
/* Does the same from an array of arrays that start with a spelling; the id is the index. */
ag_status ag_vocab_read_json_list(ag_vocab *v, const json_t *list, const json_t *added,
                                  ag_error *err);

/* Adds a spelling at a reserved id. An entry with the same spelling and id gets the flags in
 * addition. Fails with AG_FORMAT if another entry has the id or the spelling. Only an empty
 * spelling may have several ids; the first is found. */
ag_status ag_vocab_add(ag_vocab *v, const char *s, size_t n, int32_t id, unsigned flags,
                       ag_error *err);

/* Returns -1 if there is no such token. */
int32_t ag_vocab_find(const ag_vocab *v, const char *s, size_t n);
/* Finds only tokens of the model. */
int32_t ag_vocab_find_model(const ag_vocab *v, const char *s, size_t n);
/* Finds the model's tokens "<0x00>" to "<0xFF>"; -1: none. */
void ag_vocab_byte_ids(const ag_vocab *v, int32_t ids[256]);

typedef struct ag_vocab_query {
    const char *s;
    size_t n;
    int32_t id; /* written */
    uint64_t hash;
} ag_vocab_query;
/* Calls ag_vocab_find_model() for n queries, best a few dozen: prefetching hides memory latency. */
void ag_vocab_find_models(const ag_vocab *v, ag_vocab_query *q, size_t n);

static inline bool ag_vocab_has(const ag_vocab *v, int32_t id) {
    return id >= 0 && id < v->n_ids && v->entries[id].flags;
}
/* Returns the spelling, which is borrowed; id must exist. */
static inline const char *ag_vocab_spelling(const ag_vocab *v, int32_t id, size_t *n) {
    *n = v->entries[id].len;
    return v->spellings.data + v->entries[id].offset;
}

#endif
