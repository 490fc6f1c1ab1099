/* SPDX-License-Identifier: Apache-2.0 */
/* Who gives a cache its blocks: the backend's pools (core/block_pool.h), head by head, or segments
 * of its own where buffers are taken as a whole. */
#ifndef AG_CACHE_KV_BLOCKS_H
#define AG_CACHE_KV_BLOCKS_H

#include "cache/kv_cache_impl.h"

/* n bytes from one place to another. */
ag_status ag_kv_copy_bytes(const ag_kv_cache *c, ag_kv_block to, ag_kv_block from, size_t n,
                           ag_error *err);

/* kv_segments.c: rows [first, end) of a layer, as ag_kv_need_slots and ag_kv_own_blocks have it. */
ag_status ag_kv_segments_need(ag_kv_cache *c, uint32_t layer, uint32_t first, uint32_t end,
                              ag_error *err);
ag_status ag_kv_segments_own(ag_kv_cache *c, uint32_t layer, uint32_t first, uint32_t end,
                             ag_error *err);
void ag_kv_segments_keep(ag_kv_cache *c, uint32_t layer, uint32_t keep);
void ag_kv_segments_release(ag_kv_cache *c);
/* What is not in the tables that kernels see. */
void ag_kv_segments_share(ag_kv_cache *to, ag_kv_cache *from);
size_t ag_kv_segments_shared_bytes(const ag_kv_cache *c);

#endif
