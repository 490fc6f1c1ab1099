/* SPDX-License-Identifier: Apache-2.0 */
/* Stages: groups of operations that a backend may run as one. A program that consists of stages
 * only can run on the device as a whole. */
#ifndef AG_CORE_STAGES_H
#define AG_CORE_STAGES_H

#include "core/kv_view.h"
#include "core/program.h"
#include "core/top_k.h"

typedef enum ag_stage_pattern {
    AG_STAGE_NORMED,    /* NORM of the stream, PRODUCTS: q, k, v */
    AG_STAGE_ATTENTION, /* any BIAS of q, k, v, any NORM of q, k, then ATTEND */
    AG_STAGE_ADDED,     /* PRODUCTS, optional BIAS, ADD to the stream */
    AG_STAGE_GATED,     /* NORM of the stream, PRODUCTS: two, GATE by SiLU or GELU */
    AG_STAGE_LOGITS,    /* NORM of the stream, PRODUCTS: logits; the last operations */
} ag_stage_pattern;

struct ag_stage {
    uint32_t first, n; /* operations */
    ag_stage_pattern pattern;
};

/* Lists the stages of a program, up to the first operation that is in none. A stage reads the
 * stream or the result of the stage before it: ATTENTION reads NORMED, ADDED reads ATTENTION or
 * GATED. Attention with a soft cap, with sinks or with the keys of another layer is in no
 * stage. */
ag_status ag_find_stages(ag_program *p, ag_error *err);
/* Returns whether all operations are in stages. */
bool ag_has_stages(const ag_program *p);

/* Job: one token of one sequence through a program of stages. All pointers are borrowed. */
typedef struct ag_step {
    const ag_program *program;
    const ag_bound_weight *weights; /* [program->n_weights] from ag_prepare_weight() */
    ag_tensor (*inv_freq)[2]; /* [tables] frequencies for short and for long texts, on the host */
    /* [caches] the views before the token, where the block of its slot exists, and where its
     * attention weights are added, in the backend's memory */
    const ag_attention_seq *seqs;
    const float *embedding; /* [dim] the token's row, on the host */
    uint32_t position;      /* logical */
    bool is_long;           /* uses the frequencies for long texts */
    bool hadamard;          /* also rotates queries and keys by core/hadamard.h */
    ag_tensor *logits;      /* [1, n_vocab] F32 */
    float *host_logits;     /* [n_vocab] a copy on the host; NULL: none */
    ag_top_k *top;          /* the request of a sampler; NULL: none */
} ag_step;

#endif
