/* SPDX-License-Identifier: Apache-2.0 */
/* A cache of some depth without reading a prompt of that length. */
#include "bench.h"

#include <stdlib.h>

enum { CHUNK = 512 };

/* Tokens [first, first + n) into every layer: the same random keys and values in each. */
static ag_status fill_chunk(ag_kv_cache *cache, const ag_tensor *rows, uint32_t first, uint32_t n,
                            ag_error *err) {
    const ag_kv_params *kv = ag_kv_cache_params(cache);
    uint32_t positions[CHUNK];
    ag_tensor part;
    ag_status status = ag_tensor_rows(&part, rows, 0, (size_t)n * kv->n_kv_heads, err);
    if (status == AG_OK) {
        status = ag_tensor_reshape(&part, &part, ag_shape_3d(n, kv->n_kv_heads, kv->head_dim), err);
    }
    for (uint32_t i = 0; i < n; i++) positions[i] = first + i;
    for (uint32_t l = 0; l < kv->n_layers && status == AG_OK; l++) {
        status = ag_kv_cache_update(cache, l, &part, &part, positions, err);
    }
    return status;
}

/* Values spread evenly over -1 to 1. */
static ag_status make_rows(ag_backend *be, const ag_kv_params *kv, ag_tensor *rows,
                           ag_buffer **owner, ag_error *err) {
    const ag_shape shape = ag_shape_3d(CHUNK, kv->n_kv_heads, kv->head_dim);
    const size_t n = ag_shape_numel(&shape);
    uint32_t state = 1;
    float *values = malloc(n * sizeof *values);
    ag_status status = err->status = AG_NOMEM;
    snprintf(err->msg, sizeof err->msg, "%zu random keys and values", n);
    if (values) {
        status = ag_tensor_alloc(rows, owner, ag_backend_memory(be), AG_USAGE_SCRATCH, AG_F32,
                                 shape, err);
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
    ag_status status = make_rows(be, ag_kv_cache_params(cache), &rows, &owner, err);
    for (uint32_t done = 0; done < depth && status == AG_OK; done += CHUNK) {
        uint32_t n = depth - done < CHUNK ? depth - done : CHUNK;
        status = fill_chunk(cache, &rows, done, n, err);
    }
    ag_buffer_release(&owner);
    return status;
}

ag_status bench_set_depth(ag_backend *be, ag_session *s, uint32_t depth, ag_error *err) {
    if (!depth) ag_session_reset(s);
    if (ag_session_position(s) >= depth) return ag_session_truncate(s, depth, err);
    ag_status status = fill(be, ag_session_kv_cache(s), depth, err);
    return status == AG_OK ? ag_session_follow_cache(s, err) : status;
}

double bench_cache_bytes(ag_session *s, double n_tokens) {
    const ag_kv_params *kv = ag_kv_cache_params(ag_session_kv_cache(s));
    size_t row =
        ag_dtype_row_bytes(kv->k_type, kv->head_dim) + ag_dtype_row_bytes(kv->v_type, kv->head_dim);
    return n_tokens * (double)row * kv->n_kv_heads * kv->n_layers;
}
