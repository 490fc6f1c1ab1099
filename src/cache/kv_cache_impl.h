/* SPDX-License-Identifier: Apache-2.0 */
/* The cache's inside, for the files that implement it. */
#ifndef AG_CACHE_KV_CACHE_IMPL_H
#define AG_CACHE_KV_CACHE_IMPL_H

#include "cache/kv_cache.h"
#include "core/block_pool.h"

/* What the layers before have, all together. */
typedef struct ag_kv_first {
    size_t head;
    size_t block;     /* places for blocks of each head */
    size_t key_value; /* values of a token's keys */
    size_t head_slot; /* slots in all heads */
} ag_kv_first;

/* Where a layer's slots lie. */
typedef struct ag_kv_layout {
    ag_kv_sections part;  /* of a block */
    size_t row_bytes;     /* of the blocks of all heads for the same slots */
    ag_block_pool *pool;  /* borrowed; where blocks come from; NULL: not joined yet */
    ag_block_table table; /* what the pool knows of the layer */
    uint32_t max_slots, max_blocks;
    uint32_t window_blocks; /* most between steps, where the window bounds them; else 0 */
    ag_kv_first first;
} ag_kv_layout;

/* Unrotated sink keys: those of the protected prefix as they were before their rotation. */
typedef struct ag_kv_unrotated {
    float *keys;       /* owned; per layer [n_protected][n_kv_heads * head_dim] */
    ag_buffer *device; /* owned; the same where the backend rerotates, and then no `keys` */
    uint32_t *slots;   /* owned; with `device`: what ag_kv_rerotate says */
    bool *known;       /* owned; [n_layers][n_protected] */
    float *key;        /* owned; of the largest head, on its way into the cache */
    void *row;         /* owned; the same as the cache keeps it */
    float *cos_sin;    /* owned; [n_protected][n_rotated] pairs of one table and pass */
    uint32_t moved_by; /* positions that the prefix has been moved on by */
    uint32_t n;        /* tokens protected now, at most n_protected */
} ag_kv_unrotated;

struct ag_kv_cache {
    ag_kv_params params; /* `layers` is there, and owned */
    ag_kv_layout *at;    /* owned; [n_layers + 1], of the last only what comes before it */
    ag_kv_totals totals;
    ag_backend *backend; /* borrowed */
    ag_kv_block *blocks; /* per layer [n_kv_heads][max_blocks] as kernels see them */
    uint32_t *n_slots;   /* per layer [n_kv_heads] */
    uint32_t *last;      /* the same: position of the newest slot, if there is one */
    uint32_t *n_blocks;  /* the same: blocks that the head has */
    uint32_t *expired;   /* [n_layers] slots of lower positions have left the layer's window */
    uint32_t *retained;  /* [most slots of a layer that its window bounds] to write on */
    uint32_t *positions; /* owned; per layer [n_kv_heads][max_slots]; NULL: read where they lie */
    uint8_t **mapped;    /* [most blocks] to write on: host addresses of a head's blocks */
    ag_kv_unrotated unrotated;
};

uint32_t *ag_kv_slots_of(const ag_kv_cache *c, uint32_t layer); /* [n_kv_heads] lengths */
uint32_t *ag_kv_last_of(const ag_kv_cache *c, uint32_t layer);  /* [n_kv_heads] positions */

/* kv_layout.c. Checks the parameters; completes c->params, c->at and c->extent. */
ag_status ag_kv_layouts_create(ag_kv_cache *c, const ag_kv_params *params, ag_error *err);
void ag_kv_layouts_release(ag_kv_cache *c);

/* kv_window.c. Of the layers whose windows bound what they hold. */
uint32_t ag_kv_max_window_slots(const ag_kv_cache *c);

/* A head's block, as kernels see it. */
static inline ag_kv_block *ag_kv_block_of(const ag_kv_cache *c, uint32_t layer, uint32_t head,
                                          uint32_t block) {
    const ag_kv_layout *at = &c->at[layer];
    return &c->blocks[at->first.block + (size_t)head * at->max_blocks + block];
}
static inline uint32_t ag_kv_heads_of(const ag_kv_cache *c, uint32_t layer) {
    return c->params.layers[layer].n_kv_heads;
}

/* kv_blocks.c. */
ag_status ag_kv_blocks_join(ag_kv_cache *c, ag_error *err);
void ag_kv_blocks_leave(ag_kv_cache *c);
/* Makes memory for what ag_kv_own_slots would need in every layer of all caches together: a pool
 * that is asked twice gives away what it made the first time. */
ag_status ag_kv_reserve_slots(const ag_kv_growth *grow, size_t n_caches, ag_error *err);
/* The blocks of the next n slots of all heads of a layer are there afterwards, and this cache's
 * alone: before anything is written to them. What a failure leaves is what was there, perhaps in
 * another place. */
ag_status ag_kv_own_slots(ag_kv_cache *c, uint32_t layer, uint32_t n, ag_error *err);
/* The same of blocks [first, end) of a head; it has those before. */
ag_status ag_kv_own_blocks(ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t first,
                           uint32_t end, ag_error *err);
/* Blocks [before, now) of a head have become full: a hint that their memory stays and is hot. */
void ag_kv_fill_blocks(const ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t before,
                       uint32_t now);
/* `to`, an empty cache of the same parameters, holds the blocks of `from` as well. */
void ag_kv_share_blocks(ag_kv_cache *to, ag_kv_cache *from);
/* Blocks past the heads' slots hold nothing any more: the pool has them until ag_kv_trim_pools().
 */
void ag_kv_drop_tail(ag_kv_cache *c, uint32_t layer);
/* None does. */
void ag_kv_drop_all_blocks(ag_kv_cache *c);

/* Positions of slots, kv_positions.c: what is written to the blocks is noted beside. */
ag_status ag_kv_positions_create(ag_kv_cache *c, ag_error *err);
void ag_kv_record_positions(ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t slot,
                            const uint32_t *positions, size_t n);
void ag_kv_move_positions(ag_kv_cache *c, uint32_t layer, uint32_t head, const uint32_t *retained,
                          uint32_t n_keep);
void ag_kv_copy_positions(ag_kv_cache *to, const ag_kv_cache *from);
/* Those of n slots of one block. */
ag_status ag_kv_get_positions(const ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t slot,
                              uint32_t n, uint32_t *positions, ag_error *err);

ag_status ag_kv_unrotated_create(ag_kv_cache *c, ag_error *err);
void ag_kv_unrotated_release(ag_kv_cache *c);
/* The same copies in a cache of the same parameters. */
ag_status ag_kv_unrotated_copy(ag_kv_cache *to, const ag_kv_cache *from, ag_error *err);
/* A layer's copies, [n_protected][n_kv_heads * head_dim], to and from the host. */
ag_status ag_kv_unrotated_read(const ag_kv_cache *c, uint32_t layer, float *keys, ag_error *err);
ag_status ag_kv_unrotated_write(ag_kv_cache *c, uint32_t layer, const float *keys, ag_error *err);
/* Tokens from `position` on have left the sequence. */
void ag_kv_unrotated_forget(ag_kv_cache *c, uint32_t position);

#endif
