/* SPDX-License-Identifier: Apache-2.0 */
/* Self-attention of a pass, which may hold tokens of several sequences. */
#ifndef AG_LAYERS_ATTENTION_H
#define AG_LAYERS_ATTENTION_H

#include "cache/cache_manager.h"
#include "cache/layer_state.h"
#include "layers/workspace.h"

#include <stdatomic.h>

/* The next n tokens of one sequence in a pass. */
typedef struct ag_sequence {
    ag_kv_cache *cache;
    const int32_t *ids;
    size_t n;
    uint32_t position;          /* logical position of ids[0] */
    ag_attention_scores scores; /* zeroed: none are collected */
    const atomic_bool *cancel;  /* checked before every layer: true ends the pass; may be NULL */
    ag_layer_state *state;   /* state of layers without keys and values; NULL: the model has none */
    bool is_long;            /* rotates by the frequencies for long texts */
    size_t n_without_output; /* leading tokens whose results are not needed */
    size_t row0;             /* first row in the pass; set by the pass */
    /* Set by the pass: the first token that has a result, and the row of that result. */
    size_t first_result, result_row;
} ag_sequence;

/* Returns the row of the result of token i, which must have one. */
static inline size_t ag_sequence_result(const ag_sequence *s, size_t i) {
    return s->result_row + (i - s->first_result);
}

/* Parameters of attention in one layer. */
typedef struct ag_attention_layer {
    uint32_t index; /* index of the layer in the caches */
    bool shares_kv; /* uses the keys and values of another layer; k and v are not read */
    uint32_t n_heads, n_kv_heads, head_dim;
    /* [n / 2] rotates the first n values of a head; for short and for long texts. NULL: no
     * rotation */
    const ag_tensor *inv_freq[2];
    float rope_factor; /* multiplies the rotated values */
    float query_beta;  /* scales queries by position: see ag_model_spec; 0: no scaling */
    uint32_t query_period;
    ag_attention_params params;
    const uint32_t
        *visible_from; /* [rows of the pass]; NULL: every row sees all positions before it */
} ag_attention_layer;

/* Rotates q and k in place, appends k and v to the cache of each sequence and attends.
 *   out, q [n, n_heads * head_dim]  k, v [n, n_kv_heads * head_dim]  F32
 *          k and v may be NULL if the layer shares keys and values
 *   ws->positions [n] logical; ws->attention [n_seqs] is overwritten */
ag_status ag_self_attention(ag_backend *be, const ag_attention_layer *layer,
                            const ag_sequence *seqs, size_t n_seqs, const ag_workspace *ws,
                            ag_tensor *out, ag_tensor *q, ag_tensor *k, ag_tensor *v,
                            ag_error *err);

#endif
