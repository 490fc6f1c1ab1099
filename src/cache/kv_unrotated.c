/* SPDX-License-Identifier: Apache-2.0 */
/* Rotates the protected keys (attention sinks) again past the trained length, so that the newest
 * query stays within trained distances. Rotates copies that were never rotated: rotating a
 * quantised key twice would lose precision. */
#include "cache/kv_cache_impl.h"
#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/fail.h"
#include "core/hadamard.h"
#include "quant/quant.h"

#include <math.h>
#include <string.h>

/* Returns the floats of a layer's copies. */
static size_t layer_floats(const ag_kv_cache *c, uint32_t layer) {
    const ag_kv_layer *kv_layer = &c->params.layers[layer];
    return (size_t)c->params.n_protected * kv_layer->n_kv_heads * kv_layer->head_dim;
}

/* Returns the floats of the copies of all layers before. */
static size_t floats_before(const ag_kv_cache *c, uint32_t layer) {
    return c->params.n_protected * c->at[layer].first.key_value;
}

/* Allocates the copies: on the device if the backend rotates, else on the host with scratch for
 * rotating. */
static ag_status make_copies(ag_kv_cache *c, size_t floats, ag_error *err) {
    const ag_kv_params *p = &c->params;
    ag_kv_unrotated *u = &c->unrotated;
    if (ag_has_kv_rerotate(c->backend)) {
        u->slots = ag_calloc(c->totals.heads, p->n_protected * sizeof *u->slots);
        if (!u->slots) return AG_FAIL(err, NOMEM, "slots of %u protected tokens", p->n_protected);
        return ag_memory_alloc(ag_backend_memory(c->backend), floats * sizeof *u->keys,
                               AG_USAGE_SCRATCH, &u->device, err);
    }
    u->keys = ag_calloc(floats, sizeof *u->keys);
    u->key = ag_calloc(c->totals.max_dim, sizeof *u->key);
    u->row = ag_malloc(ag_dtype_row_bytes(p->k_type, c->totals.max_dim));
    if (u->keys && u->key && u->row) return AG_OK;
    return AG_FAIL(err, NOMEM, "protected keys of %zu values", floats);
}

ag_status ag_kv_unrotated_create(ag_kv_cache *c, ag_error *err) {
    const ag_kv_params *p = &c->params;
    ag_kv_unrotated *u = &c->unrotated;
    u->n = p->n_protected;
    if (!p->n_protected) return AG_OK;
    const size_t values = c->totals.key_values;
    u->known = ag_calloc((size_t)p->n_layers * p->n_protected, sizeof *u->known);
    u->cos_sin = ag_calloc((size_t)p->n_protected * c->totals.max_dim, sizeof *u->cos_sin);
    if (!u->known || !u->cos_sin || p->n_protected > SIZE_MAX / sizeof(float) / values) {
        return AG_FAIL(err, NOMEM, "keys of %u protected tokens in %u layers", p->n_protected,
                       p->n_layers);
    }
    return make_copies(c, p->n_protected * values, err);
}

size_t ag_kv_unrotated_bytes(const ag_kv_params *p) {
    const size_t values = ag_kv_totals_of(p).key_values;
    return p->n_protected * (values * sizeof(float) + p->n_layers * sizeof(bool));
}

void ag_kv_unrotated_release(ag_kv_cache *c) {
    ag_free(c->unrotated.keys);
    ag_buffer_release(&c->unrotated.device);
    ag_free(c->unrotated.slots);
    ag_free(c->unrotated.known);
    ag_free(c->unrotated.key);
    ag_free(c->unrotated.row);
    ag_free(c->unrotated.cos_sin);
}

/* Makes a tensor of n bytes of the copies, from byte `first` of layer `layer` on. */
static ag_status copies_tensor(ag_tensor *out, const ag_kv_cache *c, uint32_t layer, size_t first,
                               size_t n, ag_error *err) {
    const size_t at = (floats_before(c, layer) + first) * sizeof(float);
    return ag_tensor_make(out, AG_U8, ag_shape_1d(n), c->unrotated.device, at, err);
}

