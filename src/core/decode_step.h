/* SPDX-License-Identifier: Apache-2.0 */
/* One token of one sequence through a whole model, for backends that have something better for it
 * than one operation after the other. All borrowed. */
#ifndef AG_CORE_DECODE_STEP_H
#define AG_CORE_DECODE_STEP_H

#include "core/kv_view.h"

/* What a sampler needs of a row of logits. Better is the larger value and, among equals, the lower
 * id; -INFINITY is never among the best. */
enum { AG_ROW_TOP_K = 384, AG_ROW_TOP_IDS = 128 };
typedef struct ag_row_top {
    size_t k;           /* how many are wanted, 1 .. AG_ROW_TOP_K */
    const int32_t *ids; /* [n_ids], up to AG_ROW_TOP_IDS, inside the row; host memory */
    size_t n_ids;
    bool known;                     /* what follows has been written */
    int32_t best_ids[AG_ROW_TOP_K]; /* [n] best first */
    float best[AG_ROW_TOP_K];       /* [n] their values; -0 as 0 */
    size_t n;                       /* fewer than k if there are no more */
    float at[AG_ROW_TOP_IDS];       /* [n_ids] values at the ids */
    size_t bad;                     /* first id whose value is NaN or +Inf; SIZE_MAX: none */
} ag_row_top;

/* A block of the Llama family: RMSNorm, q/k/v, RoPE, attention, output, RMSNorm,
 * gate and up, SiLU, down. Matrices as ag_prepare_weight left them. */
typedef struct ag_decode_layer {
    const ag_tensor *attention_norm, *ffn_norm;
    const ag_tensor *wq, *wk, *wv, *wo, *w_gate, *w_up, *w_down;
    const ag_tensor *bq, *bk, *bv, *bo; /* one value per output row, F32; NULL: none */
} ag_decode_layer;

typedef struct ag_decode_step {
    const ag_decode_layer *layers;
    uint32_t n_layers, n_heads;
    const ag_tensor *norm, *lm_head;
    const ag_tensor *inv_freq; /* [head_dim / 2], on the host */
    float eps, scale;
    bool hadamard;             /* queries and keys are rotated once more: core/hadamard.h */
    const float *embedding;    /* [dim] the token's row, on the host */
    uint32_t position;         /* logical */
    const uint32_t *positions; /* [1] where the operations will find it */
    ag_tensor *rows;           /* [n, dim] F32 the stream; of a step the first row is used */
    const ag_kv_view *kv;      /* [n_layers] before the token; the block of its slot is there */
    ag_buffer *held_scores;    /* as in ag_attention_seq; NULL: attention weights are not wanted */
    const uint32_t *scored;    /* [n_layers][n_kv_heads] with held_scores */
    size_t score_row0;
    ag_tensor *logits;  /* [1, n_vocab] F32 */
    float *host_logits; /* [n_vocab] the same on the host; NULL: not wanted there */
    ag_row_top *top;    /* what a sampler wants of them; NULL: nothing */
} ag_decode_step;

#endif
