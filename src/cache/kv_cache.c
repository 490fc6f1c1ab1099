/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/kv_cache_impl.h"

#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/buffer_ops.h"
#include "core/fail.h"

#include <string.h>

ag_status ag_kv_cache_create(ag_backend *be, const ag_kv_params *params, ag_kv_cache **out,
                             ag_error *err) {
    *out = NULL;
    ag_kv_cache *c = ag_calloc(1, sizeof *c);
    if (!c) return AG_FAIL(err, NOMEM, "KV cache");
    c->backend = be;
    ag_status st = ag_kv_layouts_create(c, params, err);
    if (st != AG_OK) goto done;
    const size_t n_blocks = c->at[params->n_layers].first.block;
    c->blocks = ag_calloc(n_blocks, sizeof *c->blocks);
    c->n_slots = ag_calloc(c->totals.heads, sizeof *c->n_slots);
    c->last = ag_calloc(c->totals.heads, sizeof *c->last);
    c->n_blocks = ag_calloc(c->totals.heads, sizeof *c->n_blocks);
    c->mapped = ag_calloc(ag_kv_blocks_for(c->totals.max_slots), sizeof *c->mapped);
    c->expired = ag_calloc(params->n_layers, sizeof *c->expired);
    c->retained = ag_calloc(ag_kv_max_window_slots(c) + 1, sizeof *c->retained);
    if (!c->blocks || !c->n_slots || !c->last || !c->n_blocks || !c->mapped || !c->expired ||
        !c->retained) {
        st = AG_FAIL(err, NOMEM, "tables of %zu KV blocks", n_blocks);
        goto done;
    }
    st = ag_kv_blocks_join(c, err);
    if (st == AG_OK) st = ag_kv_positions_create(c, err);
    if (st == AG_OK) st = ag_kv_unrotated_create(c, err);
    if (st != AG_OK) goto done;
    *out = c;
    c = NULL;
done:
    ag_kv_cache_destroy(c);
    return st;
}

void ag_kv_cache_destroy(ag_kv_cache *c) {
    if (!c) return;
    ag_kv_blocks_leave(c);
    ag_kv_unrotated_release(c);
    ag_free(c->positions);
    ag_free(c->blocks);
    ag_free(c->n_slots);
    ag_free(c->last);
    ag_free(c->n_blocks);
    ag_free(c->mapped);
    ag_free(c->expired);
    ag_free(c->retained);
    ag_kv_layouts_release(c);
    ag_free(c);
}

const ag_kv_params *ag_kv_cache_params(const ag_kv_cache *c) { return &c->params; }
ag_backend *ag_kv_cache_backend(const ag_kv_cache *c) { return c->backend; }

const ag_kv_layer *ag_kv_cache_layer(const ag_kv_cache *c, uint32_t layer) {
    return layer < c->params.n_layers ? &c->params.layers[layer] : NULL;
}

uint32_t ag_kv_cache_max_slots(const ag_kv_cache *c, uint32_t layer) {
    return c->at[layer].max_slots;
}

size_t ag_kv_cache_first_head(const ag_kv_cache *c, uint32_t layer) {
    return c->at[layer].first.head;
}

size_t ag_kv_cache_first_head_slot(const ag_kv_cache *c, uint32_t layer) {
    return c->at[layer].first.head_slot;
}

uint32_t ag_kv_layer_length(const ag_kv_cache *c, uint32_t layer) {
    const uint32_t *n = ag_kv_slots_of(c, layer), n_heads = ag_kv_heads_of(c, layer);
    uint32_t longest = 0;
    for (uint32_t h = 0; h < n_heads; h++) {
        if (n[h] > longest) longest = n[h];
    }
    return longest;
}

uint32_t ag_kv_cache_n_slots(const ag_kv_cache *c, uint32_t layer, uint32_t kv_head) {
    if (layer >= c->params.n_layers || kv_head >= ag_kv_heads_of(c, layer)) return 0;
    return ag_kv_slots_of(c, layer)[kv_head];
}

/* Checks that n more tokens fit a layer. */
static ag_status check_space(const ag_kv_cache *c, uint32_t layer, size_t n, ag_error *err) {
    const uint32_t used = ag_kv_layer_length(c, layer), max = c->at[layer].max_slots;
    if (n <= max - used) return AG_OK;
    return AG_FAIL(err, LIMIT,
                   "the KV cache is full: it holds %u of %u tokens, %zu more do not fit", used, max,
                   n);
}

ag_status ag_kv_caches_reserve(const ag_kv_growth *grow, size_t n_caches, ag_error *err) {
    for (size_t i = 0; i < n_caches; i++) {
        const ag_kv_cache *c = grow[i].cache;
        for (uint32_t l = 0; l < c->params.n_layers; l++) AG_TRY(check_space(c, l, grow[i].n, err));
    }
    return ag_kv_reserve_slots(grow, n_caches, err);
}

ag_status ag_kv_cache_reserve(ag_kv_cache *c, uint32_t n, ag_error *err) {
    return ag_kv_caches_reserve(&(ag_kv_growth){.cache = c, .n = n}, 1, err);
}

void ag_kv_cache_get_view(const ag_kv_cache *c, uint32_t layer, ag_kv_view *out) {
    *out = (ag_kv_view){
        .k_type = c->params.k_type,
        .v_type = c->params.v_type,
        .n_kv_heads = c->params.layers[layer].n_kv_heads,
        .head_dim = c->params.layers[layer].head_dim,
        .v_offset = c->at[layer].part.v_offset,
        .p_offset = c->at[layer].part.p_offset,
        .blocks = ag_kv_block_of(c, layer, 0, 0),
        .blocks_per_head = c->at[layer].max_blocks,
        .n_slots = ag_kv_slots_of(c, layer),
    };
}

