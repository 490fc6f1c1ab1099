/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/kv_rows.h"

#include "cache/kv_cache_impl.h"
#include "core/backend_ops.h"
#include "core/buffer_ops.h"
#include "core/fail.h"
#include "quant/quant.h"

#include <string.h>

/* ---- addresses ---- */

static uint8_t *block_at(const ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t slot) {
    const ag_kv_block *b = ag_kv_block_of(c, layer, head, slot / AG_KV_BLOCK);
    return (uint8_t *)ag_buffer_map(b->buffer) + b->offset;
}

/* Addresses of the key, the value and the position of a slot. */
typedef struct slot_rows {
    uint8_t *k, *v, *position;
} slot_rows;

static slot_rows rows_at(const ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t slot) {
    const ag_kv_sections *parts = &c->at[layer].part;
    uint8_t *block = block_at(c, layer, head, slot);
    const uint32_t i = slot % AG_KV_BLOCK;
    return (slot_rows){
        .k = block + i * parts->k_row,
        .v = block + parts->v_offset + i * parts->v_row,
        .position = block + parts->p_offset + i * sizeof(uint32_t),
    };
}

static uint32_t position_at(const ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t slot) {
    uint32_t position;
    memcpy(&position, rows_at(c, layer, head, slot).position, sizeof position);
    return position;
}

/* ---- reading ---- */

static ag_status convert_slot_row(ag_backend *be, ag_dtype to, void *dst, ag_dtype from,
                                  const void *src, float *values, uint32_t dim, uint32_t position,
                                  ag_error *err) {
    size_t bad;
    if (to == AG_F32) {
        ag_unpack(be, from, dst, src, dim);
        return AG_OK;
    }
    if (ag_convert_row(to, dst, from, src, values, dim, AG_ROUND_KV, &bad) == AG_OK) return AG_OK;
    return AG_FAIL(
        err, FORMAT,
        "cannot store the key or value: component %zu at position %u is out of the type's range",
        bad, position);
}

ag_status ag_kv_cache_get_rows(const ag_kv_cache *c, uint32_t layer, uint32_t head,
                               const uint32_t *slots, ag_kv_rows *out, float *values,
                               ag_error *err) {
    const uint32_t dim = c->params.layers[layer].head_dim;
    const size_t k_row = ag_dtype_row_bytes(out->k_type, dim);
    const size_t v_row = ag_dtype_row_bytes(out->v_type, dim);
    for (uint32_t i = 0; i < out->n; i++) {
        const slot_rows at = rows_at(c, layer, head, slots[i]);
        memcpy(&out->positions[i], at.position, sizeof *out->positions);
        AG_TRY(convert_slot_row(c->backend, out->k_type, out->k + i * k_row, c->params.k_type, at.k,
                                values, dim, out->positions[i], err));
        if (!out->v) continue;
        AG_TRY(convert_slot_row(c->backend, out->v_type, out->v + i * v_row, c->params.v_type, at.v,
                                values, dim, out->positions[i], err));
    }
    return AG_OK;
}

/* ---- inserting ---- */

static ag_status check_inserted_rows(const ag_kv_cache *c, uint32_t layer, uint32_t head,
                                     const ag_kv_rows *rows, ag_error *err) {
    const uint32_t n = ag_kv_slots_of(c, layer)[head];
    if (rows->n > c->at[layer].max_slots - n) {
        return AG_FAIL(
            err, LIMIT,
            "KV head %u of layer %u is full: it holds %u of %u slots, %u more do not fit", head,
            layer, n, c->at[layer].max_slots, rows->n);
    }
    for (uint32_t i = 0; i < rows->n; i++) {
        const uint32_t position = rows->positions[i];
        uint32_t at;
        AG_TRY(ag_kv_slots_below(c, layer, head, position, &at, err));
        const bool is_cached = at < n && position_at(c, layer, head, at) == position;
        if (!is_cached && (!i || rows->positions[i - 1] < position)) continue;
        return AG_FAIL(
            err, INVALID,
            "cannot insert position %u: it is already cached, or the positions do not ascend",
            position);
    }
    return AG_OK;
}

static void move_slot(const ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t to,
                      uint32_t from) {
    const ag_kv_sections *parts = &c->at[layer].part;
    const slot_rows dst = rows_at(c, layer, head, to), src = rows_at(c, layer, head, from);
    memcpy(dst.k, src.k, parts->k_row);
    memcpy(dst.v, src.v, parts->v_row);
    memcpy(dst.position, src.position, sizeof(uint32_t));
}

static ag_status write_slot(const ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t slot,
                            const ag_kv_rows *rows, uint32_t i, float *values, ag_error *err) {
    const uint32_t dim = c->params.layers[layer].head_dim;
    const slot_rows at = rows_at(c, layer, head, slot);
    const uint8_t *k = rows->k + i * ag_dtype_row_bytes(rows->k_type, dim);
    const uint8_t *v = rows->v + i * ag_dtype_row_bytes(rows->v_type, dim);
    memcpy(at.position, &rows->positions[i], sizeof *rows->positions);
    AG_TRY(convert_slot_row(c->backend, c->params.k_type, at.k, rows->k_type, k, values, dim,
                            rows->positions[i], err));
    return convert_slot_row(c->backend, c->params.v_type, at.v, rows->v_type, v, values, dim,
                            rows->positions[i], err);
}

ag_status ag_kv_cache_put_rows(ag_kv_cache *c, uint32_t layer, uint32_t head,
                               const ag_kv_rows *rows, uint32_t *slots, float *values,
                               ag_error *err) {
    uint32_t *n = &ag_kv_slots_of(c, layer)[head], *last = &ag_kv_last_of(c, layer)[head];
    if (!rows->n) return AG_OK;
    AG_TRY(check_inserted_rows(c, layer, head, rows, err));
    const uint32_t end = *n + rows->n;
    uint32_t first;
    AG_TRY(ag_kv_slots_below(c, layer, head, rows->positions[0], &first, err));
    AG_TRY(ag_kv_own_blocks(c, layer, head, first / AG_KV_BLOCK, ag_kv_blocks_for(end), err));
    /* Converts every row into the slot after the last one first: if one fails, no slot has
     * moved. */
    for (uint32_t i = 0; i < rows->n; i++)
        AG_TRY(write_slot(c, layer, head, *n, rows, i, values, err));
    /* Merges from the back, so that no slot is overwritten before it has moved. */
    uint32_t old = *n, new = rows->n;
    for (uint32_t to = end; new > 0; to--) {
        const uint32_t position = rows->positions[new - 1];
        if (old && position_at(c, layer, head, old - 1) > position) {
            move_slot(c, layer, head, to - 1, --old);
            continue;
        }
        AG_TRY(write_slot(c, layer, head, to - 1, rows, --new, values, err));
        slots[new] = to - 1;
    }
    if (!*n || rows->positions[rows->n - 1] > *last) *last = rows->positions[rows->n - 1];
    *n = end;
    return AG_OK;
}
