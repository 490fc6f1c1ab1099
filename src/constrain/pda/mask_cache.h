/* SPDX-License-Identifier: Apache-2.0 */
/* Mask cache: keeps expensive masks and failures by matcher state, so that another text in the same
 * state gets the mask, or the error, without the work. */
#ifndef AG_CONSTRAIN_PDA_MASK_CACHE_H
#define AG_CONSTRAIN_PDA_MASK_CACHE_H

#include "constrain/pda/matcher.h"

enum {
    AG_CACHED_MASKS_MAX = 256,
    AG_FAILED_MASKS_MAX = 8,
    AG_MASK_CACHE_FROM = 1 << 12, /* steps of the cheapest mask that is cached */
};

/* Hashes of a matcher state. Two texts with the same threads and open rules have equal keys. */
typedef struct ag_mask_key {
    uint64_t hash[2];
    /* false: the state is too large to compare. Keys are equal only for equal byte paths. */
    bool is_exact;
} ag_mask_key;

typedef struct ag_cached_mask {
    ag_mask_key key;
    uint32_t *bits; /* [n_words] */
} ag_cached_mask;

typedef struct ag_failed_mask {
    ag_mask_key key;
    ag_error error;
} ag_failed_mask;

typedef struct ag_mask_cache {
    ag_cached_mask *list; /* a ring: a newer mask replaces the oldest */
    size_t n, cap, next;
    ag_failed_mask failed[AG_FAILED_MASKS_MAX]; /* a ring: a newer failure replaces the oldest */
    size_t n_failed;                            /* number of failures ever added */
} ag_mask_cache;

/* Drops the masks and keeps the failures. */
void ag_mask_cache_clear(ag_mask_cache *c);
void ag_mask_cache_free(ag_mask_cache *c);

/* Returns the key of m's state. m must be at the text's position: n_positions is 1. */
ag_mask_key ag_mask_key_of(const ag_matcher *m);
/* Returns the bits of the state's mask, or NULL. */
const uint32_t *ag_mask_cache_find(const ag_mask_cache *c, const ag_mask_key *key);
/* Adds a copy of the bits. Returns the bytes by which the cache has grown; 0 if it replaced a mask
 * or memory is exhausted. */
size_t ag_mask_cache_add(ag_mask_cache *c, const ag_mask_key *key, const uint32_t *bits,
                         size_t n_words);

/* Returns the error that the mask of this state failed with; AG_OK if it did not fail. */
ag_status ag_mask_cache_failure(const ag_mask_cache *c, const ag_mask_key *key, ag_error *err);
void ag_mask_cache_add_failure(ag_mask_cache *c, const ag_mask_key *key, const ag_error *error);

#endif
