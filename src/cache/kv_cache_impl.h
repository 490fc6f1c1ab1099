/* SPDX-License-Identifier: Apache-2.0 */
/* Private struct of the KV cache, for the files that implement it. */
#ifndef AG_CACHE_KV_CACHE_IMPL_H
#define AG_CACHE_KV_CACHE_IMPL_H

#include "cache/kv_cache.h"
#include "core/block_pool.h"

/* Totals of all layers before a layer. */
typedef struct ag_kv_first {
    size_t head;
    size_t block;     /* entries for blocks of each head */
    size_t key_value; /* values of the keys of a token */
    size_t head_slot; /* slots in all heads */
} ag_kv_first;

/* Layout of the slots of a layer. */
typedef struct ag_kv_layout {
    ag_kv_sections part;  /* sections of a block */
    size_t row_bytes;     /* bytes of one block of each head */
    ag_block_pool *pool;  /* borrowed; NULL: not joined yet */
    ag_block_table table; /* registered with the pool */
    uint32_t max_slots, max_blocks;
    uint32_t window_blocks; /* maximum between steps if a window bounds the layer, else 0 */
    ag_kv_first first;
} ag_kv_layout;

/* Unrotated keys of the protected prefix (attention sinks). */
typedef struct ag_kv_unrotated {
    float *keys;       /* owned; per layer [n_protected][n_kv_heads * head_dim] */
    ag_buffer *device; /* owned; the same, if the backend rotates; `keys` is NULL then */
    uint32_t *slots;   /* owned; with `device`: see ag_kv_rerotate */
    bool *known;       /* owned; [n_layers][n_protected] whether there is a copy */
    float *key;        /* owned; one rotated key of the largest head */
    void *row;         /* owned; the same key in the type of the cache */
    float *cos_sin;    /* owned; [n_protected][n_rotated] pairs for one table and pass */
    uint32_t moved_by; /* positions by which the prefix has been moved */
    uint32_t n;        /* tokens that are protected now, at most n_protected */
} ag_kv_unrotated;

struct ag_kv_cache {
    ag_kv_params params; /* `layers` is not NULL, and owned */
    ag_kv_layout *at;    /* owned; [n_layers + 1]; the last has `first` only */
    ag_kv_totals totals;
    ag_backend *backend; /* borrowed */
    ag_kv_block *blocks; /* per layer [n_kv_heads][max_blocks] */
    uint32_t *n_slots;   /* per layer [n_kv_heads] */
    uint32_t *last;      /* per layer [n_kv_heads] position of the newest slot, if there is one */
    uint32_t *n_blocks;  /* per layer [n_kv_heads] number of blocks */
    uint32_t *expired;   /* [n_layers] slots of lower positions have been removed by the window */
    uint32_t *retained;  /* [ag_kv_max_window_slots() + 1] scratch */
    uint32_t *positions; /* owned; per layer [max_slots][n_kv_heads]; NULL: read from the blocks */
    uint8_t **mapped;    /* [largest number of blocks of a head] scratch: host addresses */
    ag_kv_unrotated unrotated;
};

/* Return the lengths of the heads of a layer, and the positions of their newest slots. */
static inline uint32_t *ag_kv_slots_of(const ag_kv_cache *c, uint32_t layer) {
    return c->n_slots + c->at[layer].first.head;
}
static inline uint32_t *ag_kv_last_of(const ag_kv_cache *c, uint32_t layer) {
    return c->last + c->at[layer].first.head;
}

/* Checks the parameters; fills in c->params, c->at and c->totals. In kv_layout.c. */
ag_status ag_kv_layouts_create(ag_kv_cache *c, const ag_kv_params *params, ag_error *err);
void ag_kv_layouts_release(ag_kv_cache *c);

/* Returns the maximum number of slots in layers that a window bounds. In kv_window.c. */
uint32_t ag_kv_max_window_slots(const ag_kv_cache *c);

/* Returns a block of a head. */
static inline ag_kv_block *ag_kv_block_of(const ag_kv_cache *c, uint32_t layer, uint32_t head,
                                          uint32_t block) {
    const ag_kv_layout *at = &c->at[layer];
    return &c->blocks[at->first.block + (size_t)head * at->max_blocks + block];
}
static inline uint32_t ag_kv_heads_of(const ag_kv_cache *c, uint32_t layer) {
    return c->params.layers[layer].n_kv_heads;
}

/* Join and leave the pools of the backend. In kv_blocks.c, with the functions below. */
ag_status ag_kv_blocks_join(ag_kv_cache *c, ag_error *err);
void ag_kv_blocks_leave(ag_kv_cache *c);
/* Reserves memory for ag_kv_own_slots() of n slots in every layer of all caches together. Each
 * pool is reserved once: a second call would count the first call's free blocks again. */
ag_status ag_kv_reserve_slots(const ag_kv_growth *grow, size_t n_caches, ag_error *err);
/* Makes the blocks of the next n slots of all heads of a layer exist and belong to this cache
 * alone. Must be called before these slots are written. A failure keeps all contents, but blocks
 * may have moved. */
ag_status ag_kv_own_slots(ag_kv_cache *c, uint32_t layer, uint32_t n, ag_error *err);
/* Does the same for blocks [first, end) of a head, which must have all blocks before `first`. */
ag_status ag_kv_own_blocks(ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t first,
                           uint32_t end, ag_error *err);
/* Hints that blocks [before, now) of a head have become full: their memory stays and is read
 * often. */
void ag_kv_fill_blocks(const ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t before,
                       uint32_t now);
/* Shares all blocks of `from` with `to`, an empty cache of the same parameters. */
void ag_kv_share_blocks(ag_kv_cache *to, ag_kv_cache *from);
/* Returns blocks past the heads' slots to the pool, which keeps their memory until
 * ag_kv_trim_pools(). */
void ag_kv_drop_tail(ag_kv_cache *c, uint32_t layer);
/* Returns all blocks to the pool and trims it. */
void ag_kv_drop_all_blocks(ag_kv_cache *c);

/* Copies of slot positions on the host, for memory that the host does not see. In
 * kv_positions.c. */
ag_status ag_kv_positions_create(ag_kv_cache *c, ag_error *err);
void ag_kv_record_positions(ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t slot,
                            const uint32_t *positions, size_t n);
void ag_kv_move_positions(ag_kv_cache *c, uint32_t layer, uint32_t head, const uint32_t *retained,
                          uint32_t n_keep);
void ag_kv_copy_positions(ag_kv_cache *to, const ag_kv_cache *from);
/* Reads the positions of n slots of one block. */
ag_status ag_kv_get_positions(const ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t slot,
                              uint32_t n, uint32_t *positions, ag_error *err);
/* Counts the slots of a head with positions below `position`. */
ag_status ag_kv_slots_below(const ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t position,
                            uint32_t *out, ag_error *err);

ag_status ag_kv_unrotated_create(ag_kv_cache *c, ag_error *err);
void ag_kv_unrotated_release(ag_kv_cache *c);
/* Copies the unrotated keys to a cache of the same parameters. */
ag_status ag_kv_unrotated_copy(ag_kv_cache *to, const ag_kv_cache *from, ag_error *err);
/* Read and write the copies of a layer, [n_protected][n_kv_heads * head_dim]. */
ag_status ag_kv_unrotated_read(const ag_kv_cache *c, uint32_t layer, float *keys, ag_error *err);
ag_status ag_kv_unrotated_write(ag_kv_cache *c, uint32_t layer, const float *keys, ag_error *err);
/* Discards the copies of tokens from `position` on. */
void ag_kv_unrotated_forget(ag_kv_cache *c, uint32_t position);

#endif