ag_status ag_kv_unrotated_copy(ag_kv_cache *to, const ag_kv_cache *from, ag_error *err) {
    const ag_kv_params *p = &from->params;
    const size_t n = (size_t)p->n_layers * p->n_protected;
    const size_t bytes = floats_before(from, p->n_layers) * sizeof(float);
    to->unrotated.moved_by = from->unrotated.moved_by;
    to->unrotated.n = from->unrotated.n;
    if (!n) return AG_OK;
    memcpy(to->unrotated.known, from->unrotated.known, n * sizeof *to->unrotated.known);
    if (!from->unrotated.device) {
        memcpy(to->unrotated.keys, from->unrotated.keys, bytes);
        return AG_OK;
    }
    ag_tensor dst, src;
    AG_TRY(copies_tensor(&dst, to, 0, 0, bytes, err));
    AG_TRY(copies_tensor(&src, from, 0, 0, bytes, err));
    return ag_take_error(to->backend, ag_copy_slice(to->backend, &dst, 0, &src, 0, bytes), err);
}

ag_status ag_kv_unrotated_read(const ag_kv_cache *c, uint32_t layer, float *keys, ag_error *err) {
    const ag_kv_unrotated *u = &c->unrotated;
    const size_t at = floats_before(c, layer), bytes = layer_floats(c, layer) * sizeof *keys;
    if (u->device) return ag_buffer_download(keys, u->device, at * sizeof *keys, bytes, err);
    memcpy(keys, u->keys + at, bytes);
    return AG_OK;
}

ag_status ag_kv_unrotated_write(ag_kv_cache *c, uint32_t layer, const float *keys, ag_error *err) {
    const ag_kv_unrotated *u = &c->unrotated;
    const size_t at = floats_before(c, layer), bytes = layer_floats(c, layer) * sizeof *keys;
    if (u->device) return ag_buffer_upload(u->device, at * sizeof *keys, keys, bytes, err);
    memcpy(u->keys + at, keys, bytes);
    return AG_OK;
}

void ag_kv_unrotated_forget(ag_kv_cache *c, uint32_t position) {
    const ag_kv_params *p = &c->params;
    for (uint32_t l = 0; l < p->n_layers; l++) {
        for (uint32_t i = position; i < p->n_protected; i++) {
            c->unrotated.known[(size_t)l * p->n_protected + i] = false;
        }
    }
}

void ag_kv_cache_protect(ag_kv_cache *c, uint32_t n) {
    ag_kv_unrotated_forget(c, n);
    c->unrotated.n = n;
}

uint32_t ag_kv_cache_protected(const ag_kv_cache *c) { return c->unrotated.n; }

ag_status ag_kv_cache_keep_unrotated(ag_kv_cache *c, uint32_t layer, const ag_tensor *k,
                                     const uint32_t *positions, ag_error *err) {
    const ag_kv_params *p = &c->params;
    const ag_kv_unrotated *u = &c->unrotated;
    const size_t row = (size_t)p->layers[layer].n_kv_heads * p->layers[layer].head_dim;
    size_t n = 0;
    while (n < k->shape.dim[0] && positions[n] < u->n) n++;
    /* Consecutive positions are contiguous in both buffers. */
    for (size_t i = 0, run; i < n; i += run) {
        run = 1;
        while (i + run < n && positions[i + run] == positions[i] + run) run++;
        const size_t first = positions[i] * row, bytes = run * row * sizeof(float);
        const size_t from = k->offset + i * row * sizeof(float);
        if (u->device) {
            ag_tensor dst, src;
            AG_TRY(copies_tensor(&dst, c, layer, first, bytes, err));
            AG_TRY(ag_tensor_make(&src, AG_U8, ag_shape_1d(bytes), k->buffer, from, err));
            AG_TRY(
                ag_take_error(c->backend, ag_copy_slice(c->backend, &dst, 0, &src, 0, bytes), err));
        } else {
            AG_TRY(ag_buffer_download(u->keys + floats_before(c, layer) + first, k->buffer, from,
                                      bytes, err));
        }
        for (size_t t = 0; t < run; t++) {
            u->known[(size_t)layer * p->n_protected + positions[i] + t] = true;
        }
    }
    return AG_OK;
}

