/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and moves slots: in place if the host sees the memory, else through the backend. */
#include "cache/kv_cache_impl.h"
#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/fail.h"
#include "core/hadamard.h"
#include "quant/quant.h"

#include <string.h>

/* Reads the keys or values of n slots of one block as floats. */
static ag_status read_rows(const ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t slot,
                           uint32_t n, bool values, float *out, ag_error *err) {
    const ag_kv_block *b = ag_kv_block_of(c, layer, head, slot / AG_KV_BLOCK);
    ag_dtype type = values ? c->params.v_type : c->params.k_type;
    const ag_kv_sections *parts = &c->at[layer].part;
    size_t count = (size_t)n * c->params.layers[layer].head_dim;
    size_t row_bytes = values ? parts->v_row : parts->k_row;
    size_t at = b->offset + (values ? parts->v_offset : 0) + slot % AG_KV_BLOCK * row_bytes;
    /* Mapping a buffer that is not mapped would take it from the device. */
    if (ag_buffer_is_mapped(b->buffer)) {
        /* Rows are contiguous, and no row ends inside a quantised block. */
        ag_unpack(c->backend, type, out, (uint8_t *)ag_buffer_map(b->buffer) + at, count);
        return AG_OK;
    }
    void *rows = ag_malloc(n * row_bytes);
    if (!rows) return AG_FAIL(err, NOMEM, "buffer of %u KV rows", (unsigned)n);
    ag_status st = ag_buffer_download(rows, b->buffer, at, n * row_bytes, err);
    if (st == AG_OK) ag_dequantize_row(type, out, rows, count);
    ag_free(rows);
    return st;
}

ag_status ag_kv_cache_read(ag_kv_cache *c, uint32_t layer, uint32_t kv_head, uint32_t slot,
                           float *k, float *v, ag_error *err) {
    if (slot >= ag_kv_cache_n_slots(c, layer, kv_head)) {
        return AG_FAIL(err, INVALID, "slot %u does not exist: layer %u, head %u holds %u slots",
                       slot, layer, kv_head, ag_kv_cache_n_slots(c, layer, kv_head));
    }
    if (k) AG_TRY(read_rows(c, layer, kv_head, slot, 1, false, k, err));
    if (k && c->params.hadamard) ag_hadamard(k, 1, c->params.layers[layer].head_dim);
    if (v) AG_TRY(read_rows(c, layer, kv_head, slot, 1, true, v, err));
    return AG_OK;
}

/* A section of the blocks of one head: keys, values or positions. `offset` in each block, `row`
 * bytes a slot. */
typedef struct section {
    uint8_t *const *blocks; /* host addresses */
    size_t offset, row;
} section;

static uint8_t *section_row(const section *p, uint32_t slot) {
    return p->blocks[slot / AG_KV_BLOCK] + p->offset + slot % AG_KV_BLOCK * p->row;
}

static void prefetch_row(const section *p, uint32_t slot) {
    const uint8_t *row = section_row(p, slot);
    for (size_t i = 0; i < p->row; i += 64) __builtin_prefetch(row + i);
}

/* Moves slot keep[i] to slot i, in runs within one block on both sides. Prefetches rows, since
 * retained slots are scattered. */
static void move_section(const section *p, const uint32_t *keep, uint32_t n_keep) {
    enum { AHEAD = 24 };
    uint32_t i = 0;
    while (i < n_keep && keep[i] == i) i++;
    for (uint32_t run; i < n_keep; i += run) {
        const uint32_t to = i % AG_KV_BLOCK, from = keep[i] % AG_KV_BLOCK;
        const uint32_t max = AG_KV_BLOCK - (to > from ? to : from);
        run = 1;
        while (i + run < n_keep && run < max && keep[i + run] == keep[i] + run) run++;
        if (i + AHEAD < n_keep) prefetch_row(p, keep[i + AHEAD]);
        memmove(section_row(p, i), section_row(p, keep[i]), run * p->row);
    }
}

enum { N_SECTIONS = 3 };

typedef struct move_job {
    section sections[N_SECTIONS];
    const uint32_t *keep;
    uint32_t n_keep;
} move_job;

static void move_sections(void *ctx, size_t begin, size_t end, uint32_t thread) {
    const move_job *job = ctx;
    (void)thread;
    for (size_t i = begin; i < end; i++) move_section(&job->sections[i], job->keep, job->n_keep);
}

