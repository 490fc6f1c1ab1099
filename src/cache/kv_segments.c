/* SPDX-License-Identifier: Apache-2.0 */
/* The memory behind a cache's blocks. */
#include "cache/kv_cache_impl.h"
#include "core/backend_ops.h"
#include "core/buffer_ops.h"
#include "core/fail.h"

static uint32_t blocks_in(const ag_kv_layout *at, uint32_t segment) {
    uint32_t rest = at->blocks_per_layer - segment * at->segment_blocks;
    return rest < at->segment_blocks ? rest : at->segment_blocks;
}

static void place_blocks(ag_kv_cache *c, uint32_t segment) {
    uint32_t n = blocks_in(&c->at, segment);
    for (uint32_t l = 0; l < c->params.n_layers; l++) {
        ag_kv_block *blocks =
            c->blocks + (size_t)l * c->at.blocks_per_layer + (size_t)segment * c->at.segment_blocks;
        for (uint32_t i = 0; i < n; i++) {
            blocks[i] = (ag_kv_block){.buffer = c->segments[segment],
                                      .offset = ((size_t)l * n + i) * c->at.block_bytes};
        }
    }
}

ag_status ag_kv_need_blocks(ag_kv_cache *c, uint32_t n, ag_error *err) {
    ag_memory *mem = ag_backend_memory(c->backend);
    for (uint32_t s = 0; s * c->at.segment_blocks < n; s++) {
        if (c->segments[s]) continue;
        size_t bytes = (size_t)c->params.n_layers * blocks_in(&c->at, s) * c->at.block_bytes;
        AG_TRY(ag_memory_alloc(mem, bytes, AG_USAGE_KV, &c->segments[s], err));
        place_blocks(c, s);
    }
    return AG_OK;
}

void ag_kv_release_segments(ag_kv_cache *c) {
    if (!ag_backend_memory(c->backend)->ops->commits_at_once) return;
    uint32_t held = 0;
    for (uint32_t l = 0; l < c->params.n_layers; l++) {
        if (c->n_blocks[l] > held) held = c->n_blocks[l];
    }
    for (uint32_t s = 0; s < AG_KV_SEGMENTS; s++) {
        if (!c->segments[s] || s * c->at.segment_blocks < held) continue;
        ag_buffer_release(&c->segments[s]);
        place_blocks(c, s);
    }
}