/* Rotates one key by the angles in cos_sin and stores it in the cache's type in u->row. */
static ag_status quantise_rotated(ag_kv_cache *c, uint32_t layer, const float *key,
                                  const float *cos_sin, uint32_t n_rotated, ag_error *err) {
    const ag_kv_params *p = &c->params;
    const size_t half = n_rotated / 2, dim = p->layers[layer].head_dim;
    float *x = c->unrotated.key;
    size_t bad;
    for (size_t i = 0; i < half; i++) {
        x[i] = key[i] * cos_sin[2 * i] - key[i + half] * cos_sin[2 * i + 1];
        x[i + half] = key[i + half] * cos_sin[2 * i] + key[i] * cos_sin[2 * i + 1];
    }
    memcpy(x + n_rotated, key + n_rotated, (dim - n_rotated) * sizeof *x);
    if (p->hadamard) ag_hadamard(x, 1, dim);
    if (ag_quantize_row(p->k_type, c->unrotated.row, x, dim, AG_ROUND_KV, &bad) == AG_OK) {
        return AG_OK;
    }
    return AG_FAIL(err, FORMAT,
                   "cannot store a protected key: component %zu is out of the type's range", bad);
}

static ag_status rerotate_head(ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t n_rotated,
                               ag_error *err) {
    const ag_kv_params *p = &c->params;
    const ag_kv_unrotated *u = &c->unrotated;
    const size_t dim = p->layers[layer].head_dim, k_row = c->at[layer].part.k_row;
    const float *keys = u->keys + floats_before(c, layer);
    for (uint32_t slot = 0; slot < ag_kv_slots_of(c, layer)[head]; slot++) {
        uint32_t position = ag_kv_cache_position(c, layer, head, slot);
        if (position >= p->n_protected) break;
        if (!u->known[(size_t)layer * p->n_protected + position]) continue;
        AG_TRY(ag_kv_own_blocks(c, layer, head, slot / AG_KV_BLOCK, slot / AG_KV_BLOCK + 1, err));
        const float *key = keys + ((size_t)position * ag_kv_heads_of(c, layer) + head) * dim;
        const float *cos_sin = u->cos_sin + (size_t)position * n_rotated;
        AG_TRY(quantise_rotated(c, layer, key, cos_sin, n_rotated, err));
        const ag_kv_block *b = ag_kv_block_of(c, layer, head, slot / AG_KV_BLOCK);
        const size_t at = b->offset + slot % AG_KV_BLOCK * k_row;
        AG_TRY(ag_buffer_upload(b->buffer, at, u->row, k_row, err));
    }
    return AG_OK;
}

/* Lists the slots that the known copies of a head go to. Raises *end to the end of these slots. */
static void list_slots(ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t *end) {
    const ag_kv_params *p = &c->params;
    const ag_kv_unrotated *u = &c->unrotated;
    uint32_t *slots = u->slots + (c->at[layer].first.head + head) * p->n_protected;
    memset(slots, 0xff, p->n_protected * sizeof *slots);
    for (uint32_t slot = 0; slot < ag_kv_slots_of(c, layer)[head]; slot++) {
        uint32_t position = ag_kv_cache_position(c, layer, head, slot);
        if (position >= p->n_protected) break;
        if (!u->known[(size_t)layer * p->n_protected + position]) continue;
        slots[position] = slot;
        if (slot >= *end) *end = slot + 1;
    }
}

