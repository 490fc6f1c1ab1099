/* SPDX-License-Identifier: Apache-2.0 */
/* One token of one sequence through a whole model, for backends that have something better for it
 * than one operation after the other. All borrowed. */
#ifndef AG_CORE_DECODE_STEP_H
#define AG_CORE_DECODE_STEP_H

#include "core/kv_view.h"

/* What a sampler needs of a row of logits. Better is the larger value and, among equals, the lower
 * id; -INFINITY is never among the best. */
enum { AG_TOP_K_MOST = 384, AG_TOP_K_IDS = 128 };
typedef struct ag_top_k {
    size_t k;           /* how many are wanted, 1 .. AG_TOP_K_MOST */
    const int32_t *ids; /* [n_ids], up to AG_TOP_K_IDS, inside the row; host memory */
    size_t n_ids;
    bool known;                      /* what follows has been written */
    int32_t best_ids[AG_TOP_K_MOST]; /* [n] best first */
    float best[AG_TOP_K_MOST];       /* [n] their values; -0 as 0 */
    size_t n;                        /* fewer than k if there are no more */
    float at[AG_TOP_K_IDS];          /* [n_ids] values at the ids */
    size_t bad;                      /* first id whose value is NaN or +Inf; SIZE_MAX: none */
} ag_top_k;

typedef enum ag_activation { AG_ACTIVATION_SILU, AG_ACTIVATION_GELU_TANH } ag_activation;

/* One block: RMSNorm, q/k/v, RoPE, attention, output, RMSNorm, gate and up, activation, down. All
 * borrowed; NULL: not in this model, but for the matrices. Matrices as ag_prepare_weight left them,
 * biases and norms F32, one value for each output row or column. */
typedef struct ag_decode_layer {
    const ag_tensor *attention_norm, *ffn_norm;
    const ag_tensor *wq, *wk, *wv, *wo, *w_gate, *w_up, *w_down;
    const ag_tensor *bq, *bk, *bv, *bo, *b_gate, *b_up, *b_down;
    const ag_tensor *q_norm, *k_norm; /* before RoPE: [head_dim] of every head, or of all heads */
    /* of a branch's output, before it is added to the stream */
    const ag_tensor *post_attention_norm, *post_ffn_norm;
    const ag_tensor *inv_freq; /* [n / 2] on the host: the first n values of a head are rotated */
    float rope_factor;         /* of the values that are rotated */
    uint32_t n_heads;
    float scale;     /* of q . k */
    float softcap;   /* as in ag_attention_params; 0: none */
    uint32_t window; /* newest positions that the token sees, its own included; 0: all */
    const uint32_t *visible_from; /* [1] with a window: where the operations find the first one */
    ag_activation activation;
} ag_decode_layer;

typedef struct ag_decode_step {
    const ag_decode_layer *layers;
    uint32_t n_layers;
    const ag_tensor *norm, *lm_head;
    float eps;
    float logit_softcap;       /* 0: none */
    uint32_t query_periods;    /* that make queries larger at this position; 0: none */
    bool hadamard;             /* queries and keys are rotated once more: core/hadamard.h */
    const float *embedding;    /* [dim] the token's row, on the host */
    uint32_t position;         /* logical */
    const uint32_t *positions; /* [1] where the operations will find it */
    ag_tensor *rows;           /* [n, dim] F32 the stream; of a step the first row is used */
    const ag_kv_view *kv;      /* [n_layers] before the token; the block of its slot is there */
    ag_buffer *device_scores;  /* as in ag_attention_seq; NULL: attention weights are not wanted */
    const uint32_t *scored;    /* [n_layers][n_kv_heads] with device_scores */
    size_t score_row0;
    ag_tensor *logits;  /* [1, n_vocab] F32 */
    float *host_logits; /* [n_vocab] the same on the host; NULL: not wanted there */
    ag_top_k *top;      /* what a sampler wants of them; NULL: nothing */
} ag_decode_step;

/* What a step has beyond RMSNorm, q/k/v without bias, RoPE of whole heads, attention to all
 * positions, SiLU and layers that are alike. A bit is set if any layer has it. */
enum {
    AG_STEP_QKV_BIAS = 1 << 0,
    AG_STEP_OUT_BIAS = 1 << 1,
    AG_STEP_FFN_BIAS = 1 << 2,
    AG_STEP_QK_NORM = 1 << 3,
    AG_STEP_POST_NORM = 1 << 4,
    AG_STEP_NO_PRE_NORM = 1 << 5, /* a branch begins without a norm */
    AG_STEP_GELU = 1 << 6,
    AG_STEP_WINDOW = 1 << 7,
    AG_STEP_SOFTCAP = 1 << 8,
    AG_STEP_LOGIT_SOFTCAP = 1 << 9,
    AG_STEP_PARTIAL_ROPE = 1 << 10, /* some or all values of a head are not rotated */
    /* Layers differ in heads, head size, cache types, rotation, scale, softcap or activation. */
    AG_STEP_LAYER_KINDS = 1 << 11,
    AG_STEP_HADAMARD = 1 << 12,
    AG_STEP_SCORES = 1 << 13, /* attention weights are added up on the device */
    AG_STEP_WHOLE_QK_NORM = 1 << 14,
    AG_STEP_QUERY_FACTOR = 1 << 15, /* the position makes queries larger */
};
/* The bits that the step has. A backend names those that it covers (ag_backend_ops), and is not
 * asked for a step that has others. */
uint32_t ag_step_features(const ag_decode_step *step);
/* Slots of the longest head of any layer. */
uint32_t ag_step_most_slots(const ag_decode_step *step);

#endif