static ag_status check_new_positions(const ag_kv_cache *c, uint32_t layer,
                                     const uint32_t *positions, size_t n, ag_error *err) {
    const uint32_t *slots = ag_kv_slots_of(c, layer), *last = ag_kv_last_of(c, layer);
    for (uint32_t h = 0, n_heads = ag_kv_heads_of(c, layer); h < n_heads; h++) {
        if (slots[h] && last[h] >= positions[0]) {
            return AG_FAIL(err, INVALID, "cannot append position %u: the cache ends at position %u",
                           positions[0], last[h]);
        }
    }
    for (size_t i = 1; i < n; i++) {
        if (positions[i] <= positions[i - 1]) {
            return AG_FAIL(err, INVALID,
                           "cannot append position %u after %u: positions must ascend",
                           positions[i], positions[i - 1]);
        }
    }
    return AG_OK;
}

/* Counts n slots that have been written in every head of a layer. */
static void count_slots(ag_kv_cache *c, uint32_t layer, uint32_t n, const uint32_t *positions) {
    uint32_t *slots = ag_kv_slots_of(c, layer), *last = ag_kv_last_of(c, layer);
    for (uint32_t h = 0, n_heads = ag_kv_heads_of(c, layer); h < n_heads; h++) {
        const uint32_t before = slots[h] / AG_KV_BLOCK, now = (slots[h] + n) / AG_KV_BLOCK;
        ag_kv_record_positions(c, layer, h, slots[h], positions, n);
        if (before < now) ag_kv_fill_blocks(c, layer, h, before, now);
        slots[h] += n;
        last[h] = positions[n - 1];
    }
}

ag_status ag_kv_cache_begin_update(ag_kv_cache *c, uint32_t layer, const uint32_t *positions,
                                   size_t n, ag_error *err) {
    AG_TRY(check_space(c, layer, n, err));
    if (!n) return AG_OK;
    AG_TRY(check_new_positions(c, layer, positions, n, err));
    const ag_status st = ag_kv_own_slots(c, layer, (uint32_t)n, err);
    if (st != AG_OK) ag_kv_cache_cancel_update(c, layer);
    return st;
}

void ag_kv_cache_end_update(ag_kv_cache *c, uint32_t layer, const uint32_t *positions, size_t n) {
    if (n) count_slots(c, layer, (uint32_t)n, positions);
}

void ag_kv_cache_cancel_update(ag_kv_cache *c, uint32_t layer) {
    ag_kv_drop_tail(c, layer);
    ag_kv_trim_pools(c);
}

ag_status ag_kv_cache_update(ag_kv_cache *c, uint32_t layer, const ag_tensor *k, const ag_tensor *v,
                             const uint32_t *positions, ag_error *err) {
    if (layer >= c->params.n_layers) {
        return AG_FAIL(err, INVALID, "layer %u does not exist: the cache has %u layers", layer,
                       c->params.n_layers);
    }
    const size_t n = k->shape.dim[0];
    ag_kv_view view;
    AG_TRY(ag_kv_cache_begin_update(c, layer, positions, n, err));
    ag_kv_cache_get_view(c, layer, &view);
    const ag_status st =
        ag_take_error(c->backend, n ? ag_kv_write(c->backend, &view, k, v, positions) : AG_OK, err);
    if (st == AG_OK) ag_kv_cache_end_update(c, layer, positions, n);
    else ag_kv_cache_cancel_update(c, layer);
    return st;
}

ag_status ag_kv_cache_own_next(ag_kv_cache *c, ag_error *err) {
    AG_TRY(ag_kv_cache_reserve(c, 1, err));
    for (uint32_t l = 0; l < c->params.n_layers; l++) AG_TRY(ag_kv_own_slots(c, l, 1, err));
    return AG_OK;
}

void ag_kv_cache_appended(ag_kv_cache *c, uint32_t position) {
    for (uint32_t l = 0; l < c->params.n_layers; l++) count_slots(c, l, 1, &position);
}

void ag_kv_cache_clear(ag_kv_cache *c) {
    memset(c->n_slots, 0, c->totals.heads * sizeof *c->n_slots);
    memset(c->expired, 0, c->params.n_layers * sizeof *c->expired);
    c->unrotated.moved_by = 0;
    c->unrotated.n = c->params.n_protected;
    ag_kv_unrotated_forget(c, 0);
    ag_kv_drop_all_blocks(c);
}

ag_status ag_kv_cache_share(ag_kv_cache *to, ag_kv_cache *from, ag_error *err) {
    ag_kv_share_blocks(to, from);
    const size_t n = from->totals.heads;
    memcpy(to->n_slots, from->n_slots, n * sizeof *to->n_slots);
    memcpy(to->last, from->last, n * sizeof *to->last);
    memcpy(to->expired, from->expired, from->params.n_layers * sizeof *to->expired);
    ag_kv_copy_positions(to, from);
    return ag_kv_unrotated_copy(to, from, err);
}

ag_status ag_kv_cache_fork(ag_kv_cache *c, ag_kv_cache **out, ag_error *err) {
    AG_TRY(ag_kv_cache_create(c->backend, &c->params, out, err));
    ag_status st = ag_kv_cache_share(*out, c, err);
    if (st == AG_OK) return AG_OK;
    ag_kv_cache_destroy(*out);
    *out = NULL;
    return st;
}

size_t ag_kv_cache_capacity_bytes(const ag_kv_cache *c) {
    return ag_kv_cache_plan_bytes(&c->params);
}
