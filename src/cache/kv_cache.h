/* SPDX-License-Identifier: Apache-2.0 */
/* What the layers need of a KV cache beyond antigravity/kv_cache.h. */
#ifndef AG_CACHE_KV_CACHE_H
#define AG_CACHE_KV_CACHE_H

#include "core/kv_view.h"

#include <antigravity/kv_cache.h>

ag_backend *ag_kv_cache_backend(const ag_kv_cache *c); /* borrowed */

/* A layer's heads before there is a cache. */
ag_kv_layer ag_kv_layer_of(const ag_kv_params *p, uint32_t layer);

/* What layers add up to, and the most that one of them has. */
typedef struct ag_kv_totals {
    size_t heads, head_slots, key_values; /* heads; slots in all heads; values of a token's keys */
    uint32_t max_heads, max_dim, max_slots;
    size_t max_head_slots;
} ag_kv_totals;
ag_kv_totals ag_kv_totals_of(const ag_kv_params *p);

/* Bytes of blocks for n_blocks * 128 tokens in every layer, between steps: in one with a window, at
 * most those it keeps. SIZE_MAX if they cannot be counted. */
size_t ag_kv_bytes_of_tokens(const ag_kv_params *p, uint32_t n_blocks);

/* Slots of a layer's longest head. */
uint32_t ag_kv_layer_length(const ag_kv_cache *c, uint32_t layer);
/* Slots that a layer has at most, in each head. */
uint32_t ag_kv_cache_max_slots(const ag_kv_cache *c, uint32_t layer);
/* Heads of the layers before, and slots in all their heads. */
size_t ag_kv_cache_first_head(const ag_kv_cache *c, uint32_t layer);
size_t ag_kv_cache_first_head_slot(const ag_kv_cache *c, uint32_t layer);

/* Makes sure that n more tokens fit every layer, so that a forward pass cannot fail half way.
 * AG_LIMIT names slots used, wanted and allowed. */
ag_status ag_kv_cache_reserve(ag_kv_cache *c, uint32_t n, ag_error *err);
typedef struct ag_kv_growth {
    ag_kv_cache *cache;
    uint32_t n; /* tokens more */
} ag_kv_growth;
/* The same of several caches that grow in one pass: there is room for all of them together. */
ag_status ag_kv_caches_reserve(const ag_kv_growth *grow, size_t n_caches, ag_error *err);

/* The layer as kernels see it; borrowed from the cache, valid until it changes. */
void ag_kv_cache_get_view(const ag_kv_cache *c, uint32_t layer, ag_kv_view *out);

/* ag_kv_cache_compact() by halves, for several heads: what they all drop lies together, and large
 * pieces go back to the system many times faster than small ones. */
ag_status ag_kv_compact_head(ag_kv_cache *c, uint32_t layer, uint32_t kv_head, const uint32_t *keep,
                             uint32_t n_keep, ag_error *err);
void ag_kv_trim_pools(ag_kv_cache *c);

/* Data that moves with the slots. Called before slots of a layer move, after the slots
 * [keep[0], ...] of a head have moved together, and after those of all its heads have. */
typedef struct ag_kv_follower {
    ag_status (*begin)(void *user, uint32_t layer, ag_error *err);
    void (*moved)(void *user, uint32_t layer, uint32_t kv_head, const uint32_t *keep,
                  uint32_t n_keep);
    ag_status (*end)(void *user, uint32_t layer, ag_error *err);
    void *user;
} ag_kv_follower;
/* ag_kv_cache_expire with a follower, or NULL. */
ag_status ag_kv_cache_expire_with(ag_kv_cache *c, uint32_t next_position,
                                  const ag_kv_follower *follower, ag_error *err);

/* After how many tokens more ag_kv_cache_expire has something to do: at least 1; UINT32_MAX where
 * no layer has a window. */
uint32_t ag_kv_cache_rows_before_expiry(const ag_kv_cache *c);

/* What ag_kv_cache_fork does, into an empty cache of the same parameters. */
ag_status ag_kv_cache_share(ag_kv_cache *to, ag_kv_cache *from, ag_error *err);

/* For a backend that writes one token's row into the next slot of every layer and head by itself:
 * before, the blocks of these slots become the cache's own; afterwards they are counted. */
ag_status ag_kv_cache_own_next(ag_kv_cache *c, ag_error *err);
void ag_kv_cache_appended(ag_kv_cache *c, uint32_t position);

/* From now on only the first n tokens are protected, at most as many as until now: later ones have
 * no unrotated copies. n_protected again when the cache is cleared. */
void ag_kv_cache_protect(ag_kv_cache *c, uint32_t n);
uint32_t ag_kv_cache_protected(const ag_kv_cache *c);
/* Before keys are rotated: copies of those whose position is below what is protected.
 *   k [n, n_kv_heads, head_dim] F32, host-visible or not */
ag_status ag_kv_cache_keep_unrotated(ag_kv_cache *c, uint32_t layer, const ag_tensor *k,
                                     const uint32_t *positions, ag_error *err);
/* Bytes of these copies. */
size_t ag_kv_unrotated_bytes(const ag_kv_params *p);
/* How a layer rotates its keys: pairs (i, i + n_rotated / 2) of the first n_rotated values, by
 * position * inv_freq[i]. */
typedef struct ag_rope_table {
    const float *inv_freq; /* [n_rotated / 2] on the host, borrowed; NULL: not at all */
    uint32_t n_rotated;    /* even, at most head_dim */
    float factor;          /* of the values that are rotated */
} ag_rope_table;

/* Rotates the protected keys of which there are copies, so that none is farther than trained - 1
 * from position `newest`: the first at exactly that distance, the others keeping theirs to it.
 * Their logical positions stay. rope [n_layers]. Costs nothing before position `trained`. */
ag_status ag_kv_cache_rerotate(ag_kv_cache *c, const ag_rope_table *rope, uint32_t newest,
                               uint32_t trained, ag_error *err);

/* One head's keys as F32 [n_slots, head_dim], rotated as they are kept, its values and its
 * positions. */
ag_status ag_kv_cache_read_keys(ag_kv_cache *c, uint32_t layer, uint32_t kv_head, float *keys,
                                ag_error *err);
ag_status ag_kv_cache_read_values(ag_kv_cache *c, uint32_t layer, uint32_t kv_head, float *values,
                                  ag_error *err);
ag_status ag_kv_cache_read_positions(const ag_kv_cache *c, uint32_t layer, uint32_t kv_head,
                                     uint32_t *positions, ag_error *err);
/* The lowest position from n_protected on in any head of the layers that see farther than
 * `distance`; UINT32_MAX if there is none. */
uint32_t ag_kv_cache_oldest(const ag_kv_cache *c, uint32_t n_protected, uint32_t distance);

#endif