/* Writes the host addresses of a head's blocks to c->mapped. Returns false if the host does not
 * see one. */
static bool map_blocks(const ag_kv_cache *c, uint32_t layer, uint32_t head) {
    const ag_kv_block *blocks = ag_kv_block_of(c, layer, head, 0);
    for (uint32_t b = 0; b < ag_kv_blocks_for(ag_kv_slots_of(c, layer)[head]); b++) {
        if (!ag_buffer_is_mapped(blocks[b].buffer)) return false;
        c->mapped[b] = (uint8_t *)ag_buffer_map(blocks[b].buffer) + blocks[b].offset;
    }
    return true;
}

/* Moves slot keep[i] to slot i. */
static ag_status move_retained(ag_kv_cache *c, uint32_t layer, uint32_t head, const uint32_t *keep,
                               uint32_t n_keep, ag_error *err) {
    uint32_t moved = 0;
    while (moved < n_keep && keep[moved] == moved) moved++;
    if (moved == n_keep) return AG_OK;
    AG_TRY(
        ag_kv_own_blocks(c, layer, head, moved / AG_KV_BLOCK, (n_keep - 1) / AG_KV_BLOCK + 1, err));
    if (!map_blocks(c, layer, head)) {
        ag_kv_view view;
        ag_kv_cache_get_view(c, layer, &view);
        AG_TRY(
            ag_take_error(c->backend, ag_kv_compact(c->backend, &view, head, keep, n_keep), err));
        ag_kv_move_positions(c, layer, head, keep, n_keep);
        return AG_OK;
    }
    const ag_kv_sections *at = &c->at[layer].part;
    move_job job = {
        {{c->mapped, 0, at->k_row},
         {c->mapped, at->v_offset, at->v_row},
         {c->mapped, at->p_offset, sizeof(uint32_t)}},
        keep,
        n_keep,
    };
    ag_for_each(c->backend, N_SECTIONS, move_sections, &job);
    ag_kv_move_positions(c, layer, head, keep, n_keep);
    return AG_OK;
}

static ag_status check_keep(const ag_kv_cache *c, uint32_t layer, uint32_t head,
                            const uint32_t *keep, uint32_t n_keep, ag_error *err) {
    if (layer >= c->params.n_layers) {
        return AG_FAIL(err, INVALID, "layer %u does not exist: the cache has %u layers", layer,
                       c->params.n_layers);
    }
    if (head >= ag_kv_heads_of(c, layer)) {
        return AG_FAIL(err, INVALID, "KV head %u does not exist: there are %u in layer %u", head,
                       ag_kv_heads_of(c, layer), layer);
    }
    uint32_t n = ag_kv_slots_of(c, layer)[head];
    for (uint32_t i = 0; i < n_keep; i++) {
        if (keep[i] >= n)
            return AG_FAIL(err, INVALID, "cannot keep slot %u: the head holds %u", keep[i], n);
        if (i && keep[i] <= keep[i - 1]) {
            return AG_FAIL(err, INVALID, "cannot keep slot %u after slot %u: slots must ascend",
                           keep[i], keep[i - 1]);
        }
    }
    return AG_OK;
}

ag_status ag_kv_compact_head(ag_kv_cache *c, uint32_t layer, uint32_t kv_head, const uint32_t *keep,
                             uint32_t n_keep, ag_error *err) {
    AG_TRY(check_keep(c, layer, kv_head, keep, n_keep, err));
    uint32_t *n = &ag_kv_slots_of(c, layer)[kv_head], last = ag_kv_last_of(c, layer)[kv_head];
    if (n_keep && keep[n_keep - 1] + 1 != *n)
        AG_TRY(ag_kv_get_positions(c, layer, kv_head, keep[n_keep - 1], 1, &last, err));
    AG_TRY(move_retained(c, layer, kv_head, keep, n_keep, err));
    ag_kv_last_of(c, layer)[kv_head] = last;
    *n = n_keep;
    ag_kv_drop_tail(c, layer);
    return AG_OK;
}

ag_status ag_kv_cache_compact(ag_kv_cache *c, uint32_t layer, uint32_t kv_head,
                              const uint32_t *keep, uint32_t n_keep, ag_error *err) {
    const ag_status st = ag_kv_compact_head(c, layer, kv_head, keep, n_keep, err);
    ag_kv_trim_pools(c);
    return st;
}

