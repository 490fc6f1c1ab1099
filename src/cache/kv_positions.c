/* SPDX-License-Identifier: Apache-2.0 */
/* Positions of slots. Reading them from a device would wait for it, so the host keeps copies for
 * memory that it does not see. */
#include "cache/kv_cache_impl.h"
#include "core/alloc.h"
#include "core/buffer_ops.h"
#include "core/fail.h"

ag_status ag_kv_positions_create(ag_kv_cache *c, ag_error *err) {
    if (!ag_backend_memory(c->backend)->ops->commits_at_once) return AG_OK;
    c->positions = ag_calloc(c->totals.head_slots, sizeof *c->positions);
    if (c->positions) return AG_OK;
    return AG_FAIL(err, NOMEM, "positions of %zu slots", c->totals.head_slots);
}

/* Returns the copy of a slot's position; NULL if positions are read from the blocks. The copies of
 * a slot are together, since all heads grow by the same tokens: those of a head have a stride of
 * n_kv_heads. */
static uint32_t *known_of(const ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t slot) {
    if (!c->positions) return NULL;
    return c->positions + c->at[layer].first.head_slot + (size_t)slot * ag_kv_heads_of(c, layer) +
           head;
}

void ag_kv_record_positions(ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t slot,
                            const uint32_t *positions, size_t n) {
    uint32_t *known = known_of(c, layer, head, slot);
    const size_t stride = ag_kv_heads_of(c, layer);
    for (size_t i = 0; known && i < n; i++) known[i * stride] = positions[i];
}

void ag_kv_move_positions(ag_kv_cache *c, uint32_t layer, uint32_t head, const uint32_t *keep,
                          uint32_t n_keep) {
    uint32_t *known = known_of(c, layer, head, 0);
    const size_t stride = ag_kv_heads_of(c, layer);
    for (uint32_t i = 0; known && i < n_keep; i++) known[i * stride] = known[keep[i] * stride];
}

void ag_kv_copy_positions(ag_kv_cache *to, const ag_kv_cache *from) {
    for (uint32_t l = 0; l < from->params.n_layers; l++) {
        for (uint32_t h = 0; h < ag_kv_heads_of(from, l); h++) {
            const uint32_t *known = known_of(from, l, h, 0);
            const size_t stride = ag_kv_heads_of(from, l);
            const uint32_t n = known ? ag_kv_slots_of(from, l)[h] : 0;
            for (uint32_t s = 0; s < n; s++)
                ag_kv_record_positions(to, l, h, s, known + s * stride, 1);
        }
    }
}

ag_status ag_kv_get_positions(const ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t slot,
                              uint32_t n, uint32_t *positions, ag_error *err) {
    const uint32_t *known = known_of(c, layer, head, slot);
    if (known) {
        const size_t stride = ag_kv_heads_of(c, layer);
        for (uint32_t i = 0; i < n; i++) positions[i] = known[i * stride];
        return AG_OK;
    }
    const ag_kv_block *b = ag_kv_block_of(c, layer, head, slot / AG_KV_BLOCK);
    const size_t at = c->at[layer].part.p_offset + slot % AG_KV_BLOCK * sizeof *positions;
    return ag_buffer_download(positions, b->buffer, b->offset + at, n * sizeof *positions, err);
}

ag_status ag_kv_slots_below(const ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t position,
                            uint32_t *out, ag_error *err) {
    uint32_t first = 0, end = ag_kv_slots_of(c, layer)[head];
    while (first < end) {
        const uint32_t middle = first + (end - first) / 2;
        uint32_t at;
        AG_TRY(ag_kv_get_positions(c, layer, head, middle, 1, &at, err));
        if (at < position) first = middle + 1;
        else end = middle;
    }
    *out = first;
    return AG_OK;
}

uint32_t ag_kv_cache_position(const ag_kv_cache *c, uint32_t layer, uint32_t kv_head,
                              uint32_t slot) {
    uint32_t at;
    if (slot >= ag_kv_cache_n_slots(c, layer, kv_head)) return UINT32_MAX;
    return ag_kv_get_positions(c, layer, kv_head, slot, 1, &at, NULL) == AG_OK ? at : UINT32_MAX;
}

ag_status ag_kv_cache_read_positions(const ag_kv_cache *c, uint32_t layer, uint32_t kv_head,
                                     uint32_t *positions, ag_error *err) {
    uint32_t n = ag_kv_slots_of(c, layer)[kv_head];
    for (uint32_t slot = 0; slot < n; slot += AG_KV_BLOCK) {
        uint32_t rows = n - slot < AG_KV_BLOCK ? n - slot : AG_KV_BLOCK;
        AG_TRY(ag_kv_get_positions(c, layer, kv_head, slot, rows, positions + slot, err));
    }
    return AG_OK;
}

uint32_t ag_kv_cache_oldest(const ag_kv_cache *c, uint32_t n_protected, uint32_t distance) {
    uint32_t oldest = UINT32_MAX;
    for (uint32_t l = 0; l < c->params.n_layers; l++) {
        const uint32_t window = c->params.layers[l].window;
        if (window && window <= distance) continue;
        for (uint32_t h = 0; h < ag_kv_heads_of(c, l); h++) {
            uint32_t slot = 0, at;
            do at = ag_kv_cache_position(c, l, h, slot++);
            while (at < n_protected);
            if (at < oldest) oldest = at;
        }
    }
    return oldest;
}
