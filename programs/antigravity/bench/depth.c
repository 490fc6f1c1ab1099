/* SPDX-License-Identifier: Apache-2.0 */
/* Fills a cache to a depth without reading a prompt of that length. */
#include "bench.h"

#include <antigravity/expert.h>
#include <stdlib.h>

enum { CHUNK = 512 };

/* Writes tokens [first, first + n) to every layer: the same random keys and values in each. */
static ag_status fill_chunk(ag_kv_cache *cache, const ag_tensor *rows, uint32_t first, uint32_t n,
                            ag_error *err) {
    uint32_t positions[CHUNK];
    ag_status status = AG_OK;
    const ag_kv_layer *at;
    for (uint32_t i = 0; i < n; i++) positions[i] = first + i;
    for (uint32_t l = 0; (at = ag_kv_cache_layer(cache, l)) && status == AG_OK; l++) {
        ag_tensor chunk_rows;
        status =
            ag_tensor_rows(&chunk_rows, rows, 0, (size_t)n * at->n_kv_heads * at->head_dim, err);
        if (status != AG_OK) break;
        status = ag_tensor_reshape(&chunk_rows, &chunk_rows,
                                   ag_shape_3d(n, at->n_kv_heads, at->head_dim), err);
        if (status == AG_OK)
            status = ag_kv_cache_update(cache, l, &chunk_rows, &chunk_rows, positions, err);
    }
    return status;
}

static size_t largest_row(const ag_kv_cache *cache) {
    size_t max = 0;
    const ag_kv_layer *at;
    for (uint32_t l = 0; (at = ag_kv_cache_layer(cache, l)); l++) {
        const size_t n = (size_t)at->n_kv_heads * at->head_dim;
        if (n > max) max = n;
    }
    return max;
}

/* Allocates n rows of one value, uniformly distributed over -1 to 1. */
static ag_status make_rows(ag_backend *be, size_t n, ag_tensor *rows, ag_buffer **owner,
                           ag_error *err) {
    uint32_t state = 1;
    float *values = malloc(n * sizeof *values);
    ag_status status = err->status = AG_NOMEM;
    snprintf(err->msg, sizeof err->msg, "out of memory: %zu random keys and values", n);
    if (values) {
        status = ag_tensor_alloc(rows, owner, ag_backend_memory(be), AG_USAGE_SCRATCH, AG_F32,
                                 ag_shape_2d(n, 1), err);
    }
    for (size_t i = 0; values && i < n; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = (float)(state >> 8) * 0x1p-23f - 1;
    }
    if (status == AG_OK) status = ag_buffer_upload(*owner, 0, values, n * sizeof *values, err);
    free(values);
    return status;
}

static ag_status fill(ag_backend *be, ag_kv_cache *cache, uint32_t depth, ag_error *err) {
    ag_tensor rows;
    ag_buffer *owner = NULL;
    ag_status status = make_rows(be, CHUNK * largest_row(cache), &rows, &owner, err);
    const uint32_t rows_at_once = ag_kv_cache_params(cache)->step_rows;
    const uint32_t chunk = rows_at_once && rows_at_once < CHUNK ? rows_at_once : CHUNK;
    for (uint32_t done = 0; done < depth && status == AG_OK; done += chunk) {
        uint32_t n = depth - done < chunk ? depth - done : chunk;
        status = fill_chunk(cache, &rows, done, n, err);
        if (status == AG_OK) status = ag_kv_cache_expire(cache, done + n, err);
    }
    ag_buffer_release(&owner);
    return status;
}

/* Reads tokens: layers with a state cannot be filled directly. */
static ag_status read_tokens(ag_session *s, uint32_t depth, ag_error *err) {
    enum { MAX_IDS = 256 };
    const uint32_t n_vocab = ag_session_model_info(s)->n_vocab;
    int32_t ids[MAX_IDS];
    for (uint32_t i = 0; i < MAX_IDS; i++) ids[i] = (int32_t)(i * 7 % n_vocab);
    ag_status status = AG_OK;
    while (status == AG_OK && ag_session_position(s) < depth) {
        const uint32_t remaining = depth - ag_session_position(s);
        status =
            ag_session_prefill(s, ids, remaining < MAX_IDS ? remaining : MAX_IDS, NULL, NULL, err);
    }
    return status;
}

ag_status bench_set_depth(ag_backend *be, ag_session *s, uint32_t depth, ag_error *err) {
    const uint32_t reachable = ag_session_oldest_reachable(s);
    if (depth < reachable || !depth) ag_session_reset(s);
    if (ag_session_position(s) >= depth) return ag_session_truncate(s, depth, err);
    if (ag_session_model_info(s)->state_bytes) return read_tokens(s, depth, err);
    ag_status status = fill(be, ag_session_kv_cache(s), depth, err);
    return status == AG_OK ? ag_session_follow_cache(s, err) : status;
}

double bench_cache_bytes(ag_session *s, double n_tokens) {
    const ag_kv_cache *cache = ag_session_kv_cache(s);
    const ag_kv_params *kv = ag_kv_cache_params(cache);
    const ag_kv_layer *at;
    double bytes = 0;
    for (uint32_t l = 0; (at = ag_kv_cache_layer(cache, l)); l++) {
        const double seen = at->window && at->window < n_tokens ? at->window : n_tokens;
        const size_t row = ag_dtype_row_bytes(kv->k_type, at->head_dim) +
                           ag_dtype_row_bytes(kv->v_type, at->head_dim);
        bytes += seen * (double)row * at->n_kv_heads;
    }
    return bytes;
}
