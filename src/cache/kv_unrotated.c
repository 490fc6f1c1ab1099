/* SPDX-License-Identifier: Apache-2.0 */
/* The protected prefix past the trained length: its keys are rotated anew, from copies that were
 * never rotated, so that the newest query stays within the distances the model has seen. Nothing
 * else is rotated twice: a quantised key would lose its value. */
#include "cache/kv_cache_impl.h"
#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/fail.h"
#include "core/hadamard.h"
#include "quant/quant.h"

#include <math.h>
#include <string.h>

/* Floats of a layer's copies. */
static size_t layer_floats(const ag_kv_params *p) {
    return (size_t)p->n_protected * p->n_kv_heads * p->head_dim;
}

/* The copies lie beside the cache, or on the host with what turning them there needs. */
static ag_status make_room(ag_kv_cache *c, size_t floats, ag_error *err) {
    const ag_kv_params *p = &c->params;
    ag_kv_unrotated *u = &c->unrotated;
    if (ag_has_kv_turn(c->backend)) {
        u->slots =
            ag_calloc((size_t)p->n_layers * p->n_protected, p->n_kv_heads * sizeof *u->slots);
        if (!u->slots) return AG_FAIL(err, NOMEM, "slots of %u protected tokens", p->n_protected);
        return ag_memory_alloc(ag_backend_memory(c->backend), floats * sizeof *u->keys,
                               AG_USAGE_SCRATCH, &u->held, err);
    }
    u->keys = ag_calloc(floats, sizeof *u->keys);
    u->key = ag_calloc(p->head_dim, sizeof *u->key);
    u->row = ag_malloc(c->at.k_row);
    if (u->keys && u->key && u->row) return AG_OK;
    return AG_FAIL(err, NOMEM, "copies of %zu values of protected keys", floats);
}

ag_status ag_kv_unrotated_create(ag_kv_cache *c, ag_error *err) {
    const ag_kv_params *p = &c->params;
    if (!p->n_protected) return AG_OK;
    ag_kv_unrotated *u = &c->unrotated;
    size_t n = (size_t)p->n_layers * p->n_protected, row = (size_t)p->n_kv_heads * p->head_dim;
    u->known = ag_calloc(n, sizeof *u->known);
    u->cos_sin = ag_calloc((size_t)p->n_protected * p->head_dim, sizeof *u->cos_sin);
    if (!u->known || !u->cos_sin || n > SIZE_MAX / sizeof(float) / row) {
        return AG_FAIL(err, NOMEM, "copies of %u protected tokens in %u layers", p->n_protected,
                       p->n_layers);
    }
    return make_room(c, n * row, err);
}

size_t ag_kv_unrotated_bytes(const ag_kv_params *p) {
    size_t keys = (size_t)p->n_layers * p->n_protected;
    return keys * ((size_t)p->n_kv_heads * p->head_dim * sizeof(float) + sizeof(bool));
}

void ag_kv_unrotated_release(ag_kv_cache *c) {
    ag_free(c->unrotated.keys);
    ag_buffer_release(&c->unrotated.held);
    ag_free(c->unrotated.slots);
    ag_free(c->unrotated.known);
    ag_free(c->unrotated.key);
    ag_free(c->unrotated.row);
    ag_free(c->unrotated.cos_sin);
}

/* n bytes of the copies of layer `layer`, and of those behind it, as a tensor. */
static ag_status part_of(ag_tensor *out, const ag_kv_cache *c, uint32_t layer, size_t first,
                         size_t n, ag_error *err) {
    const size_t at = (layer * layer_floats(&c->params) + first) * sizeof(float);
    return ag_tensor_make(out, AG_U8, ag_shape_1d(n), c->unrotated.held, at, err);
}

ag_status ag_kv_unrotated_copy(ag_kv_cache *to, const ag_kv_cache *from, ag_error *err) {
    const ag_kv_params *p = &from->params;
    const size_t n = (size_t)p->n_layers * p->n_protected;
    const size_t bytes = p->n_layers * layer_floats(p) * sizeof(float);
    to->unrotated.turned_by = from->unrotated.turned_by;
    if (!n) return AG_OK;
    memcpy(to->unrotated.known, from->unrotated.known, n * sizeof *to->unrotated.known);
    if (!from->unrotated.held) {
        memcpy(to->unrotated.keys, from->unrotated.keys, bytes);
        return AG_OK;
    }
    ag_tensor dst, src;
    AG_TRY(part_of(&dst, to, 0, 0, bytes, err));
    AG_TRY(part_of(&src, from, 0, 0, bytes, err));
    return ag_take_error(to->backend, ag_copy_slice(to->backend, &dst, 0, &src, 0, bytes), err);
}