/* Rotates layers [first, end), which have equal parameters, in the backend. */
static ag_status rerotate_in_place(ag_kv_cache *c, uint32_t first, uint32_t end, uint32_t n_rotated,
                                   ag_error *err) {
    const ag_kv_params *p = &c->params;
    const ag_kv_unrotated *u = &c->unrotated;
    uint32_t max_blocks = 0;
    for (uint32_t l = first; l < end; l++) {
        for (uint32_t h = 0; h < ag_kv_heads_of(c, l); h++) {
            uint32_t n_slots = 0;
            list_slots(c, l, h, &n_slots);
            const uint32_t n_blocks = ag_kv_blocks_for(n_slots);
            AG_TRY(ag_kv_own_blocks(c, l, h, 0, n_blocks, err));
            if (n_blocks > max_blocks) max_blocks = n_blocks;
        }
    }
    const ag_kv_rerotate args = {
        .blocks = ag_kv_block_of(c, first, 0, 0),
        .n_blocks = max_blocks,
        .blocks_per_head = c->at[first].max_blocks,
        .n_layers = end - first,
        .n_kv_heads = p->layers[first].n_kv_heads,
        .head_dim = p->layers[first].head_dim,
        .n_rotated = n_rotated,
        .n_positions = p->n_protected,
        .k_type = p->k_type,
        .hadamard = p->hadamard,
        .keys = u->device,
        .keys_at = floats_before(c, first) * sizeof(float),
        .cos_sin = u->cos_sin,
        .slots = u->slots + c->at[first].first.head * p->n_protected,
    };
    return max_blocks ? ag_take_error(c->backend, ag_rerotate_keys(c->backend, &args), err) : AG_OK;
}

static ag_status rerotate_on_host(ag_kv_cache *c, uint32_t first, uint32_t end, uint32_t n_rotated,
                                  ag_error *err) {
    for (uint32_t l = first; l < end; l++) {
        for (uint32_t h = 0; h < ag_kv_heads_of(c, l); h++) {
            AG_TRY(rerotate_head(c, l, h, n_rotated, err));
        }
    }
    return AG_OK;
}

/* Computes the angles of every protected position, shifted by `shift`. */
static void find_angles(ag_kv_cache *c, const ag_rope_table *t, uint32_t shift) {
    for (uint32_t i = 0; i < c->params.n_protected; i++) {
        for (uint32_t d = 0; d < t->n_rotated / 2; d++) {
            double angle = ((double)i + shift) * t->inv_freq[d];
            float *at = c->unrotated.cos_sin + (size_t)i * t->n_rotated + 2 * d;
            at[0] = t->factor * (float)cos(angle);
            at[1] = t->factor * (float)sin(angle);
        }
    }
}

/* Returns the first layer after `layer` whose parameters differ from it. */
static uint32_t end_of_run(const ag_kv_cache *c, const ag_rope_table *rope, uint32_t layer) {
    const ag_kv_layer *kv_layer = &c->params.layers[layer];
    uint32_t l = layer + 1;
    for (; l < c->params.n_layers; l++) {
        const ag_kv_layer *next = &c->params.layers[l];
        if (rope[l].inv_freq != rope[layer].inv_freq || next->n_kv_heads != kv_layer->n_kv_heads ||
            rope[l].n_rotated != rope[layer].n_rotated || rope[l].factor != rope[layer].factor ||
            next->head_dim != kv_layer->head_dim ||
            c->at[l].max_blocks != c->at[layer].max_blocks) {
            break;
        }
    }
    return l;
}

ag_status ag_kv_cache_rerotate(ag_kv_cache *c, const ag_rope_table *rope, uint32_t newest,
                               uint32_t trained, ag_error *err) {
    ag_kv_unrotated *u = &c->unrotated;
    uint32_t shift = newest >= trained ? newest - (trained - 1) : 0;
    if (!c->params.n_protected || shift == u->moved_by) return AG_OK;
    for (uint32_t l = 0, end; l < c->params.n_layers; l = end) {
        end = end_of_run(c, rope, l);
        if (!rope[l].inv_freq) continue;
        find_angles(c, &rope[l], shift);
        AG_TRY(
            (u->device ? rerotate_in_place : rerotate_on_host)(c, l, end, rope[l].n_rotated, err));
    }
    u->moved_by = shift;
    return AG_OK;
}
