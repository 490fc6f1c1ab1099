/* SPDX-License-Identifier: Apache-2.0 */
/* The protected prefix past the trained length: its keys are rotated anew, from copies that were
 * never rotated, so that the newest query stays within the distances the model has seen. Nothing
 * else is rotated twice: a quantised key would lose its value. */
#include "cache/kv_cache_impl.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "core/hadamard.h"
#include "quant/quant.h"

#include <math.h>
#include <string.h>

ag_status ag_kv_unrotated_create(ag_kv_cache *c, ag_error *err) {
    const ag_kv_params *p = &c->params;
    if (!p->n_protected) return AG_OK;
    ag_kv_unrotated *u = &c->unrotated;
    size_t n = (size_t)p->n_layers * p->n_protected, row = (size_t)p->n_kv_heads * p->head_dim;
    u->keys = n < SIZE_MAX / row ? ag_calloc(n * row, sizeof *u->keys) : NULL;
    u->known = ag_calloc(n, sizeof *u->known);
    u->key = ag_calloc(p->head_dim, sizeof *u->key);
    u->row = ag_malloc(c->at.k_row);
    u->cos_sin = ag_calloc((size_t)p->n_protected * p->head_dim, sizeof *u->cos_sin);
    if (u->keys && u->known && u->key && u->row && u->cos_sin) return AG_OK;
    return AG_FAIL(err, NOMEM, "copies of %u protected tokens in %u layers", p->n_protected,
                   p->n_layers);
}

size_t ag_kv_unrotated_bytes(const ag_kv_params *p) {
    size_t keys = (size_t)p->n_layers * p->n_protected;
    return keys * ((size_t)p->n_kv_heads * p->head_dim * sizeof(float) + sizeof(bool));
}

void ag_kv_unrotated_release(ag_kv_cache *c) {
    ag_free(c->unrotated.keys);
    ag_free(c->unrotated.known);
    ag_free(c->unrotated.key);
    ag_free(c->unrotated.row);
    ag_free(c->unrotated.cos_sin);
}

void ag_kv_unrotated_copy(ag_kv_cache *to, const ag_kv_cache *from) {
    const ag_kv_params *p = &from->params;
    size_t n = (size_t)p->n_layers * p->n_protected, row = (size_t)p->n_kv_heads * p->head_dim;
    to->unrotated.turned_by = from->unrotated.turned_by;
    if (!n) return;
    memcpy(to->unrotated.keys, from->unrotated.keys, n * row * sizeof *to->unrotated.keys);
    memcpy(to->unrotated.known, from->unrotated.known, n * sizeof *to->unrotated.known);
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
    size_t row = (size_t)p->n_kv_heads * p->head_dim, bytes = row * sizeof(float);
    for (size_t i = 0; i < k->shape.dim[0] && positions[i] < p->n_protected; i++) {
        size_t at = (size_t)layer * p->n_protected + positions[i];
        AG_TRY(ag_buffer_download(c->unrotated.keys + at * row, k->buffer, k->offset + i * bytes,
                                  bytes, err));
        c->unrotated.known[at] = true;
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
    for (uint32_t l = 0; l < p->n_layers; l++) {
        for (uint32_t h = 0; h < p->n_kv_heads; h++) AG_TRY(turn_head(c, l, h, err));
    }
    u->turned_by = by;
    return AG_OK;
}
