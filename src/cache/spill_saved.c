/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/spill_saved.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "core/little_endian.h"
#include "quant/quant.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Header of each block: its slots, how many of them are valid, and its types. */
enum { HEADER_NUMBERS = 3, KEYS_Q8_0 = 1, VALUES_Q4_0 = 2 };

static ag_status put_number(ag_put_fn put, void *user, uint32_t number, ag_error *err) {
    unsigned char bytes[4];
    ag_put_number(bytes, number, sizeof bytes);
    return put(user, bytes, sizeof bytes, err);
}

static size_t block_bytes(const ag_spill *s, uint32_t layer, uint32_t head, uint32_t i) {
    const ag_spilled_block b = ag_spill_block(s, layer, head, i);
    return ag_spilled_bytes(b.k_type, b.v_type, ag_spill_kv(s)->layers[layer].head_dim, b.n);
}

uint64_t ag_spill_saved_bytes(const ag_spill *s) {
    uint64_t n = 0;
    if (!s) return 0;
    const ag_kv_params *kv = ag_spill_kv(s);
    for (uint32_t l = 0; l < kv->n_layers; l++) {
        for (uint32_t h = 0; h < kv->layers[l].n_kv_heads; h++) {
            n += sizeof(uint32_t);
            for (uint32_t i = 0; i < ag_spill_n_blocks(s, l, h); i++)
                n += HEADER_NUMBERS * sizeof(uint32_t) + block_bytes(s, l, h, i);
        }
    }
    return n;
}

static ag_status save_block(ag_spill *s, uint32_t layer, uint32_t head, uint32_t i,
                            ag_spilled_rows *block, ag_put_fn put, void *user, ag_error *err) {
    const ag_kv_params *kv = ag_spill_kv(s);
    const ag_spilled_block saved = ag_spill_block(s, layer, head, i);
    const uint32_t types = (saved.k_type != kv->k_type ? KEYS_Q8_0 : 0u) |
                           (saved.v_type != kv->v_type ? VALUES_Q4_0 : 0u);
    const size_t bytes = block_bytes(s, layer, head, i);
    const bool is_read = ag_spill_read(s, layer, head, i, block);
    if (!is_read) memset(block->bytes, 0, bytes);
    AG_TRY(put_number(put, user, saved.n, err));
    AG_TRY(put_number(put, user, is_read ? block->rows.n : 0, err));
    AG_TRY(put_number(put, user, types, err));
    return put(user, block->bytes, bytes, err);
}

ag_status ag_spill_save(ag_spill *s, ag_put_fn put, void *user, ag_error *err) {
    ag_spilled_rows block;
    if (ag_spill_is_empty(s)) return AG_OK;
    const ag_kv_params *kv = ag_spill_kv(s);
    ag_status st = ag_spilled_rows_create(kv, &block, err);
    for (uint32_t l = 0; l < kv->n_layers; l++) {
        for (uint32_t h = 0; h < kv->layers[l].n_kv_heads; h++) {
            const uint32_t n = ag_spill_n_blocks(s, l, h);
            if (st == AG_OK) st = put_number(put, user, n, err);
            for (uint32_t i = 0; i < n && st == AG_OK; i++)
                st = save_block(s, l, h, i, &block, put, user, err);
        }
    }
    ag_spilled_rows_release(&block);
    return st;
}

/* ---- loading ---- */

typedef struct loading {
    ag_spill *spill;          /* NULL: blocks are skipped */
    const ag_kv_cache *cache; /* holds the resident slots */
    const ag_kv_params *kv;
    uint64_t remaining; /* bytes */
    uint32_t position;
    const char *name;
    ag_get_fn get;
    void *user;
    ag_spilled_rows block; /* owned; the current one */
    uint32_t *cached;      /* owned; [n_cached] positions of the current head, unsorted */
    size_t n_cached, cached_cap;
} loading;

static ag_status read_bytes(loading *in, void *bytes, size_t n, ag_error *err) {
    if (n > in->remaining)
        return AG_FAIL(err, FORMAT, "%s: damaged: the spilled blocks are longer than their section",
                       in->name);
    in->remaining -= n;
    return in->get(in->user, bytes, n, err);
}

static ag_status read_numbers(loading *in, uint32_t *numbers, size_t n, ag_error *err) {
    for (size_t i = 0; i < n; i++) {
        unsigned char bytes[4];
        AG_TRY(read_bytes(in, bytes, sizeof bytes, err));
        numbers[i] = (uint32_t)ag_get_number(bytes, sizeof bytes);
    }
    return AG_OK;
}

static ag_status check_spilled_positions(const loading *in, const uint32_t *positions, uint32_t n,
                                         ag_error *err) {
    for (uint32_t i = 0; i < n; i++) {
        if (positions[i] < in->position && (!i || positions[i] > positions[i - 1])) continue;
        return AG_FAIL(err, FORMAT,
                       "%s: damaged: a spilled slot has position %u, the sequence is at %u",
                       in->name, positions[i], in->position);
    }
    return AG_OK;
}

