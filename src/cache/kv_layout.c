/* SPDX-License-Identifier: Apache-2.0 */
/* Layout and size of the slots of each layer, from parameters alone or in a cache. */
#include "cache/kv_cache_impl.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <string.h>

ag_kv_layer ag_kv_layer_of(const ag_kv_params *p, uint32_t layer) {
    if (p->layers) return p->layers[layer];
    return (ag_kv_layer){.n_kv_heads = p->n_kv_heads, .head_dim = p->head_dim};
}

/* ---- parameters ---- */

static ag_status check_layer(const ag_kv_params *p, uint32_t layer, ag_error *err) {
    enum { LIMIT = 1 << 20 };
    const ag_kv_layer at = ag_kv_layer_of(p, layer);
    if (!at.n_kv_heads || !at.head_dim || at.n_kv_heads > LIMIT || at.head_dim > LIMIT) {
        return AG_FAIL(err, INVALID, "KV cache: %u heads of size %u in layer %u are out of range",
                       at.n_kv_heads, at.head_dim, layer);
    }
    const ag_dtype types[] = {p->k_type, p->v_type};
    for (int i = 0; i < 2; i++) {
        if (at.head_dim % ag_dtype_block(types[i])) {
            return AG_FAIL(
                err, UNSUPPORTED,
                "KV cache type %s: the head size must be a multiple of %zu, this model has %u",
                ag_dtype_name(types[i]), ag_dtype_block(types[i]), at.head_dim);
        }
    }
    return AG_OK;
}

static ag_status check_kv_params(const ag_kv_params *p, ag_error *err) {
    enum { LIMIT = 1 << 20 };
    if (!p->n_layers || p->n_layers > LIMIT) {
        return AG_FAIL(err, INVALID, "KV cache: %u layers are out of range (%u heads of size %u)",
                       p->n_layers, p->n_kv_heads, p->head_dim);
    }
    if (!p->max_slots || p->max_slots > UINT32_MAX / 2) {
        return AG_FAIL(err, INVALID, "KV cache: %u slots are out of range", p->max_slots);
    }
    const ag_dtype types[] = {p->k_type, p->v_type};
    for (int i = 0; i < 2; i++) {
        if (ag_dtype_may_be(types[i], AG_DTYPE_CACHE)) continue;
        char known[AG_DTYPE_LIST];
        return AG_FAIL(err, UNSUPPORTED, "KV cache type %s: not supported; use one of %s",
                       ag_dtype_name(types[i]), ag_dtype_list(AG_DTYPE_CACHE, known, sizeof known));
    }
    for (uint32_t l = 0; l < p->n_layers; l++) AG_TRY(check_layer(p, l, err));
    return AG_OK;
}

/* ---- layers ---- */

/* Returns the layout of a layer, without `first`. */
static ag_kv_layout layout_of(const ag_kv_params *p, uint32_t layer) {
    const ag_kv_layer kv_layer = ag_kv_layer_of(p, layer);
    ag_kv_layout at = {
        .part = ag_kv_sections_of(p->k_type, p->v_type, kv_layer.head_dim),
        .max_slots = p->max_slots,
        .max_blocks = ag_kv_blocks_for(p->max_slots),
    };
    if (kv_layer.window && kv_layer.window < p->max_slots) {
        const bool is_bounded = p->step_rows && p->step_rows < p->max_slots;
        at.window_blocks = ag_kv_blocks_for(kv_layer.window) + 1;
        at.max_blocks =
            at.window_blocks + ag_kv_blocks_for(is_bounded ? p->step_rows : p->max_slots);
        at.max_slots = at.max_blocks * AG_KV_BLOCK;
    }
    at.row_bytes = kv_layer.n_kv_heads * at.part.bytes;
    return at;
}

ag_kv_totals ag_kv_totals_of(const ag_kv_params *p) {
    ag_kv_totals e = {0};
    for (uint32_t l = 0; l < p->n_layers; l++) {
        const ag_kv_layer kv_layer = ag_kv_layer_of(p, l);
        const ag_kv_layout at = layout_of(p, l);
        const size_t slots = (size_t)kv_layer.n_kv_heads * at.max_slots;
        if (kv_layer.n_kv_heads > e.max_heads) e.max_heads = kv_layer.n_kv_heads;
        if (kv_layer.head_dim > e.max_dim) e.max_dim = kv_layer.head_dim;
        if (at.max_slots > e.max_slots) e.max_slots = at.max_slots;
        if (slots > e.max_head_slots) e.max_head_slots = slots;
        e.heads += kv_layer.n_kv_heads;
        e.head_slots += slots;
        e.key_values += (size_t)kv_layer.n_kv_heads * kv_layer.head_dim;
    }
    return e;
}

size_t ag_kv_cache_plan_bytes(const ag_kv_params *params) {
    size_t sum = 0;
    if (check_kv_params(params, NULL) != AG_OK) return 0;
    for (uint32_t l = 0; l < params->n_layers; l++) {
        const ag_kv_layout at = layout_of(params, l);
        if (at.max_blocks > (SIZE_MAX / 2 - sum) / at.row_bytes) return 0;
        sum += at.max_blocks * at.row_bytes;
    }
    return sum;
}

size_t ag_kv_bytes_of_tokens(const ag_kv_params *p, uint32_t n_blocks) {
    size_t sum = 0;
    for (uint32_t l = 0; l < p->n_layers; l++) {
        const ag_kv_layout at = layout_of(p, l);
        const uint32_t n =
            at.window_blocks && at.window_blocks < n_blocks ? at.window_blocks : n_blocks;
        if (n > (SIZE_MAX - sum) / at.row_bytes) return SIZE_MAX;
        sum += n * at.row_bytes;
    }
    return sum;
}

/* ---- in a cache ---- */

ag_status ag_kv_layouts_create(ag_kv_cache *c, const ag_kv_params *params, ag_error *err) {
    AG_TRY(check_kv_params(params, err));
    const uint32_t n = params->n_layers;
    if (!ag_kv_cache_plan_bytes(params)) {
        return AG_FAIL(err, NOMEM,
                       "KV cache of %u slots in %u layers: larger than the address space",
                       params->max_slots, n);
    }
    ag_kv_layer *layers = ag_calloc(n, sizeof *layers);
    c->params = *params;
    c->params.layers = layers;
    c->at = ag_calloc(n + 1, sizeof *c->at);
    if (!layers || !c->at) return AG_FAIL(err, NOMEM, "layouts of %u layers", n);
    for (uint32_t l = 0; l < n; l++) {
        layers[l] = ag_kv_layer_of(params, l);
        const ag_kv_layout before = c->at[l];
        ag_kv_layout *at = &c->at[l], *next = &c->at[l + 1];
        *at = layout_of(params, l);
        at->first = next->first = before.first;
        next->first.head += layers[l].n_kv_heads;
        next->first.block += (size_t)layers[l].n_kv_heads * at->max_blocks;
        next->first.key_value += (size_t)layers[l].n_kv_heads * layers[l].head_dim;
        next->first.head_slot += (size_t)layers[l].n_kv_heads * at->max_slots;
    }
    c->totals = ag_kv_totals_of(params);
    return AG_OK;
}

void ag_kv_layouts_release(ag_kv_cache *c) {
    ag_free((void *)(uintptr_t)c->params.layers);
    ag_free(c->at);
}