static ag_status read_head_rows(const ag_kv_cache *c, uint32_t layer, uint32_t head, bool values,
                                float *out, ag_error *err) {
    const uint32_t n = ag_kv_slots_of(c, layer)[head], dim = c->params.layers[layer].head_dim;
    for (uint32_t slot = 0; slot < n; slot += AG_KV_BLOCK) {
        const uint32_t rows = n - slot < AG_KV_BLOCK ? n - slot : AG_KV_BLOCK;
        AG_TRY(read_rows(c, layer, head, slot, rows, values, out + (size_t)slot * dim, err));
    }
    return AG_OK;
}

ag_status ag_kv_cache_read_keys(ag_kv_cache *c, uint32_t layer, uint32_t kv_head, float *keys,
                                ag_error *err) {
    return read_head_rows(c, layer, kv_head, false, keys, err);
}

ag_status ag_kv_cache_read_values(ag_kv_cache *c, uint32_t layer, uint32_t kv_head, float *values,
                                  ag_error *err) {
    return read_head_rows(c, layer, kv_head, true, values, err);
}

ag_status ag_kv_cache_prune_prefix(ag_kv_cache *c, uint32_t count, ag_error *err) {
    const ag_kv_params *p = &c->params;
    uint32_t longest = 0;
    for (uint32_t l = 0; l < p->n_layers; l++) {
        const uint32_t n = ag_kv_layer_length(c, l);
        if (n > longest) longest = n;
        for (uint32_t h = 0; h < ag_kv_heads_of(c, l); h++) {
            if (ag_kv_slots_of(c, l)[h] < count) {
                return AG_FAIL(err, INVALID, "cannot prune %u slots: layer %u, head %u holds %u",
                               count, l, h, ag_kv_slots_of(c, l)[h]);
            }
        }
    }
    uint32_t *keep = ag_calloc(longest + 1, sizeof *keep);
    if (!keep) return AG_FAIL(err, NOMEM, "list of %u slots", longest);
    for (uint32_t i = 0; i < longest - count; i++) keep[i] = count + i;
    ag_status st = AG_OK;
    for (uint32_t l = 0; l < p->n_layers && st == AG_OK; l++) {
        for (uint32_t h = 0; h < ag_kv_heads_of(c, l) && st == AG_OK; h++) {
            uint32_t *n = &ag_kv_slots_of(c, l)[h];
            st = move_retained(c, l, h, keep, *n - count, err);
            if (st == AG_OK) *n -= count;
        }
        if (st == AG_OK) ag_kv_drop_tail(c, l);
    }
    ag_kv_trim_pools(c);
    ag_free(keep);
    return st;
}

static ag_status truncate_head(ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t position,
                               ag_error *err) {
    uint32_t *n = &ag_kv_slots_of(c, layer)[head], *last = &ag_kv_last_of(c, layer)[head];
    uint32_t positions[AG_KV_BLOCK];
    while (*n && *last >= position) {
        uint32_t first = (*n - 1) / AG_KV_BLOCK * AG_KV_BLOCK, rows = *n - first;
        AG_TRY(ag_kv_get_positions(c, layer, head, first, rows, positions, err));
        while (rows && positions[rows - 1] >= position) rows--;
        *n = first + rows;
        if (rows) *last = positions[rows - 1];
    }
    return AG_OK;
}

ag_status ag_kv_cache_truncate(ag_kv_cache *c, uint32_t position, ag_error *err) {
    const uint32_t oldest = ag_kv_cache_oldest_reachable(c);
    if (!position) memset(c->expired, 0, c->params.n_layers * sizeof *c->expired);
    else if (position < oldest) {
        return AG_FAIL(
            err, INVALID,
            "cannot truncate to position %u: layers with a window allow %u or later, or 0",
            position, oldest);
    }
    for (uint32_t l = 0; l < c->params.n_layers; l++) {
        for (uint32_t h = 0; h < ag_kv_heads_of(c, l); h++) {
            AG_TRY(truncate_head(c, l, h, position, err));
        }
        ag_kv_drop_tail(c, l);
    }
    ag_kv_trim_pools(c);
    ag_kv_unrotated_forget(c, position);
    return AG_OK;
}
