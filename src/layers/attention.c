/* SPDX-License-Identifier: Apache-2.0 */
#include "layers/attention.h"

#include "core/backend_ops.h"
#include "core/fail.h"

#include <math.h>

static ag_status by_heads(ag_tensor *out, const ag_tensor *t, uint32_t n_heads, uint32_t head_dim,
                          ag_error *err) {
    return ag_tensor_reshape(out, t, ag_shape_3d(ag_shape_rows(&t->shape), n_heads, head_dim), err);
}

static ag_status append(const ag_sequence *s, uint32_t layer, const ag_tensor *k,
                        const ag_tensor *v, const uint32_t *positions, ag_error *err) {
    const ag_kv_params *p = ag_kv_cache_params(s->cache);
    ag_tensor rows, k_new, v_new;
    AG_TRY(ag_tensor_rows(&rows, k, s->row0 * p->n_kv_heads, s->n_rows * p->n_kv_heads, err));
    AG_TRY(
        ag_tensor_reshape(&k_new, &rows, ag_shape_3d(s->n_rows, p->n_kv_heads, p->head_dim), err));
    AG_TRY(ag_tensor_rows(&rows, v, s->row0 * p->n_kv_heads, s->n_rows * p->n_kv_heads, err));
    AG_TRY(
        ag_tensor_reshape(&v_new, &rows, ag_shape_3d(s->n_rows, p->n_kv_heads, p->head_dim), err));
    return ag_kv_cache_update(s->cache, layer, &k_new, &v_new, positions + s->row0, err);
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
    AG_TRY(ag_take_error(be, ag_rope(be, &q_heads, positions, inv_freq), err));
    AG_TRY(ag_take_error(be, ag_rope(be, &k_heads, positions, inv_freq), err));

    ag_attention_seq parts[AG_MAX_SEQUENCES];
    for (size_t i = 0; i < n_seqs; i++) {
        AG_TRY(append(&seqs[i], layer, &k_heads, &v_heads, positions, err));
        parts[i] = (ag_attention_seq){
            .row0 = seqs[i].row0,
            .n_rows = seqs[i].n_rows,
            .positions = positions + seqs[i].row0,
        };
        ag_kv_cache_get_view(seqs[i].cache, layer, &parts[i].kv);
    }
    float scale = 1.0f / sqrtf((float)shape->head_dim);
    return ag_take_error(be, ag_attention(be, &out_heads, &q_heads, parts, n_seqs, scale), err);
}