static ag_status add_cached(loading *in, const uint32_t *positions, uint32_t n, ag_error *err) {
    AG_TRY(AG_GROW(in->cached, &in->cached_cap, in->n_cached + n, err));
    memcpy(in->cached + in->n_cached, positions, n * sizeof *positions);
    in->n_cached += n;
    return AG_OK;
}

static ag_status add_resident(loading *in, uint32_t layer, uint32_t head, ag_error *err) {
    in->n_cached = 0;
    for (uint32_t s = 0; s < ag_kv_cache_n_slots(in->cache, layer, head); s++) {
        const uint32_t position = ag_kv_cache_position(in->cache, layer, head, s);
        AG_TRY(add_cached(in, &position, 1, err));
    }
    return AG_OK;
}

static int ascending(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Checks that each slot is either in the cache or in one block. */
static ag_status check_unique(loading *in, ag_error *err) {
    if (in->n_cached) qsort(in->cached, in->n_cached, sizeof *in->cached, ascending);
    for (size_t i = 1; i < in->n_cached; i++) {
        if (in->cached[i] != in->cached[i - 1]) continue;
        return AG_FAIL(err, FORMAT, "%s: damaged: the slot of position %u occurs twice", in->name,
                       in->cached[i]);
    }
    return AG_OK;
}

static ag_status load_block(loading *in, uint32_t layer, uint32_t head, ag_error *err) {
    const uint32_t dim = in->kv->layers[layer].head_dim;
    uint32_t numbers[HEADER_NUMBERS];
    AG_TRY(read_numbers(in, numbers, HEADER_NUMBERS, err));
    const uint32_t n = numbers[0], n_valid = numbers[1], types = numbers[2];
    const ag_dtype k_type = types & KEYS_Q8_0 ? AG_Q8_0 : in->kv->k_type;
    const ag_dtype v_type = types & VALUES_Q4_0 ? AG_Q4_0 : in->kv->v_type;
    const bool fits = types <= (KEYS_Q8_0 | VALUES_Q4_0) && !(dim % ag_dtype_block(k_type)) &&
                      !(dim % ag_dtype_block(v_type)) &&
                      ag_dtype_row_bytes(k_type, dim) <= ag_dtype_row_bytes(in->kv->k_type, dim) &&
                      ag_dtype_row_bytes(v_type, dim) <= ag_dtype_row_bytes(in->kv->v_type, dim);
    if (!n || n > AG_SPILL_MAX_SLOTS || n_valid > n || !fits) {
        return AG_FAIL(err, FORMAT, "%s: damaged: a spilled block has %u slots, %u of them valid",
                       in->name, n, n_valid);
    }
    ag_kv_rows *rows = &in->block.rows;
    AG_TRY(read_bytes(in, in->block.bytes, ag_spilled_bytes(k_type, v_type, dim, n), err));
    ag_spilled_rows_layout(&in->block, k_type, v_type, dim, n);
    rows->n = n_valid;
    AG_TRY(check_spilled_positions(in, rows->positions, n_valid, err));
    if (!in->spill || !n_valid) return AG_OK;
    AG_TRY(ag_check_saved_rows(in->kv->k_type, k_type, rows->k, n_valid, dim, in->name, err));
    AG_TRY(ag_check_saved_rows(in->kv->v_type, v_type, rows->v, n_valid, dim, in->name, err));
    AG_TRY(add_cached(in, rows->positions, n_valid, err));
    ag_spill_add(in->spill, layer, head, rows, in->block.sums);
    return AG_OK;
}

static ag_status load_all(loading *in, ag_error *err) {
    for (uint32_t l = 0; l < in->kv->n_layers; l++) {
        for (uint32_t h = 0; h < in->kv->layers[l].n_kv_heads; h++) {
            uint32_t n;
            AG_TRY(read_numbers(in, &n, 1, err));
            if (in->spill && n) AG_TRY(add_resident(in, l, h, err));
            for (uint32_t i = 0; i < n; i++) AG_TRY(load_block(in, l, h, err));
            if (in->spill && n) AG_TRY(check_unique(in, err));
        }
    }
    if (!in->remaining) return AG_OK;
    return AG_FAIL(err, FORMAT, "%s: damaged: %" PRIu64 " bytes follow the spilled blocks",
                   in->name, in->remaining);
}

ag_status ag_spill_load(ag_spill *s, const ag_kv_cache *cache, uint64_t n_bytes, uint32_t position,
                        const char *name, ag_get_fn get_fn, void *user, ag_error *err) {
    if (!n_bytes) return AG_OK;
    loading in = {.spill = s,
                  .cache = cache,
                  .kv = ag_kv_cache_params(cache),
                  .remaining = n_bytes,
                  .position = position,
                  .name = name,
                  .get = get_fn,
                  .user = user};
    ag_status st = ag_spilled_rows_create(in.kv, &in.block, err);
    if (st == AG_OK) st = load_all(&in, err);
    ag_spilled_rows_release(&in.block);
    ag_free(in.cached);
    return st;
}
