/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of a cache's tables, from the pools of its backend. After a fork several tables share a
 * block. A cache that writes to a shared block first copies it into a block of its own. */
#include "cache/kv_cache_impl.h"
#include "core/backend_ops.h"
#include "core/block_pool.h"
#include "core/buffer_ops.h"
#include "core/fail.h"

#include <string.h>

static ag_status copy_block(const ag_kv_cache *c, ag_kv_block to, ag_kv_block from, size_t n,
                            ag_error *err) {
    ag_tensor dst, src;
    AG_TRY(ag_tensor_make(&src, AG_U8, ag_shape_1d(n), from.buffer, from.offset, err));
    AG_TRY(ag_tensor_make(&dst, AG_U8, ag_shape_1d(n), to.buffer, to.offset, err));
    return ag_take_error(c->backend, ag_copy_slice(c->backend, &dst, 0, &src, 0, n), err);
}

static uint32_t *n_blocks_of(const ag_kv_cache *c, uint32_t layer, uint32_t head) {
    return &c->n_blocks[c->at[layer].first.head + head];
}

ag_status ag_kv_blocks_join(ag_kv_cache *c, ag_error *err) {
    for (uint32_t l = 0; l < c->params.n_layers; l++) {
        ag_kv_layout *at = &c->at[l];
        ag_block_pool *pool;
        AG_TRY(ag_block_pool_of(c->backend, at->part.bytes, &pool, err));
        at->table = (ag_block_table){.blocks = ag_kv_block_of(c, l, 0, 0),
                                     .n = n_blocks_of(c, l, 0),
                                     .n_rows = ag_kv_heads_of(c, l),
                                     .per_row = at->max_blocks};
        at->pool = pool;
        ag_block_pool_join(pool, &at->table, c->totals.heads);
    }
    return AG_OK;
}

/* ---- blocks ---- */

static bool is_own(const ag_block_pool *pool, ag_kv_block block) {
    return block.buffer && !ag_block_pool_is_shared(pool, block);
}

