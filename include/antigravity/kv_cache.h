/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and values of the tokens a sequence has seen, in blocks of 128 slots of one KV head of one
 * layer. On the host all caches of a backend take them from one pool, as they fill, and give them
 * back when they empty; a page goes back to the system when nothing lies in it any more.
 *
 * Slot: where a token lies in the cache, counted per layer and KV head. Logical position: how many
 * tokens the sequence had consumed before it; it is stored with every slot, fixes the rotation of
 * the key and decides what a query may see. Positions only grow; slots move when others leave. */
#ifndef ANTIGRAVITY_KV_CACHE_H
#define ANTIGRAVITY_KV_CACHE_H

#include <antigravity/backend.h>
#include <antigravity/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One layer's heads. */
typedef struct ag_kv_layer {
    uint32_t n_kv_heads, head_dim;
    uint32_t window; /* newest positions that a query sees, its own included; 0: all */
} ag_kv_layer;

typedef struct ag_kv_params {
    uint32_t n_layers, n_kv_heads, head_dim;
    uint32_t max_slots;      /* per layer and KV head */
    ag_dtype k_type, v_type; /* AG_DTYPE_CACHE; quantised types need head_dim % 32 = 0 */
    uint32_t n_protected;    /* first tokens whose keys are also kept unrotated, in F32 */
    bool hadamard;           /* keys come Hadamard-rotated; ag_kv_cache_read undoes it */
    /* [n_layers], copied by the cache; NULL: n_kv_heads heads of head_dim in every layer, and no
     * window. Else those two are not read. */
    const ag_kv_layer *layers;
    uint32_t step_rows;   /* most tokens that one step appends; 0: max_slots */
    uint64_t reserved[4]; /* 0: what later versions ask for */
} ag_kv_params;

/* Belongs to the thread that drives its backend. */
typedef struct ag_kv_cache ag_kv_cache;

AG_API ag_status ag_kv_cache_create(ag_backend *be, const ag_kv_params *params, ag_kv_cache **out,
                                    ag_error *err);
AG_API void ag_kv_cache_destroy(ag_kv_cache *c);
AG_API const ag_kv_params *ag_kv_cache_params(const ag_kv_cache *c);
/* NULL past the last layer. Borrowed. */
AG_API const ag_kv_layer *ag_kv_cache_layer(const ag_kv_cache *c, uint32_t layer);

/* Appends n tokens to one layer: k, v [n, n_kv_heads, head_dim] F32 of that layer, keys already
 * rotated, and their logical positions, ascending and above those stored. AG_LIMIT if they do not
 * fit the layer. */
AG_API ag_status ag_kv_cache_update(ag_kv_cache *c, uint32_t layer, const ag_tensor *k,
                                    const ag_tensor *v, const uint32_t *positions, ag_error *err);

/* The first `count` slots of every layer and head leave and the others move down; positions keep.
 * AG_INVALID if a head holds fewer. Emptied blocks go back to the system. */
AG_API ag_status ag_kv_cache_prune_prefix(ag_kv_cache *c, uint32_t count, ag_error *err);
/* Only the slots keep[0..n_keep), ascending, stay in one layer and head, moved together; positions
 * keep. AG_INVALID for a slot that is not there. Blocks that the head empties go back to the system
 * at once, whatever the other heads hold. On a device several blocks of all heads are one buffer,
 * which goes when none of them holds a slot. */
AG_API ag_status ag_kv_cache_compact(ag_kv_cache *c, uint32_t layer, uint32_t kv_head,
                                     const uint32_t *keep, uint32_t n_keep, ag_error *err);
/* Slots whose position is >= position leave: rolls a sequence back. AG_INVALID, and nothing has
 * changed, if a layer with a window no longer holds what a query at `position` sees; 0 always
 * works. */
AG_API ag_status ag_kv_cache_truncate(ag_kv_cache *c, uint32_t position, ag_error *err);
/* The lowest position but 0 that ag_kv_cache_truncate reaches. */
AG_API uint32_t ag_kv_cache_oldest_reachable(const ag_kv_cache *c);
/* After a step, `next_position` is the next token's: layers with a window that hold more than
 * ceil(window / 128) + 1 blocks lose what no query from position next_position - 64 on will see,
 * protected tokens included. A layer whose window is below max_slots has memory for so many blocks
 * and those of step_rows tokens, whatever max_slots. */
AG_API ag_status ag_kv_cache_expire(ag_kv_cache *c, uint32_t next_position, ag_error *err);
AG_API void ag_kv_cache_clear(ag_kv_cache *c);

/* A second cache that holds the same. Both share their blocks until one of them writes to, moves
 * or drops what is in a block: it then does so in a copy of its own, and the other sees nothing of
 * it. Memory is taken by what differs. Any of them may go first. */
AG_API ag_status ag_kv_cache_fork(ag_kv_cache *c, ag_kv_cache **out, ag_error *err);

AG_API uint32_t ag_kv_cache_n_slots(const ag_kv_cache *c, uint32_t layer, uint32_t kv_head);
/* The largest of these over all heads of the layers that can be full: of all layers, if each has a
 * window below max_slots. */
AG_API uint32_t ag_kv_cache_length(const ag_kv_cache *c);
/* Their mean over all heads of the layers that see everything; 0 where each layer has a window. */
AG_API double ag_kv_cache_mean_slots(const ag_kv_cache *c);
/* Tokens that fit until one of those layers is full; UINT32_MAX if none can be. */
AG_API uint32_t ag_kv_cache_free_slots(const ag_kv_cache *c);
/* The logical position of a slot's token, UINT32_MAX for a slot that is not there. */
AG_API uint32_t ag_kv_cache_position(const ag_kv_cache *c, uint32_t layer, uint32_t kv_head,
                                     uint32_t slot);
/* K and V of a slot as F32, head_dim values each; either pointer may be NULL. */
AG_API ag_status ag_kv_cache_read(ag_kv_cache *c, uint32_t layer, uint32_t kv_head, uint32_t slot,
                                  float *k, float *v, ag_error *err);

/* Bytes of the blocks that hold tokens now, and of all blocks a full cache would use. */
AG_API size_t ag_kv_cache_memory_usage_bytes(const ag_kv_cache *c);
AG_API size_t ag_kv_cache_capacity_bytes(const ag_kv_cache *c);
/* Of the first figure, bytes of blocks that other caches hold too. */
AG_API size_t ag_kv_cache_shared_bytes(const ag_kv_cache *c);
/* The capacity before there is a cache; 0 if the parameters are invalid. */
AG_API size_t ag_kv_cache_plan_bytes(const ag_kv_params *params);

#ifdef __cplusplus
}
#endif
#endif
