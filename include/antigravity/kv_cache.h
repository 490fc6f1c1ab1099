/* SPDX-License-Identifier: Apache-2.0 */
/* KV cache: keys and values of a sequence's tokens, in blocks of 128 slots of one KV head of one
 * layer. On the host, all caches of a backend allocate blocks from one pool as they fill, and free
 * them when they are empty. A page without blocks in use is returned to the system.
 *
 * Slot: index of a token in one layer and KV head. Logical position: number of tokens that the
 * sequence consumed before this token. The position is stored with every slot; it determines the
 * rotation of the key and the visibility to queries. Positions ascend with slots; slots move down
 * when slots before them are removed. */
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
    uint32_t window; /* newest positions that a query attends to, including its own; 0: all */
} ag_kv_layer;

typedef struct ag_kv_params {
    uint32_t n_layers, n_kv_heads, head_dim;
    uint32_t max_slots;      /* per layer and KV head */
    ag_dtype k_type, v_type; /* AG_DTYPE_CACHE; quantised types need head_dim % 32 == 0 */
    uint32_t n_protected;    /* first tokens whose keys are also stored unrotated, in F32 */
    bool hadamard;           /* keys are Hadamard-rotated; ag_kv_cache_read() undoes it */
    /* [n_layers], copied; replaces n_kv_heads and head_dim. NULL: all layers have n_kv_heads heads
     * of head_dim and no window. */
    const ag_kv_layer *layers;
    uint32_t step_rows;   /* maximum tokens that one step appends; 0: max_slots */
    uint64_t reserved[4]; /* must be 0 */
} ag_kv_params;

/* A cache. Used by the thread that uses its backend. */
typedef struct ag_kv_cache ag_kv_cache;

AG_API ag_status ag_kv_cache_create(ag_backend *be, const ag_kv_params *params, ag_kv_cache **out,
                                    ag_error *err);
AG_API void ag_kv_cache_destroy(ag_kv_cache *c);
AG_API const ag_kv_params *ag_kv_cache_params(const ag_kv_cache *c);
/* Returns the heads of a layer, NULL past the last one. Borrowed. */
AG_API const ag_kv_layer *ag_kv_cache_layer(const ag_kv_cache *c, uint32_t layer);

/* Appends n tokens to one layer: k, v [n, n_kv_heads, head_dim] F32 of that layer, keys already
 * rotated, and their logical positions, ascending and above those stored. AG_LIMIT if they do not
 * fit the layer. */
AG_API ag_status ag_kv_cache_update(ag_kv_cache *c, uint32_t layer, const ag_tensor *k,
                                    const ag_tensor *v, const uint32_t *positions, ag_error *err);

/* Removes the first `count` slots of every layer and head; the others move down and retain their
 * positions. Fails with AG_INVALID if a head has fewer slots. Empty blocks are freed. */
AG_API ag_status ag_kv_cache_prune_prefix(ag_kv_cache *c, uint32_t count, ag_error *err);
/* Retains only the slots keep[0..n_keep), ascending, of one layer and head, and moves them
 * together. They retain their positions. Fails with AG_INVALID for a slot that does not exist. On
 * the host, the head's empty blocks are freed at once. On a device, several blocks of all heads
 * share a buffer, which is freed when none of them contains a slot. */
AG_API ag_status ag_kv_cache_compact(ag_kv_cache *c, uint32_t layer, uint32_t kv_head,
                                     const uint32_t *keep, uint32_t n_keep, ag_error *err);
/* Removes the slots at positions >= position. Fails with AG_INVALID, and changes nothing, if a
 * layer with a window no longer has the tokens that a query at `position` attends to. Position 0
 * always works. */
AG_API ag_status ag_kv_cache_truncate(ag_kv_cache *c, uint32_t position, ag_error *err);
/* Returns the lowest position, besides 0, that ag_kv_cache_truncate() accepts. */
AG_API uint32_t ag_kv_cache_oldest_reachable(const ag_kv_cache *c);
/* Removes expired slots of layers with a window; call it after each step with the position of the
 * next token. A layer with more than ceil(window / 128) + 1 blocks loses the slots, protected ones
 * included, that no query from position next_position - 64 on attends to. A layer whose window is
 * below max_slots therefore needs memory for that many blocks and those of step_rows tokens only.
 */
AG_API ag_status ag_kv_cache_expire(ag_kv_cache *c, uint32_t next_position, ag_error *err);
AG_API void ag_kv_cache_clear(ag_kv_cache *c);

/* Creates a copy of the cache that shares its blocks. A cache copies a shared block before it
 * changes it. Either cache may be destroyed first. */
AG_API ag_status ag_kv_cache_fork(ag_kv_cache *c, ag_kv_cache **out, ag_error *err);

AG_API uint32_t ag_kv_cache_n_slots(const ag_kv_cache *c, uint32_t layer, uint32_t kv_head);
/* Returns the largest number of slots of a head, over the layers without a window below max_slots;
 * over all layers if each has such a window. */
AG_API uint32_t ag_kv_cache_length(const ag_kv_cache *c);
/* Returns the mean number of slots over all heads of the layers without a window; 0 if there are
 * none. */
AG_API double ag_kv_cache_mean_slots(const ag_kv_cache *c);
/* Returns how many tokens fit until a layer is full; UINT32_MAX if every layer has a window below
 * max_slots. */
AG_API uint32_t ag_kv_cache_free_slots(const ag_kv_cache *c);
/* Returns the logical position of a slot, UINT32_MAX for a slot that does not exist. */
AG_API uint32_t ag_kv_cache_position(const ag_kv_cache *c, uint32_t layer, uint32_t kv_head,
                                     uint32_t slot);
/* Reads the key and the value of a slot as F32, head_dim values each. k or v may be NULL. */
AG_API ag_status ag_kv_cache_read(ag_kv_cache *c, uint32_t layer, uint32_t kv_head, uint32_t slot,
                                  float *k, float *v, ag_error *err);

/* Return the bytes of the blocks in use, and of all blocks of a full cache. */
AG_API size_t ag_kv_cache_memory_usage_bytes(const ag_kv_cache *c);
AG_API size_t ag_kv_cache_capacity_bytes(const ag_kv_cache *c);
/* Returns the bytes of the blocks in use that other caches share. */
AG_API size_t ag_kv_cache_shared_bytes(const ag_kv_cache *c);
/* Returns the capacity in bytes of a cache with these parameters; 0 if they are invalid. */
AG_API size_t ag_kv_cache_plan_bytes(const ag_kv_params *params);

#ifdef __cplusplus
}
#endif
#endif
