/* SPDX-License-Identifier: Apache-2.0 */
/* Self-attention of a pass that may carry tokens of several sequences. */
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
    uint32_t position;          /* logical, of ids[0] */
    ag_attention_scores scores; /* zeroed: not wanted */
    const atomic_bool *cancel;  /* NULL, or asked on the way: true ends the pass */
    ag_layer_state *state;      /* of layers without keys and values; NULL: there are none */
    bool is_long;               /* turns by the frequencies for long texts */
    size_t n_without_output;    /* of the first ones nobody asks what comes out of the pass */
    size_t row0;                /* of the pass's rows; set by the pass */
    /* Set by the pass: the first token that has a result, and its row among the results. */
    size_t first_result, result_row;
} ag_sequence;

/* The row of the result of token i, which is wanted. */
static inline size_t ag_sequence_result(const ag_sequence *s, size_t i) {
    return s->result_row + (i - s->first_result);
}

/* What attention does in one layer. */
typedef struct ag_attention_layer {
    uint32_t index; /* in the caches */
    bool shares_kv; /* what another layer has put there; k and v are not read */
    uint32_t n_heads, n_kv_heads, head_dim;
    /* [n / 2] the first n values of a head turn; of short and of long texts. NULL: none turns */
    const ag_tensor *inv_freq[2];
    float rope_factor; /* of the values that turn */
    float query_beta;  /* of what positions add to queries: ag_model_spec; 0: nothing */
    uint32_t query_period;
    ag_attention_params params;
    const uint32_t *visible_from; /* [n rows of the pass]; NULL: every row sees all before it */
} ag_attention_layer;

/* Rotates q and k, appends k and v to each sequence's cache and attends.
 *   out, q [n, n_heads * head_dim]  k, v [n, n_kv_heads * head_dim]  F32; q and k turn in place.
 *          k and v may be NULL where keys and values are another layer's
 *   ws->positions [n] logical; ws->attention [n_seqs] is overwritten */
ag_status ag_self_attention(ag_backend *be, const ag_attention_layer *layer,
                            const ag_sequence *seqs, size_t n_seqs, const ag_workspace *ws,
                            ag_tensor *out, ag_tensor *q, ag_tensor *k, ag_tensor *v,
                            ag_error *err);

#endif
