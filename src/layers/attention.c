/* SPDX-License-Identifier: Apache-2.0 */
#include "layers/attention.h"

#include "core/backend_ops.h"
#include "core/fail.h"
#include "core/hadamard.h"

#include <math.h>

static ag_status by_heads(ag_tensor *out, const ag_tensor *t, uint32_t n_heads, uint32_t head_dim,
                          ag_error *err) {
    return ag_tensor_reshape(out, t, ag_shape_3d(ag_shape_rows(&t->shape), n_heads, head_dim), err);
}

/* The sequence's own rows of k or v. */
static ag_status rows_of(ag_tensor *out, const ag_sequence *s, const ag_tensor *t, uint32_t n_heads,
                         ag_error *err) {
    ag_tensor rows;
    const size_t dim = t->shape.dim[2];
    AG_TRY(ag_tensor_rows(&rows, t, s->row0 * n_heads, s->n_rows * n_heads, err));
    return ag_tensor_reshape(out, &rows, ag_shape_3d(s->n_rows, n_heads, dim), err);
}

static ag_status keep_unrotated(const ag_sequence *s, uint32_t layer, const ag_tensor *k,
                                const uint32_t *positions, ag_error *err) {
    const ag_kv_params *p = ag_kv_cache_params(s->cache);
    ag_tensor rows;
    if (!s->n_rows || positions[s->row0] >= p->n_protected) return AG_OK;
    AG_TRY(rows_of(&rows, s, k, ag_kv_cache_layer(s->cache, layer)->n_kv_heads, err));
    return ag_kv_cache_keep_unrotated(s->cache, layer, &rows, positions + s->row0, err);
}

/* Queries and keys alike, so that their products stay. */
static ag_status spread(ag_backend *be, const ag_sequence *s, const ag_attention_shape *shape,
                        const ag_tensor *q, const ag_tensor *k, ag_error *err) {
    if (!ag_kv_cache_params(s->cache)->hadamard) return AG_OK;
    ag_tensor rows;
    AG_TRY(rows_of(&rows, s, q, shape->n_heads, err));
    AG_TRY(ag_kv_hadamard(be, &rows, err));
    AG_TRY(rows_of(&rows, s, k, shape->n_kv_heads, err));
    return ag_kv_hadamard(be, &rows, err);
}

static ag_status append(const ag_sequence *s, uint32_t layer, const ag_tensor *k,
                        const ag_tensor *v, const uint32_t *positions, ag_error *err) {
    const uint32_t n_heads = ag_kv_cache_layer(s->cache, layer)->n_kv_heads;
    ag_tensor k_new, v_new;
    AG_TRY(rows_of(&k_new, s, k, n_heads, err));
    AG_TRY(rows_of(&v_new, s, v, n_heads, err));
    return ag_kv_cache_update(s->cache, layer, &k_new, &v_new, positions + s->row0, err);
}

static ag_attention_seq part_of(const ag_sequence *s, uint32_t layer, const uint32_t *positions) {
    ag_attention_seq part = {
        .row0 = s->row0,
        .n_rows = s->n_rows,
        .positions = positions + s->row0,
    };
    ag_score_sums_of_layer(&s->scores, layer, &part);
    ag_kv_cache_get_view(s->cache, layer, &part.kv);
    return part;
}

ag_status ag_self_attention(ag_backend *be, const ag_attention_shape *shape, uint32_t layer,
                            const ag_sequence *seqs, size_t n_seqs, const uint32_t *positions,
                            const ag_tensor *inv_freq, ag_tensor *out, ag_tensor *q, ag_tensor *k,
                            ag_tensor *v, ag_error *err) {
    ag_tensor q_heads, k_heads, v_heads, out_heads;
    AG_TRY(by_heads(&q_heads, q, shape->n_heads, shape->head_dim, err));
    AG_TRY(by_heads(&k_heads, k, shape->n_kv_heads, shape->head_dim, err));
    AG_TRY(by_heads(&v_heads, v, shape->n_kv_heads, shape->head_dim, err));
    AG_TRY(by_heads(&out_heads, out, shape->n_heads, shape->head_dim, err));
    for (size_t i = 0; i < n_seqs; i++) {
        AG_TRY(keep_unrotated(&seqs[i], layer, &k_heads, positions, err));
    }
    AG_TRY(ag_take_error(be, ag_rope_pair(be, &q_heads, &k_heads, positions, inv_freq), err));

    ag_attention_seq parts[AG_MAX_SEQUENCES];
    for (size_t i = 0; i < n_seqs; i++) {
        AG_TRY(spread(be, &seqs[i], shape, &q_heads, &k_heads, err));
        AG_TRY(append(&seqs[i], layer, &k_heads, &v_heads, positions, err));
        parts[i] = part_of(&seqs[i], layer, positions);
    }
    float scale = 1.0f / sqrtf((float)shape->head_dim);
    return ag_take_error(be, ag_attention(be, &out_heads, &q_heads, parts, n_seqs, scale), err);
}
