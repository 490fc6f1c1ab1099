/* SPDX-License-Identifier: Apache-2.0 */
/* Internal interface of the KV cache, for layers, evictions and sessions. The public part is
 * antigravity/kv_cache.h. */
#ifndef AG_CACHE_KV_CACHE_H
#define AG_CACHE_KV_CACHE_H

#include "core/kv_view.h"

#include <antigravity/kv_cache.h>

ag_backend *ag_kv_cache_backend(const ag_kv_cache *c); /* borrowed */

/* Returns the heads of a layer from the parameters alone. */
ag_kv_layer ag_kv_layer_of(const ag_kv_params *p, uint32_t layer);

/* Sums over all layers, and the maxima of a single layer. */
typedef struct ag_kv_totals {
    size_t heads, head_slots,
        key_values; /* heads; slots in all heads; values of the keys of a token */
    uint32_t max_heads, max_dim, max_slots;
    size_t max_head_slots;
} ag_kv_totals;
ag_kv_totals ag_kv_totals_of(const ag_kv_params *p);

/* Returns the bytes of n_blocks * 128 tokens in every layer between steps; SIZE_MAX on overflow.
 * A layer with a window counts at most the blocks that it keeps. */
size_t ag_kv_bytes_of_tokens(const ag_kv_params *p, uint32_t n_blocks);

/* Returns the number of slots in the longest head of a layer. */
uint32_t ag_kv_layer_length(const ag_kv_cache *c, uint32_t layer);
/* Returns the maximum number of slots in each head of a layer. */
uint32_t ag_kv_cache_max_slots(const ag_kv_cache *c, uint32_t layer);
/* Return the number of heads of all layers before this one, and of slots in them. */
size_t ag_kv_cache_first_head(const ag_kv_cache *c, uint32_t layer);
size_t ag_kv_cache_first_head_slot(const ag_kv_cache *c, uint32_t layer);

/* Reserves space for n more tokens in every layer, so that a forward pass cannot fail half way.
 * Fails with AG_LIMIT if they do not fit. */
ag_status ag_kv_cache_reserve(ag_kv_cache *c, uint32_t n, ag_error *err);
typedef struct ag_kv_growth {
    ag_kv_cache *cache;
    uint32_t n; /* tokens to add */
} ag_kv_growth;
/* Reserves space for several caches that grow in one pass. */
ag_status ag_kv_caches_reserve(const ag_kv_growth *grow, size_t n_caches, ag_error *err);

/* Fills in the view of a layer for kernels. Borrowed from the cache; valid until the cache
 * changes. */
void ag_kv_cache_get_view(const ag_kv_cache *c, uint32_t layer, ag_kv_view *out);

/* Compacts one head without returning memory; call ag_kv_trim_pools() after all heads. The
 * system takes back large ranges many times faster than small ones. */
ag_status ag_kv_compact_head(ag_kv_cache *c, uint32_t layer, uint32_t kv_head, const uint32_t *keep,
                             uint32_t n_keep, ag_error *err);
void ag_kv_trim_pools(ag_kv_cache *c);

/* Does the same as ag_kv_cache_expire() and moves the score sums, which may be NULL, with the
 * slots. */
struct ag_score_sums;
ag_status ag_kv_cache_expire_with(ag_kv_cache *c, uint32_t next_position,
                                  struct ag_score_sums *sums, ag_error *err);

/* Returns the number of tokens, at least 1, after which ag_kv_cache_expire() has work again.
 * UINT32_MAX if no layer has a window. */
uint32_t ag_kv_cache_rows_before_expiry(const ag_kv_cache *c);

/* Forks `from` into `to`, an empty cache of the same parameters. */
ag_status ag_kv_cache_share(ag_kv_cache *to, ag_kv_cache *from, ag_error *err);

/* For a caller that writes n tokens of a layer: begin_update() makes their slots this cache's own,
 * end_update() counts them after they were written, and cancel_update() returns their memory. */
ag_status ag_kv_cache_begin_update(ag_kv_cache *c, uint32_t layer, const uint32_t *positions,
                                   size_t n, ag_error *err);
void ag_kv_cache_end_update(ag_kv_cache *c, uint32_t layer, const uint32_t *positions, size_t n);
void ag_kv_cache_cancel_update(ag_kv_cache *c, uint32_t layer);

/* For a backend that writes a token's row into the next slot of every layer and head. Call
 * own_next() before, so that these slots are in blocks of this cache alone. Call appended()
 * after, to count the slots. */
ag_status ag_kv_cache_own_next(ag_kv_cache *c, ag_error *err);
void ag_kv_cache_appended(ag_kv_cache *c, uint32_t position);

/* Limits protection to the first n tokens; n must not grow, since later tokens have no unrotated
 * copies. Clearing the cache restores params.n_protected. */
void ag_kv_cache_protect(ag_kv_cache *c, uint32_t n);
uint32_t ag_kv_cache_protected(const ag_kv_cache *c);
/* Copies the keys of protected positions before they are rotated.
 *   k [n, n_kv_heads, head_dim] F32, host-visible or not */
ag_status ag_kv_cache_keep_unrotated(ag_kv_cache *c, uint32_t layer, const ag_tensor *k,
                                     const uint32_t *positions, ag_error *err);
/* Returns the bytes of these copies. */
size_t ag_kv_unrotated_bytes(const ag_kv_params *p);
/* Rotation of a layer's keys: pairs (i, i + n_rotated / 2) of the first n_rotated values, by
 * position * inv_freq[i]. */
typedef struct ag_rope_table {
    const float *inv_freq; /* [n_rotated / 2] on the host, borrowed; NULL: no rotation */
    uint32_t n_rotated;    /* even, at most head_dim */
    float factor;          /* multiplies the rotated values */
} ag_rope_table;

/* Rotates the protected keys again from their copies, so that none is farther than trained - 1
 * from position `newest`. The first gets exactly that distance; the others keep their distances
 * to it. Logical positions do not change. rope [n_layers]. Does nothing before position
 * `trained`. */
ag_status ag_kv_cache_rerotate(ag_kv_cache *c, const ag_rope_table *rope, uint32_t newest,
                               uint32_t trained, ag_error *err);

/* Read the keys of one head as F32 [n_slots, head_dim], rotated as they are stored; its values;
 * its positions [n_slots]. */
ag_status ag_kv_cache_read_keys(ag_kv_cache *c, uint32_t layer, uint32_t kv_head, float *keys,
                                ag_error *err);
ag_status ag_kv_cache_read_values(ag_kv_cache *c, uint32_t layer, uint32_t kv_head, float *values,
                                  ag_error *err);
ag_status ag_kv_cache_read_positions(const ag_kv_cache *c, uint32_t layer, uint32_t kv_head,
                                     uint32_t *positions, ag_error *err);
/* Returns the lowest position >= n_protected in any head of the layers that see farther than
 * `distance`; UINT32_MAX if there is none. */
uint32_t ag_kv_cache_oldest(const ag_kv_cache *c, uint32_t n_protected, uint32_t distance);

#endif
