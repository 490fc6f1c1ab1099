/* SPDX-License-Identifier: Apache-2.0 */
/* The blocks that a cache's tables name. Those of a pool belong to the caches whose tables name
 * them: one, or several after a fork. Whoever writes to one of several's takes a block of its own
 * first and copies it. */
#include "cache/kv_blocks.h"
#include "core/backend_ops.h"
#include "core/block_pool.h"
#include "core/buffer_ops.h"
#include "core/fail.h"

#include <string.h>

ag_status ag_kv_copy_bytes(const ag_kv_cache *c, ag_kv_block to, ag_kv_block from, size_t n,
                           ag_error *err) {
    ag_tensor dst, src;
    AG_TRY(ag_tensor_make(&src, AG_U8, ag_shape_1d(n), from.buffer, from.offset, err));
    AG_TRY(ag_tensor_make(&dst, AG_U8, ag_shape_1d(n), to.buffer, to.offset, err));
    return ag_take_error(c->backend, ag_copy_slice(c->backend, &dst, 0, &src, 0, n), err);
}

static uint32_t *n_blocks_of(const ag_kv_cache *c, uint32_t layer, uint32_t head) {
    return &c->n_blocks[c->at[layer].first.head + head];
}

ag_status ag_kv_blocks_create(ag_kv_cache *c, ag_error *err) {
    if (ag_backend_memory(c->backend)->ops->commits_at_once) return AG_OK;
    for (uint32_t l = 0; l < c->params.n_layers; l++) {
        ag_kv_layout *at = &c->at[l];
        AG_TRY(ag_block_pool_of(c->backend, at->part.bytes, &at->pool, err));
    }
    return AG_OK;
}

/* ---- blocks of a pool ---- */

static bool is_own(const ag_block_pool *pool, ag_kv_block block) {
    return block.buffer && !ag_block_pool_is_shared(pool, block);
}

static ag_status own_block(const ag_kv_cache *c, ag_block_pool *pool, ag_kv_block *block,
                           size_t bytes, ag_error *err) {
    ag_kv_block fresh;
    AG_TRY(ag_block_pool_take(pool, &fresh, err));
    if (block->buffer) {
        const ag_status st = ag_kv_copy_bytes(c, fresh, *block, bytes, err);
        ag_block_pool_drop(pool, st == AG_OK ? *block : fresh);
        if (st != AG_OK) return st;
    }
    *block = fresh;
    return AG_OK;
}

static void drop_blocks(ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t keep) {
    ag_kv_block *blocks = ag_kv_block_of(c, layer, head, 0);
    uint32_t *n = n_blocks_of(c, layer, head);
    for (; *n > keep; --*n) {
        ag_block_pool_drop(c->at[layer].pool, blocks[*n - 1]);
        blocks[*n - 1] = (ag_kv_block){0};
    }
}

/* Those that a layer's heads lack for n more slots. */
static size_t missing_in(const ag_kv_cache *c, uint32_t layer, uint32_t n) {
    size_t missing = 0;
    for (uint32_t h = 0; h < ag_kv_heads_of(c, layer); h++) {
        const uint32_t slots = ag_kv_slots_of(c, layer)[h], end = ag_kv_blocks_for(slots + n);
        for (uint32_t b = slots / AG_KV_BLOCK; b < end; b++)
            missing += !is_own(c->at[layer].pool, *ag_kv_block_of(c, layer, h, b));
    }
    return missing;
}

static ag_status reserve_in_pools(const ag_kv_cache *c, uint32_t n, ag_error *err) {
    const uint32_t n_layers = c->params.n_layers;
    for (uint32_t l = 0; l < n_layers; l++) {
        size_t missing = missing_in(c, l, n);
        for (uint32_t k = 0; k < n_layers && missing; k++)
            if (k != l && c->at[k].pool == c->at[l].pool) missing += missing_in(c, k, n);
        if (missing) AG_TRY(ag_block_pool_reserve(c->at[l].pool, missing, err));
    }
    return AG_OK;
}

static size_t shared_in_pools(const ag_kv_cache *c) {
    size_t bytes = 0;
    for (uint32_t l = 0; l < c->params.n_layers; l++) {
        for (uint32_t h = 0; h < ag_kv_heads_of(c, l); h++) {
            const ag_kv_block *blocks = ag_kv_block_of(c, l, h, 0);
            for (uint32_t b = 0; b < *n_blocks_of(c, l, h); b++) {
                if (!is_own(c->at[l].pool, blocks[b])) bytes += c->at[l].part.bytes;
            }
        }
    }
    return bytes;
}

/* ---- either way ---- */

/* The first row that appending writes to: heads may be of different lengths. */
static uint32_t first_written(const ag_kv_cache *c, uint32_t layer) {
    const uint32_t *n = ag_kv_slots_of(c, layer);
    uint32_t shortest = n[0];
    for (uint32_t h = 1; h < ag_kv_heads_of(c, layer); h++) {
        if (n[h] < shortest) shortest = n[h];
    }
    return shortest / AG_KV_BLOCK;
}

