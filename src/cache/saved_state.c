/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/saved_state.h"

#include "cache/kv_cache_impl.h"
#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/fail.h"
#include "core/little_endian.h"
#include "quant/quant.h"

#include <math.h>

/* Rows of one head in one block, in the order of the stream: positions, keys, values. */
typedef struct head_rows {
    ag_buffer *buffer; /* borrowed */
    size_t n;
    size_t at[3], bytes[3]; /* in the buffer */
} head_rows;

static head_rows rows_of_head(const ag_kv_cache *c, uint32_t layer, uint32_t block, uint32_t head,
                              uint32_t n) {
    const ag_kv_block *b = ag_kv_block_of(c, layer, head, block);
    const ag_kv_sections *parts = &c->at[layer].part;
    return (head_rows){
        .buffer = b->buffer,
        .n = n,
        .at = {b->offset + parts->p_offset, b->offset, b->offset + parts->v_offset},
        .bytes = {n * sizeof(uint32_t), n * parts->k_row, n * parts->v_row},
    };
}

/* Returns how many slots of a head of n slots are in block b. */
static uint32_t in_block(uint32_t n, uint32_t b) {
    uint32_t first = b * AG_KV_BLOCK;
    if (n <= first) return 0;
    return n - first < AG_KV_BLOCK ? n - first : AG_KV_BLOCK;
}

/* Returns the bytes of the protected keys of a layer. */
static size_t unrotated_bytes(const ag_kv_params *p, uint32_t layer) {
    const ag_kv_layer kv_layer = ag_kv_layer_of(p, layer);
    return (size_t)p->n_protected * kv_layer.n_kv_heads * kv_layer.head_dim * sizeof(float);
}

static void *make_staging(const ag_kv_cache *c, ag_error *err) {
    size_t bytes = AG_KV_BLOCK * sizeof(uint32_t);
    for (uint32_t l = 0; l < c->params.n_layers; l++) {
        const size_t sizes[] = {AG_KV_BLOCK * c->at[l].part.k_row,
                                AG_KV_BLOCK * c->at[l].part.v_row, unrotated_bytes(&c->params, l)};
        for (int i = 0; i < 3; i++) {
            if (sizes[i] > bytes) bytes = sizes[i];
        }
    }
    void *staging = ag_malloc(bytes);
    if (!staging) AG_FAIL(err, NOMEM, "staging buffer of %zu bytes of a saved cache", bytes);
    return staging;
}

/* ---- sizes ---- */

