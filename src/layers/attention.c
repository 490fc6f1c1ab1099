/* SPDX-License-Identifier: Apache-2.0 */
#include "layers/attention.h"

#include "cache/eviction/chunk_scores.h"
#include "cache/reload.h"
#include "core/backend_ops.h"
#include "core/fail.h"
#include "core/hadamard.h"

#include <math.h>

static ag_status by_heads(ag_tensor *out, const ag_tensor *t, uint32_t n_heads, uint32_t head_dim,
                          ag_error *err) {
    return ag_tensor_reshape(out, t, ag_shape_3d(ag_shape_rows(&t->shape), n_heads, head_dim), err);
}

/* Returns the rows of q, k or v of one sequence, by heads. */
static ag_status rows_of_sequence(ag_tensor *out, const ag_sequence *s, const ag_tensor *t,
                                  ag_error *err) {
    const size_t n_heads = t->shape.dim[1], head_dim = t->shape.dim[2];
    ag_tensor rows;
    AG_TRY(ag_tensor_rows(&rows, t, s->row0 * n_heads, s->n * n_heads, err));
    return ag_tensor_reshape(out, &rows, ag_shape_3d(s->n, n_heads, head_dim), err);
}

static ag_status keep_unrotated(const ag_sequence *s, uint32_t layer, const ag_tensor *k,
                                const uint32_t *positions, ag_error *err) {
    ag_tensor rows;
    if (!s->n || positions[s->row0] >= ag_kv_cache_params(s->cache)->n_protected) return AG_OK;
    AG_TRY(rows_of_sequence(&rows, s, k, err));
    return ag_kv_cache_keep_unrotated(s->cache, layer, &rows, positions + s->row0, err);
}

/* Rotates adjacent sequences with the same frequencies together. */
static ag_status rotate_heads(ag_backend *be, const ag_attention_layer *layer,
                              const ag_sequence *seqs, size_t n_seqs, const uint32_t *positions,
                              const ag_tensor *q, const ag_tensor *k, ag_error *err) {
    if (!layer->inv_freq[0]) return AG_OK;
    for (size_t i = 0, end; i < n_seqs; i = end) {
        ag_sequence run = seqs[i];
        ag_tensor q_rows, k_rows;
        for (end = i + 1; end < n_seqs && seqs[end].is_long == run.is_long; end++) {
            run.n += seqs[end].n;
        }
        AG_TRY(rows_of_sequence(&q_rows, &run, q, err));
        if (layer->shares_kv) {
            AG_TRY(ag_take_error(
                be, ag_rope(be, &q_rows, positions + run.row0, layer->inv_freq[run.is_long]), err));
            continue;
        }
        AG_TRY(rows_of_sequence(&k_rows, &run, k, err));
        AG_TRY(ag_take_error(be,
                             ag_rope_pair(be, &q_rows, &k_rows, positions + run.row0,
                                          layer->inv_freq[run.is_long], layer->rope_factor),
                             err));
    }
    return AG_OK;
}

/* Scales adjacent rows of one period together. The factor of period 0 is 1. */
static ag_status scale_queries(ag_backend *be, const ag_attention_layer *layer,
                               const uint32_t *positions, const ag_tensor *q, ag_error *err) {
    const size_t n = layer->query_beta != 0 ? q->shape.dim[0] : 0;
    for (size_t i = 0, end; i < n; i = end) {
        const uint32_t periods = positions[i] / layer->query_period;
        for (end = i + 1; end < n && positions[end] / layer->query_period == periods;) end++;
        if (!periods) continue;
        const ag_sequence run = {.row0 = i, .n = end - i};
        ag_tensor rows;
        AG_TRY(rows_of_sequence(&rows, &run, q, err));
        const float factor = 1 + layer->query_beta * logf(1 + (float)periods);
        AG_TRY(ag_take_error(be, ag_scale(be, &rows, factor), err));
    }
    return AG_OK;
}

/* Rotates queries and keys alike, which keeps their products. k NULL: keys have been rotated. */
static ag_status hadamard_rotate(ag_backend *be, const ag_sequence *s, const ag_tensor *q,
                                 const ag_tensor *k, ag_error *err) {
    if (!ag_kv_cache_params(s->cache)->hadamard) return AG_OK;
    ag_tensor rows;
    AG_TRY(rows_of_sequence(&rows, s, q, err));
    AG_TRY(ag_kv_hadamard(be, &rows, err));
    if (!k) return AG_OK;
    AG_TRY(rows_of_sequence(&rows, s, k, err));
    return ag_kv_hadamard(be, &rows, err);
}

/* Returns whether queries and keys may be rotated when keys are written. */
static bool rotates_in_write(const ag_backend *be, const ag_attention_layer *layer,
                             const ag_sequence *seqs, size_t n_seqs) {
    bool fits = n_seqs && ag_has_rope_kv_write(be) && !layer->shares_kv && layer->inv_freq[0] &&
                layer->query_beta == 0;
    for (size_t i = 0; i < n_seqs; i++) {
        fits = fits && seqs[i].is_long == seqs[0].is_long &&
               !ag_kv_cache_params(seqs[i].cache)->hadamard;
    }
    return fits;
}