ag_status ag_kv_need_slots(ag_kv_cache *c, uint32_t n, ag_error *err) {
    if (c->at[0].pool) return reserve_in_pools(c, n, err);
    for (uint32_t l = 0; l < c->params.n_layers; l++) {
        const uint32_t end = ag_kv_blocks_for(ag_kv_layer_length(c, l) + n);
        AG_TRY(ag_kv_segments_need(c, l, first_written(c, l), end, err));
    }
    return AG_OK;
}

ag_status ag_kv_own_blocks(ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t first,
                           uint32_t end, ag_error *err) {
    const ag_kv_layout *at = &c->at[layer];
    if (!at->pool) return ag_kv_segments_own(c, layer, first, end, err);
    for (uint32_t b = first; b < end; b++) {
        ag_kv_block *block = ag_kv_block_of(c, layer, head, b);
        uint32_t *n = n_blocks_of(c, layer, head);
        if (!is_own(at->pool, *block)) AG_TRY(own_block(c, at->pool, block, at->part.bytes, err));
        if (*n <= b) *n = b + 1;
    }
    return AG_OK;
}

ag_status ag_kv_own_slots(ag_kv_cache *c, uint32_t layer, uint32_t n, ag_error *err) {
    if (!c->at[layer].pool) {
        const uint32_t end = ag_kv_blocks_for(ag_kv_layer_length(c, layer) + n);
        return ag_kv_segments_own(c, layer, first_written(c, layer), end, err);
    }
    for (uint32_t h = 0; h < ag_kv_heads_of(c, layer); h++) {
        const uint32_t slots = ag_kv_slots_of(c, layer)[h];
        const uint32_t first = slots / AG_KV_BLOCK, end = ag_kv_blocks_for(slots + n);
        AG_TRY(ag_kv_own_blocks(c, layer, h, first, end, err));
    }
    return AG_OK;
}

void ag_kv_give_back_tail(ag_kv_cache *c, uint32_t layer) {
    ag_block_pool *pool = c->at[layer].pool;
    if (!pool) {
        ag_kv_segments_keep(c, layer, ag_kv_blocks_for(ag_kv_layer_length(c, layer)));
        return;
    }
    for (uint32_t h = 0; h < ag_kv_heads_of(c, layer); h++)
        drop_blocks(c, layer, h, ag_kv_blocks_for(ag_kv_slots_of(c, layer)[h]));
    ag_block_pool_trim(pool);
}

void ag_kv_blocks_release(ag_kv_cache *c) {
    if (!c->blocks || !c->n_blocks) return; /* it was never finished */
    if (!c->at[0].pool) {
        ag_kv_segments_release(c);
        return;
    }
    for (uint32_t l = 0; l < c->params.n_layers; l++) {
        for (uint32_t h = 0; h < ag_kv_heads_of(c, l); h++) drop_blocks(c, l, h, 0);
    }
    for (uint32_t l = 0; l < c->params.n_layers; l++)
        if (c->at[l].pool) ag_block_pool_trim(c->at[l].pool);
}

void ag_kv_share_blocks(ag_kv_cache *to, ag_kv_cache *from) {
    for (uint32_t l = 0; l < from->params.n_layers; l++) {
        ag_block_pool *pool = from->at[l].pool;
        for (uint32_t h = 0; h < ag_kv_heads_of(from, l); h++) {
            const ag_kv_block *blocks = ag_kv_block_of(from, l, h, 0);
            const uint32_t n = *n_blocks_of(to, l, h) = *n_blocks_of(from, l, h);
            memcpy(ag_kv_block_of(to, l, h, 0), blocks, n * sizeof *blocks);
            for (uint32_t b = 0; pool && b < n; b++) ag_block_pool_share(pool, blocks[b]);
        }
    }
    if (!from->at[0].pool) ag_kv_segments_share(to, from);
}

void ag_kv_fill_blocks(const ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t before,
                       uint32_t now) {
    for (uint32_t b = before; c->at[layer].pool && b < now; b++)
        ag_block_pool_full(c->at[layer].pool, *ag_kv_block_of(c, layer, head, b));
}

size_t ag_kv_cache_memory_usage_bytes(const ag_kv_cache *c) {
    size_t bytes = 0;
    for (uint32_t l = 0; l < c->params.n_layers; l++) {
        for (uint32_t h = 0; h < ag_kv_heads_of(c, l); h++)
            bytes += *n_blocks_of(c, l, h) * c->at[l].part.bytes;
    }
    return bytes;
}

size_t ag_kv_cache_shared_bytes(const ag_kv_cache *c) {
    return c->at[0].pool ? shared_in_pools(c) : ag_kv_segments_shared_bytes(c);
}
