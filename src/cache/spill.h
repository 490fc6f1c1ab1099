/* SPDX-License-Identifier: Apache-2.0 */
/* What an eviction removed, block by block of at most so many slots of one KV head: keys, values,
 * positions and sums of attention in a file, sketches of the keys in memory. What the file refuses
 * is lost, as it would be without one. An ag_spill that is NULL holds nothing. */
#ifndef AG_CACHE_SPILL_H
#define AG_CACHE_SPILL_H

#include "cache/eviction/score_sums.h"
#include "cache/kv_rows.h"

#include <antigravity/eviction.h>

typedef struct ag_spill ag_spill;

enum { AG_SPILL_MAX_SLOTS = 128 }; /* of a block */

/* Whether caches of the backend can spill so: AG_UNSUPPORTED where the host does not see their
 * memory. */
ag_status ag_spill_check(const ag_spill_params *p, ag_backend *be, ag_error *err);
/* The cache is borrowed. *out is NULL where nothing is to be spilled (p NULL). Checks the
 * parameters. */
ag_status ag_spill_create(const ag_spill_params *p, ag_kv_cache *cache, ag_spill **out,
                          ag_error *err);
void ag_spill_destroy(ag_spill *s);
/* Bytes of one, at most: it knows of four times the slots that the cache can have. */
size_t ag_spill_plan_bytes(const ag_spill_params *p, const ag_kv_params *kv);
/* The parameters, which the spill owns; NULL without one. */
const ag_spill_params *ag_spill_params_of(const ag_spill *s);
uint32_t ag_spill_block_slots(const ag_spill *s);
uint32_t ag_spill_params_block_slots(const ag_spill_params *p); /* the same, before there is one */
const ag_kv_params *ag_spill_kv(const ag_spill *s);             /* of its cache */

/* What `from` holds, `to`, which is empty, holds as well, in the same file. */
ag_status ag_spill_copy(ag_spill *to, const ag_spill *from, ag_error *err);
/* An empty one with the same parameters, in a file of its own, or where that has a name in this
 * one's. */
ag_status ag_spill_create_sibling(const ag_spill *s, ag_spill **out, ag_error *err);
/* Everything leaves, statistics begin anew. */
void ag_spill_clear(ag_spill *s);
/* Tokens from `position` on have left the sequence. */
void ag_spill_truncate(ag_spill *s, uint32_t position);
/* Slots of lower positions do not come back: blocks that have only those leave. */
void ag_spill_expire(ag_spill *s, uint32_t position);

/* Slots slots[0..n), ascending, of a head are going to leave. Where the file or the memory for
 * blocks is full, the oldest of the head that has most leave for them. */
void ag_spill_store(ag_spill *s, const ag_score_sums *sums, uint32_t layer, uint32_t head,
                    const uint32_t *slots, uint32_t n);
/* Those of the last ag_spill_store(), which was of this head, have not left after all. */
void ag_spill_cancel_store(ag_spill *s, uint32_t layer, uint32_t head);

/* A head's blocks, in no order. */
uint32_t ag_spill_n_blocks(const ag_spill *s, uint32_t layer, uint32_t head);
bool ag_spill_is_empty(const ag_spill *s);
/* Of block i: the sketch of its keys, and how many slots it has at most. */
const void *ag_spill_key_bounds(const ag_spill *s, uint32_t layer, uint32_t head, uint32_t i);
uint32_t ag_spill_n_slots(const ag_spill *s, uint32_t layer, uint32_t head, uint32_t i);

/* A block that has been read, in memory of its own. */
typedef struct ag_spilled_rows {
    ag_kv_rows rows;
    const float *sums; /* [rows.n] */
    void *bytes;       /* owned */
    size_t n_bytes;    /* that it has room for */
} ag_spilled_rows;
/* Makes space for the largest block that a cache of these parameters can spill. */
ag_status ag_spilled_rows_create(const ag_kv_params *kv, ag_spilled_rows *out, ag_error *err);
void ag_spilled_rows_release(ag_spilled_rows *r);
/* Bytes of a block of n slots: positions, sums, keys, values. */
size_t ag_spilled_bytes(ag_dtype k_type, ag_dtype v_type, uint32_t dim, uint32_t n);
/* Points rows and sums into r->bytes. */
void ag_spilled_rows_layout(ag_spilled_rows *r, ag_dtype k_type, ag_dtype v_type, uint32_t dim,
                            uint32_t n);
/* Block i of the head, whose place the head's last block takes, leaves the spill; false if it could
 * not be read and is lost. */
bool ag_spill_reload(ag_spill *s, uint32_t layer, uint32_t head, uint32_t i, ag_spilled_rows *out);
/* The same of a block that stays. */
bool ag_spill_read(ag_spill *s, uint32_t layer, uint32_t head, uint32_t i, ag_spilled_rows *out);
/* Rows from elsewhere become blocks of the head. */
void ag_spill_add(ag_spill *s, uint32_t layer, uint32_t head, const ag_kv_rows *rows,
                  const float *sums);
/* Of block i. */
void ag_spill_block_types(const ag_spill *s, uint32_t layer, uint32_t head, uint32_t i,
                          ag_dtype *k_type, ag_dtype *v_type);

void ag_spill_stats_of(const ag_spill *s, ag_spill_stats *out);

#endif