static uint64_t add_saturated(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

uint64_t ag_kv_cache_saved_bytes(const ag_kv_params *p, const uint32_t *n_slots) {
    uint64_t n = sizeof(uint32_t) + (uint64_t)p->n_layers * p->n_protected;
    for (uint32_t l = 0; l < p->n_layers; l++) {
        const ag_kv_layer kv_layer = ag_kv_layer_of(p, l);
        const uint64_t slot = sizeof(uint32_t) + ag_dtype_row_bytes(p->k_type, kv_layer.head_dim) +
                              ag_dtype_row_bytes(p->v_type, kv_layer.head_dim);
        for (uint32_t h = 0; h < kv_layer.n_kv_heads; h++)
            n = add_saturated(n, *n_slots++ * slot); /* less than 2^32 * 2^24 */
        n = add_saturated(n, unrotated_bytes(p, l) + (kv_layer.window ? sizeof(uint32_t) : 0));
    }
    return n;
}

uint64_t ag_score_sums_saved_bytes(const ag_score_sums *sums, const ag_kv_params *p,
                                   const uint32_t *n_slots) {
    uint64_t n = 0;
    const size_t heads = ag_kv_totals_of(p).heads;
    for (size_t i = 0; sums && i < heads; i++)
        n = add_saturated(n, n_slots[i] * (uint64_t)sizeof(float));
    return n;
}

/* ---- saving ---- */

static ag_status save_layer(ag_kv_cache *c, uint32_t layer, void *staging, ag_put_fn put,
                            void *user, ag_error *err) {
    for (uint32_t b = 0; b < ag_kv_blocks_for(ag_kv_layer_length(c, layer)); b++) {
        for (uint32_t h = 0; h < ag_kv_heads_of(c, layer); h++) {
            const uint32_t n = in_block(ag_kv_slots_of(c, layer)[h], b);
            for (int section = 0; n && section < 3; section++) {
                /* Looked up for each write: blocks may move while the thread waits for the disk. */
                const head_rows r = rows_of_head(c, layer, b, h, n);
                AG_TRY(ag_buffer_download(staging, r.buffer, r.at[section], r.bytes[section], err));
                AG_TRY(put(user, staging, r.bytes[section], err));
            }
        }
    }
    return AG_OK;
}

/* Saves the position from which on each window is complete. */
static ag_status save_windows(const ag_kv_cache *c, ag_put_fn put, void *user, ag_error *err) {
    for (uint32_t l = 0; l < c->params.n_layers; l++) {
        uint8_t expired[4];
        if (!c->params.layers[l].window) continue;
        ag_put_number(expired, c->expired[l], sizeof expired);
        AG_TRY(put(user, expired, sizeof expired, err));
    }
    return AG_OK;
}

static ag_status save_unrotated(const ag_kv_cache *c, void *staging, ag_put_fn put, void *user,
                                ag_error *err) {
    const ag_kv_unrotated *u = &c->unrotated;
    uint8_t moved_by[4];
    ag_put_number(moved_by, u->moved_by, sizeof moved_by);
    AG_TRY(put(user, moved_by, sizeof moved_by, err));
    for (size_t i = 0; i < (size_t)c->params.n_layers * c->params.n_protected; i++) {
        uint8_t known = u->known[i];
        AG_TRY(put(user, &known, 1, err));
    }
    for (uint32_t l = 0; c->params.n_protected && l < c->params.n_layers; l++) {
        AG_TRY(ag_kv_unrotated_read(c, l, staging, err));
        AG_TRY(put(user, staging, unrotated_bytes(&c->params, l), err));
    }
    return AG_OK;
}

ag_status ag_kv_cache_save(ag_kv_cache *c, ag_put_fn put, void *user, ag_error *err) {
    void *staging = make_staging(c, err);
    if (!staging) return AG_NOMEM;
    ag_status st = ag_take_error(c->backend, ag_sync(c->backend), err);
    for (uint32_t l = 0; l < c->params.n_layers && st == AG_OK; l++)
        st = save_layer(c, l, staging, put, user, err);
    if (st == AG_OK) st = save_unrotated(c, staging, put, user, err);
    if (st == AG_OK) st = save_windows(c, put, user, err);
    ag_free(staging);
    return st;
}

ag_status ag_score_sums_save(ag_score_sums *sums, const ag_kv_cache *cache, ag_put_fn put,
                             void *user, ag_error *err) {
    const ag_kv_params *p = ag_kv_cache_params(cache);
    for (uint32_t l = 0; sums && l < p->n_layers; l++) {
        AG_TRY(ag_score_sums_fetch(sums, l, err));
        for (uint32_t h = 0; h < ag_kv_cache_layer(cache, l)->n_kv_heads; h++) {
            const float *of = ag_score_sums_of(sums, l, h);
            AG_TRY(put(user, of, ag_kv_cache_n_slots(cache, l, h) * sizeof *of, err));
        }
    }
    return AG_OK;
}

/* ---- loading ---- */

ag_status ag_check_saved_rows(ag_dtype cache_type, ag_dtype type, const void *rows, size_t n,
                              size_t dim, const char *name, ag_error *err) {
    enum { CHUNK = 256 };
    const float max = cache_type == AG_F16 ? 65504.0f : 1e18f;
    const size_t row_bytes = ag_dtype_row_bytes(type, dim);
    float values[CHUNK];
    for (size_t row = 0; row < n; row++) {
        const uint8_t *at = (const uint8_t *)rows + row * row_bytes;
        for (size_t first = 0, section; first < dim; first += section) {
            section = dim - first < CHUNK ? dim - first : CHUNK;
            ag_dequantize_row(type, values, at + ag_dtype_row_bytes(type, first), section);
            for (size_t i = 0; i < section; i++) {
                if (fabsf(values[i]) <= max) continue; /* false for NaN */
                return AG_FAIL(err, FORMAT, "%s: damaged: a key, value or state is %g", name,
                               (double)values[i]);
            }
        }
    }
    return AG_OK;
}

typedef struct loading {
    ag_kv_cache *cache;
    uint32_t position;
    const char *name;
    ag_get_fn get;
    void *user;
    void *staging;
} loading;

/* Checks that the next positions of a head ascend and are below the sequence's position. */
static ag_status check_loaded_positions(const loading *in, uint32_t layer, uint32_t head,
                                        uint32_t first, const uint32_t *positions, size_t n,
                                        ag_error *err) {
    uint32_t before = ag_kv_last_of(in->cache, layer)[head];
    for (size_t i = 0; i < n; i++) {
        if (positions[i] >= in->position || ((first || i) && positions[i] <= before)) {
            return AG_FAIL(err, FORMAT,
                           "%s: damaged: layer %u, KV head %u: slot %zu has position %u, the one "
                           "before %u, the sequence is at %u",
                           in->name, layer, head, first + i, positions[i], before, in->position);
        }
        before = positions[i];
    }
    return AG_OK;
}

static ag_status load_rows(const loading *in, uint32_t layer, uint32_t block, uint32_t head,
                           uint32_t n, ag_error *err) {
    const head_rows rows = rows_of_head(in->cache, layer, block, head, n);
    for (int section = 0; section < 3; section++) {
        AG_TRY(in->get(in->user, in->staging, rows.bytes[section], err));
        if (section == 0) {
            const uint32_t *positions = in->staging;
            AG_TRY(check_loaded_positions(in, layer, head, block * AG_KV_BLOCK, positions, n, err));
            ag_kv_last_of(in->cache, layer)[head] = positions[n - 1];
            ag_kv_record_positions(in->cache, layer, head, block * AG_KV_BLOCK, positions, n);
        }
        if (section > 0) {
            const ag_kv_params *p = &in->cache->params;
            const ag_dtype type = section == 1 ? p->k_type : p->v_type;
            AG_TRY(ag_check_saved_rows(type, type, in->staging, n,
                                       ag_kv_layer_of(p, layer).head_dim, in->name, err));
        }
        /* The block may have moved meanwhile. */
        const head_rows r = rows_of_head(in->cache, layer, block, head, n);
        AG_TRY(ag_buffer_upload(r.buffer, r.at[section], in->staging, r.bytes[section], err));
    }
    ag_kv_slots_of(in->cache, layer)[head] += n;
    return AG_OK;
}

static ag_status load_layer(const loading *in, uint32_t layer, const uint32_t *n_slots,
                            ag_error *err) {
    ag_kv_cache *c = in->cache;
    uint32_t max = 0;
    for (uint32_t h = 0; h < ag_kv_heads_of(c, layer); h++) {
        if (n_slots[h] > max) max = n_slots[h];
    }
    for (uint32_t b = 0; b * AG_KV_BLOCK < max; b++) {
        for (uint32_t h = 0; h < ag_kv_heads_of(c, layer); h++) {
            const uint32_t n = in_block(n_slots[h], b);
            if (!n) continue;
            AG_TRY(ag_kv_own_blocks(c, layer, h, b, b + 1, err));
            AG_TRY(load_rows(in, layer, b, h, n, err));
            if (n == AG_KV_BLOCK) ag_kv_fill_blocks(c, layer, h, b, b + 1);
        }
    }
    return AG_OK;
}

static ag_status load_unrotated(const loading *in, ag_error *err) {
    const ag_kv_params *p = &in->cache->params;
    ag_kv_unrotated *u = &in->cache->unrotated;
    uint8_t moved_by[4];
    AG_TRY(in->get(in->user, moved_by, sizeof moved_by, err));
    u->moved_by = (uint32_t)ag_get_number(moved_by, sizeof moved_by);
    for (size_t i = 0; i < (size_t)p->n_layers * p->n_protected; i++) {
        uint8_t known;
        AG_TRY(in->get(in->user, &known, 1, err));
        u->known[i] = known != 0;
    }
    for (uint32_t l = 0; p->n_protected && l < p->n_layers; l++) {
        const size_t bytes = unrotated_bytes(p, l);
        AG_TRY(in->get(in->user, in->staging, bytes, err));
        AG_TRY(ag_check_saved_rows(p->k_type, AG_F32, in->staging, 1, bytes / sizeof(float),
                                   in->name, err));
        AG_TRY(ag_kv_unrotated_write(in->cache, l, in->staging, err));
    }
    return AG_OK;
}

static ag_status load_windows(const loading *in, ag_error *err) {
    const ag_kv_params *p = &in->cache->params;
    for (uint32_t l = 0; l < p->n_layers; l++) {
        uint8_t expired[4];
        if (!p->layers[l].window) continue;
        AG_TRY(in->get(in->user, expired, sizeof expired, err));
        const uint32_t first = in->cache->expired[l] =
            (uint32_t)ag_get_number(expired, sizeof expired);
        if (first && (first > in->position || in->position - first < p->layers[l].window - 1)) {
            return AG_FAIL(err, FORMAT,
                           "%s: damaged: layer %u, window %u, holds positions from %u on, the "
                           "sequence is at %u",
                           in->name, l, p->layers[l].window, first, in->position);
        }
    }
    return AG_OK;
}

ag_status ag_kv_cache_load(ag_kv_cache *c, const uint32_t *n_slots, uint32_t position,
                           const char *name, ag_get_fn get, void *user, ag_error *err) {
    const loading in = {c, position, name, get, user, make_staging(c, err)};
    if (!in.staging) return AG_NOMEM;
    ag_status st = AG_OK;
    for (uint32_t l = 0; l < c->params.n_layers && st == AG_OK; l++)
        st = load_layer(&in, l, n_slots + c->at[l].first.head, err);
    if (st == AG_OK) st = load_unrotated(&in, err);
    if (st == AG_OK) st = load_windows(&in, err);
    ag_free(in.staging);
    return st;
}

void ag_kv_cache_swap(ag_kv_cache *a, ag_kv_cache *b) {
    ag_kv_cache other = *a;
    *a = *b;
    *b = other;
}

ag_status ag_score_sums_load(ag_score_sums *sums, const ag_kv_cache *cache, ag_get_fn get,
                             void *user, ag_error *err) {
    const ag_kv_params *p = ag_kv_cache_params(cache);
    for (uint32_t l = 0; sums && l < p->n_layers; l++) {
        ag_score_sums_replace(sums, l);
        for (uint32_t h = 0; h < ag_kv_cache_layer(cache, l)->n_kv_heads; h++) {
            float *of = ag_score_sums_of(sums, l, h);
            AG_TRY(get(user, of, ag_kv_cache_n_slots(cache, l, h) * sizeof *of, err));
        }
        AG_TRY(ag_score_sums_store(sums, l, true, err));
    }
    return AG_OK;
}
