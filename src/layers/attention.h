/* SPDX-License-Identifier: Apache-2.0 */
/* Self-attention of a pass that may carry tokens of several sequences. */
#ifndef AG_LAYERS_ATTENTION_H
#define AG_LAYERS_ATTENTION_H

#include "cache/cache_manager.h"

/* A run of consecutive rows that belong to one sequence. */
typedef struct ag_sequence {
    ag_kv_cache *cache;
    size_t row0, n_rows;
    ag_attention_scores scores; /* none: zeroed */
} ag_sequence;

typedef struct ag_attention_shape {
    uint32_t n_heads, n_kv_heads, head_dim;
} ag_attention_shape;

#define AG_MAX_SEQUENCES 64

/* Rotates q and k, appends k and v to each sequence's cache and attends.
 *   out, q [n, n_heads * head_dim]  k, v [n, n_kv_heads * head_dim]  F32; q and k are rotated in
 * place positions [n] logical */
ag_status ag_self_attention(ag_backend *be, const ag_attention_shape *shape, uint32_t layer,
                            const ag_sequence *seqs, size_t n_seqs, const uint32_t *positions,
                            const ag_tensor *inv_freq, ag_tensor *out, ag_tensor *q, ag_tensor *k,
                            ag_tensor *v, ag_error *err);

#endif