static ag_status own_block(const ag_kv_cache *c, ag_block_pool *pool, ag_kv_block *block,
                           size_t bytes, ag_error *err) {
    ag_kv_block fresh;
    AG_TRY(ag_block_pool_take(pool, &fresh, err));
    if (block->buffer) {
        const ag_status st = copy_block(c, fresh, *block, bytes, err);
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

/* Returns how many blocks the heads of a layer need for n more slots. */
static size_t missing_in_layer(const ag_kv_cache *c, uint32_t layer, uint32_t n) {
    size_t missing = 0;
    const ag_block_pool *pool = c->at[layer].pool;
    const bool any_shared = ag_block_pool_has_shared(pool);
    const uint32_t *slots = ag_kv_slots_of(c, layer), n_heads = ag_kv_heads_of(c, layer);
    for (uint32_t h = 0; h < n_heads; h++) {
        const uint32_t end = ag_kv_blocks_for(slots[h] + n);
        for (uint32_t b = slots[h] / AG_KV_BLOCK; b < end; b++) {
            const ag_kv_block block = *ag_kv_block_of(c, layer, h, b);
            missing += any_shared ? !is_own(pool, block) : !block.buffer;
        }
    }
    return missing;
}

/* Returns how many blocks all caches need of a pool, from layer `layer` of the first cache on. */
static size_t missing_from(const ag_kv_growth *grow, size_t n_caches, uint32_t layer,
                           const ag_block_pool *pool) {
    size_t missing = 0;
    for (size_t i = 0; i < n_caches; i++, layer = 0) {
        const ag_kv_cache *c = grow[i].cache;
        for (; layer < c->params.n_layers; layer++)
            if (c->at[layer].pool == pool) missing += missing_in_layer(c, layer, grow[i].n);
    }
    return missing;
}

static bool has_pool(const ag_kv_cache *c, uint32_t n_layers, const ag_block_pool *pool) {
    uint32_t l = 0;
    while (l < n_layers && c->at[l].pool != pool) l++;
    return l < n_layers;
}

ag_status ag_kv_reserve_slots(const ag_kv_growth *grow, size_t n_caches, ag_error *err) {
    for (size_t i = 0; i < n_caches; i++) {
        const ag_kv_cache *c = grow[i].cache;
        for (uint32_t l = 0; l < c->params.n_layers; l++) {
            ag_block_pool *pool = c->at[l].pool;
            bool is_new = !has_pool(c, l, pool);
            for (size_t k = 0; k < i && is_new; k++)
                is_new = !has_pool(grow[k].cache, grow[k].cache->params.n_layers, pool);
            if (!is_new) continue;
            const size_t missing = missing_from(&grow[i], n_caches - i, l, pool);
            if (missing) AG_TRY(ag_block_pool_reserve(pool, missing, err));
        }
    }
    return AG_OK;
}

size_t ag_kv_cache_shared_bytes(const ag_kv_cache *c) {
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

ag_status ag_kv_own_blocks(ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t first,
                           uint32_t end, ag_error *err) {
    const ag_kv_layout *at = &c->at[layer];
    ag_kv_block *block = ag_kv_block_of(c, layer, head, first);
    uint32_t *n = n_blocks_of(c, layer, head);
    for (uint32_t b = first; b < end; b++, block++) {
        if (!is_own(at->pool, *block)) AG_TRY(own_block(c, at->pool, block, at->part.bytes, err));
        if (*n <= b) *n = b + 1;
    }
    return AG_OK;
}

ag_status ag_kv_own_slots(ag_kv_cache *c, uint32_t layer, uint32_t n, ag_error *err) {
    const uint32_t *slots = ag_kv_slots_of(c, layer), n_heads = ag_kv_heads_of(c, layer);
    const uint32_t *n_blocks = n_blocks_of(c, layer, 0);
    const bool any_shared = ag_block_pool_has_shared(c->at[layer].pool);
    for (uint32_t h = 0; h < n_heads; h++) {
        const uint32_t first = slots[h] / AG_KV_BLOCK, end = ag_kv_blocks_for(slots[h] + n);
        if (end <= n_blocks[h] && !any_shared) continue; /* the head owns all of its blocks */
        AG_TRY(ag_kv_own_blocks(c, layer, h, first, end, err));
    }
    return AG_OK;
}

void ag_kv_drop_tail(ag_kv_cache *c, uint32_t layer) {
    for (uint32_t h = 0; h < ag_kv_heads_of(c, layer); h++)
        drop_blocks(c, layer, h, ag_kv_blocks_for(ag_kv_slots_of(c, layer)[h]));
}

/* Layers share pools, so memory is trimmed after all of them have dropped blocks. */
void ag_kv_trim_pools(ag_kv_cache *c) {
    for (uint32_t l = 0; l < c->params.n_layers; l++) ag_block_pool_trim_loosely(c->at[l].pool);
}

void ag_kv_drop_all_blocks(ag_kv_cache *c) {
    for (uint32_t l = 0; l < c->params.n_layers; l++) {
        for (uint32_t h = 0; h < ag_kv_heads_of(c, l) && c->at[l].pool; h++)
            drop_blocks(c, l, h, 0);
    }
    for (uint32_t l = 0; l < c->params.n_layers; l++)
        if (c->at[l].pool) ag_block_pool_trim(c->at[l].pool);
}

void ag_kv_blocks_leave(ag_kv_cache *c) {
    if (!c->blocks || !c->n_blocks) return; /* creation failed */
    for (uint32_t l = 0; l < c->params.n_layers; l++) {
        ag_kv_layout *at = &c->at[l];
        if (!at->pool) continue;
        for (uint32_t h = 0; h < ag_kv_heads_of(c, l); h++) drop_blocks(c, l, h, 0);
        ag_block_pool_leave(at->pool, &at->table);
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
            for (uint32_t b = 0; b < n; b++) ag_block_pool_share(pool, blocks[b]);
        }
    }
}

void ag_kv_fill_blocks(const ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t before,
                       uint32_t now) {
    for (uint32_t b = before; b < now; b++)
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
