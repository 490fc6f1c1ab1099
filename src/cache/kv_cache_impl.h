/* SPDX-License-Identifier: Apache-2.0 */
/* The cache's inside, for the files that implement it. */
#ifndef AG_CACHE_KV_CACHE_IMPL_H
#define AG_CACHE_KV_CACHE_IMPL_H

#include "cache/kv_cache.h"

enum { AG_KV_SEGMENTS = 4 };

/* Where the parts of a block lie; every part starts on a page, so that blocks can be given back. */
typedef struct ag_kv_layout {
    size_t k_row, v_row; /* bytes of one slot of one head */
    size_t v_offset, p_offset, block_bytes;
    uint32_t blocks_per_layer;
    uint32_t segment_blocks; /* blocks of each layer in a segment */
} ag_kv_layout;

/* The protected prefix as it was before its rotation. */
typedef struct ag_kv_unrotated {
    float *keys;        /* owned; [n_layers][n_protected][n_kv_heads * head_dim] */
    bool *known;        /* owned; [n_layers][n_protected] */
    float *key;         /* owned; [head_dim] on its way into the cache */
    void *row;          /* owned; the same as the cache keeps it */
    float *cos_sin;     /* owned; [n_protected][head_dim] pairs of one pass */
    uint32_t turned_by; /* positions that the prefix has been moved on by */
} ag_kv_unrotated;

struct ag_kv_cache {
    ag_kv_params params;
    ag_kv_layout at;
    ag_backend *backend; /* borrowed */
    /* Owned; segment s holds the blocks [s * segment_blocks, (s + 1) * segment_blocks) of every
     * layer. One for all where memory is committed by use; else several, there while they hold
     * slots. */
    ag_buffer *segments[AG_KV_SEGMENTS];
    ag_kv_block *blocks; /* [n_layers][blocks_per_layer]; buffer NULL: its segment is not there */
    uint32_t *n_slots;   /* [n_layers][n_kv_heads] */
    uint32_t *last;      /* [n_layers][n_kv_heads] position of the newest slot, if there is one */
    uint32_t *n_blocks;  /* [n_layers] that hold slots */
    ag_kv_unrotated unrotated;
};

/* The three parts of a slot; other slots of the head lie beside it in its block. */
typedef struct ag_kv_slot {
    uint8_t *k, *v;
    uint32_t *position;
} ag_kv_slot;

/* False if the cache's memory is not visible to the host. */
bool ag_kv_find_slot(const ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t slot,
                     ag_kv_slot *out);
uint32_t *ag_kv_slots_of(const ag_kv_cache *c, uint32_t layer); /* [n_kv_heads] lengths */
uint32_t *ag_kv_last_of(const ag_kv_cache *c, uint32_t layer);  /* [n_kv_heads] positions */
uint32_t ag_kv_layer_length(const ag_kv_cache *c, uint32_t layer);
/* Makes memory for the first n blocks of every layer. */
ag_status ag_kv_need_blocks(ag_kv_cache *c, uint32_t n, ag_error *err);
/* Gives back the segments that hold no slots. */
void ag_kv_release_segments(ag_kv_cache *c);
/* Blocks past the layer's longest head hold nothing any more: their pages go back. */
void ag_kv_give_back_tail(ag_kv_cache *c, uint32_t layer);

ag_status ag_kv_unrotated_create(ag_kv_cache *c, ag_error *err);
void ag_kv_unrotated_release(ag_kv_cache *c);
/* Tokens from `position` on have left the sequence. */
void ag_kv_unrotated_forget(ag_kv_cache *c, uint32_t position);

#endif