/* Appends the rows of all sequences together. views: their caches. r NULL: keys are rotated. */
static ag_status append_to_caches(ag_backend *be, const ag_sequence *seqs, size_t n_seqs,
                                  uint32_t layer, const ag_attention_seq *views,
                                  const ag_rotation *r, const ag_tensor *k, const ag_tensor *v,
                                  ag_error *err) {
    ag_status st = AG_OK;
    size_t begun = 0;
    for (; begun < n_seqs && st == AG_OK; begun++) {
        const ag_sequence *s = &seqs[begun];
        st = ag_kv_cache_begin_update(s->cache, layer, views[begun].visible_until, s->n, err);
    }
    if (st == AG_OK) {
        st = ag_take_error(be,
                           r ? ag_rope_kv_write(be, views, n_seqs, r, k, v)
                             : ag_kv_write_all(be, views, n_seqs, k, v),
                           err);
    }
    for (size_t i = 0; i < begun; i++) {
        if (st != AG_OK) ag_kv_cache_cancel_update(seqs[i].cache, layer);
        else ag_kv_cache_end_update(seqs[i].cache, layer, views[i].visible_until, seqs[i].n);
    }
    return st;
}

static ag_attention_seq attention_seq_of(const ag_sequence *s, const ag_attention_layer *l,
                                         const uint32_t *positions) {
    const uint32_t layer = l->index;
    ag_attention_seq seq = {
        .row0 = s->row0,
        .n_rows = s->n,
        .visible_until = positions + s->row0,
        .visible_from = l->visible_from ? l->visible_from + s->row0 : NULL,
    };
    if (!s->scores.chunks) ag_score_sums_set_layer(&s->scores, layer, &seq);
    ag_kv_cache_get_view(s->cache, layer, &seq.kv);
    return seq;
}

/* Runs before attention, whose output buffer serves as scratch. */
static ag_status attend_chunks(const ag_sequence *s, const ag_attention_layer *l,
                               const ag_tensor *q, ag_tensor *out, ag_error *err) {
    ag_attention_seq seq = {0};
    ag_tensor q_rows, out_rows;
    if (!s->scores.chunks) return AG_OK;
    AG_TRY(rows_of_sequence(&q_rows, s, q, err));
    AG_TRY(rows_of_sequence(&out_rows, s, out, err));
    ag_score_sums_set_layer(&s->scores, l->index, &seq);
    ag_kv_cache_get_view(s->cache, l->index, &seq.kv);
    return ag_chunk_scores_add(s->scores.chunks, l->index, &q_rows, &out_rows, &seq, &l->params,
                               err);
}

static ag_status reload_spilled(const ag_sequence *s, const ag_attention_layer *l,
                                const ag_tensor *q, ag_error *err) {
    ag_tensor q_rows;
    if (!s->scores.reloader) return AG_OK;
    AG_TRY(rows_of_sequence(&q_rows, s, q, err));
    return ag_reloader_run_layer(s->scores.reloader, l->index, &q_rows, l->params.scale, err);
}

ag_status ag_self_attention(ag_backend *be, const ag_attention_layer *layer,
                            const ag_sequence *seqs, size_t n_seqs, const ag_workspace *ws,
                            ag_tensor *out, ag_tensor *q, ag_tensor *k, ag_tensor *v,
                            ag_error *err) {
    ag_tensor q_heads, k_heads, v_heads, out_heads;
    const uint32_t *positions = ws->positions;
    AG_TRY(by_heads(&q_heads, q, layer->n_heads, layer->head_dim, err));
    AG_TRY(by_heads(&out_heads, out, layer->n_heads, layer->head_dim, err));
    const bool has_kv = !layer->shares_kv;
    if (has_kv) AG_TRY(by_heads(&k_heads, k, layer->n_kv_heads, layer->head_dim, err));
    if (has_kv) AG_TRY(by_heads(&v_heads, v, layer->n_kv_heads, layer->head_dim, err));
    for (size_t i = 0; has_kv && i < n_seqs; i++) {
        AG_TRY(keep_unrotated(&seqs[i], layer->index, &k_heads, positions, err));
    }
    const bool fused = rotates_in_write(be, layer, seqs, n_seqs);
    const ag_rotation rotation = {.q = &q_heads,
                                  .inv_freq = fused ? layer->inv_freq[seqs[0].is_long] : NULL,
                                  .factor = layer->rope_factor};
    if (!fused) AG_TRY(rotate_heads(be, layer, seqs, n_seqs, positions, &q_heads, &k_heads, err));
    AG_TRY(scale_queries(be, layer, positions, &q_heads, err));
    for (size_t i = 0; i < n_seqs; i++) {
        AG_TRY(hadamard_rotate(be, &seqs[i], &q_heads, has_kv ? &k_heads : NULL, err));
        ws->attention[i] = attention_seq_of(&seqs[i], layer, positions);
    }
    if (has_kv) {
        AG_TRY(append_to_caches(be, seqs, n_seqs, layer->index, ws->attention,
                                fused ? &rotation : NULL, &k_heads, &v_heads, err));
    }
    for (size_t i = 0; has_kv && i < n_seqs; i++) {
        AG_TRY(attend_chunks(&seqs[i], layer, &q_heads, &out_heads, err));
        AG_TRY(reload_spilled(&seqs[i], layer, &q_heads, err));
    }
    return ag_take_error(
        be, ag_attention(be, &out_heads, &q_heads, ws->attention, n_seqs, &layer->params), err);
}