ag_status ag_kv_unrotated_read(const ag_kv_cache *c, uint32_t layer, float *keys, ag_error *err) {
    const ag_kv_unrotated *u = &c->unrotated;
    const size_t n = layer_floats(&c->params), bytes = n * sizeof *keys;
    if (u->held) return ag_buffer_download(keys, u->held, layer * bytes, bytes, err);
    memcpy(keys, u->keys + layer * n, bytes);
    return AG_OK;
}

ag_status ag_kv_unrotated_write(ag_kv_cache *c, uint32_t layer, const float *keys, ag_error *err) {
    const ag_kv_unrotated *u = &c->unrotated;
    const size_t n = layer_floats(&c->params), bytes = n * sizeof *keys;
    if (u->held) return ag_buffer_upload(u->held, layer * bytes, keys, bytes, err);
    memcpy(u->keys + layer * n, keys, bytes);
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

ag_status ag_kv_cache_keep_unrotated(ag_kv_cache *c, uint32_t layer, const ag_tensor *k,
                                     const uint32_t *positions, ag_error *err) {
    const ag_kv_params *p = &c->params;
    const ag_kv_unrotated *u = &c->unrotated;
    const size_t row = (size_t)p->n_kv_heads * p->head_dim;
    size_t n = 0;
    while (n < k->shape.dim[0] && positions[n] < p->n_protected) n++;
    /* Positions that follow one another lie so in both places. */
    for (size_t i = 0, run; i < n; i += run) {
        run = 1;
        while (i + run < n && positions[i + run] == positions[i] + run) run++;
        const size_t first = positions[i] * row, bytes = run * row * sizeof(float);
        const size_t from = k->offset + i * row * sizeof(float);
        if (u->held) {
            ag_tensor dst, src;
            AG_TRY(part_of(&dst, c, layer, first, bytes, err));
            AG_TRY(ag_tensor_make(&src, AG_U8, ag_shape_1d(bytes), k->buffer, from, err));
            AG_TRY(
                ag_take_error(c->backend, ag_copy_slice(c->backend, &dst, 0, &src, 0, bytes), err));
        } else {
            AG_TRY(ag_buffer_download(u->keys + layer * layer_floats(p) + first, k->buffer, from,
                                      bytes, err));
        }
        for (size_t t = 0; t < run; t++) {
            u->known[(size_t)layer * p->n_protected + positions[i] + t] = true;
        }
    }
    return AG_OK;
}

/* out = key at the position whose angles cos_sin holds, as the cache keeps it. */
static ag_status rotate(ag_kv_cache *c, const float *key, const float *cos_sin, ag_error *err) {
    const ag_kv_params *p = &c->params;
    float *x = c->unrotated.key;
    size_t half = p->head_dim / 2, bad;
    for (size_t i = 0; i < half; i++) {
        x[i] = key[i] * cos_sin[2 * i] - key[i + half] * cos_sin[2 * i + 1];
        x[i + half] = key[i + half] * cos_sin[2 * i] + key[i] * cos_sin[2 * i + 1];
    }
    if (p->hadamard) ag_hadamard(x, 1, p->head_dim);
    if (ag_quantize_row(p->k_type, c->unrotated.row, x, p->head_dim, AG_ROUND_KV, &bad) == AG_OK) {
        return AG_OK;
    }
    return AG_FAIL(err, FORMAT, "component %zu of a protected key cannot be kept", bad);
}

static ag_status turn_head(ag_kv_cache *c, uint32_t layer, uint32_t head, ag_error *err) {
    const ag_kv_params *p = &c->params;
    const ag_kv_unrotated *u = &c->unrotated;
    for (uint32_t slot = 0; slot < ag_kv_slots_of(c, layer)[head]; slot++) {
        uint32_t position = ag_kv_cache_position(c, layer, head, slot);
        if (position >= p->n_protected) break;
        size_t at = (size_t)layer * p->n_protected + position;
        if (!u->known[at]) continue;
        AG_TRY(ag_kv_own_blocks(c, layer, slot / AG_KV_BLOCK, slot / AG_KV_BLOCK + 1, err));
        const float *key = u->keys + (at * p->n_kv_heads + head) * p->head_dim;
        AG_TRY(rotate(c, key, u->cos_sin + (size_t)position * p->head_dim, err));
        const ag_kv_block *b =
            &c->blocks[(size_t)layer * c->at.blocks_per_layer + slot / AG_KV_BLOCK];
        size_t row = (size_t)head * AG_KV_BLOCK + slot % AG_KV_BLOCK;
        AG_TRY(
            ag_buffer_upload(b->buffer, b->offset + row * c->at.k_row, u->row, c->at.k_row, err));
    }
    return AG_OK;
}

static ag_status turn_on_host(ag_kv_cache *c, ag_error *err) {
    for (uint32_t l = 0; l < c->params.n_layers; l++) {
        for (uint32_t h = 0; h < c->params.n_kv_heads; h++) AG_TRY(turn_head(c, l, h, err));
    }
    return AG_OK;
}

/* Where a head's known copies go; *end: behind the last slot. */
static void list_head(ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t *end) {
    const ag_kv_params *p = &c->params;
    const ag_kv_unrotated *u = &c->unrotated;
    uint32_t *slots = u->slots + ((size_t)layer * p->n_kv_heads + head) * p->n_protected;
    memset(slots, 0xff, p->n_protected * sizeof *slots);
    for (uint32_t slot = 0; slot < ag_kv_slots_of(c, layer)[head]; slot++) {
        uint32_t position = ag_kv_cache_position(c, layer, head, slot);
        if (position >= p->n_protected) break;
        if (!u->known[(size_t)layer * p->n_protected + position]) continue;
        slots[position] = slot;
        if (slot >= *end) *end = slot + 1;
    }
}

static ag_status turn_in_place(ag_kv_cache *c, ag_error *err) {
    const ag_kv_params *p = &c->params;
    const ag_kv_unrotated *u = &c->unrotated;
    uint32_t most = 0;
    for (uint32_t l = 0; l < p->n_layers; l++) {
        uint32_t end = 0;
        for (uint32_t h = 0; h < p->n_kv_heads; h++) list_head(c, l, h, &end);
        const uint32_t n_blocks = (end + AG_KV_BLOCK - 1) / AG_KV_BLOCK;
        AG_TRY(ag_kv_own_blocks(c, l, 0, n_blocks, err));
        if (n_blocks > most) most = n_blocks;
    }
    const ag_kv_turn turn = {
        .blocks = c->blocks,
        .n_blocks = most,
        .blocks_per_layer = c->at.blocks_per_layer,
        .n_layers = p->n_layers,
        .n_kv_heads = p->n_kv_heads,
        .head_dim = p->head_dim,
        .n_positions = p->n_protected,
        .k_type = p->k_type,
        .hadamard = p->hadamard,
        .keys = u->held,
        .cos_sin = u->cos_sin,
        .slots = u->slots,
    };
    return most ? ag_take_error(c->backend, ag_turn_keys(c->backend, &turn), err) : AG_OK;
}

ag_status ag_kv_cache_turn_protected(ag_kv_cache *c, const float *inv_freq, uint32_t newest,
                                     uint32_t trained, ag_error *err) {
    const ag_kv_params *p = &c->params;
    ag_kv_unrotated *u = &c->unrotated;
    uint32_t by = newest >= trained ? newest - (trained - 1) : 0;
    if (!p->n_protected || by == u->turned_by) return AG_OK;
    for (uint32_t i = 0; i < p->n_protected; i++) {
        for (uint32_t d = 0; d < p->head_dim / 2; d++) {
            double angle = ((double)i + by) * inv_freq[d];
            float *at = u->cos_sin + (size_t)i * p->head_dim + 2 * d;
            at[0] = (float)cos(angle);
            at[1] = (float)sin(angle);
        }
    }
    AG_TRY(u->held ? turn_in_place(c, err) : turn_on_host(c, err));
    u->turned_by = by;
    return AG_OK;
}
