/* SPDX-License-Identifier: Apache-2.0 */
/* Stages: operations of a program that a backend may run as one, for programs that go from
 * embeddings to logits in stages alone. */
#ifndef AG_CORE_STAGES_H
#define AG_CORE_STAGES_H

#include "core/kv_view.h"
#include "core/program.h"
#include "core/top_k.h"

typedef enum ag_stage_pattern {
    AG_STAGE_NORMED,    /* NORM of the stream, PRODUCTS: q, k, v */
    AG_STAGE_ATTENTION, /* any BIAS of q, k, v, any NORM of q, k, then ATTEND */
    AG_STAGE_ADDED,     /* PRODUCTS, perhaps a BIAS, ADD to the stream */
    AG_STAGE_GATED,     /* NORM of the stream, PRODUCTS: two, GATE by SiLU or GELU */
    AG_STAGE_LOGITS,    /* NORM of the stream, PRODUCTS: logits; the last operations */
} ag_stage_pattern;

struct ag_stage {
    uint32_t first, n; /* operations */
    ag_stage_pattern pattern;
};

/* Lists the stages of a program, up to the first operation that is in none. A stage reads the
 * stream, or what the stage before it leaves: ATTENTION reads NORMED, ADDED reads ATTENTION or
 * GATED. Attention with a soft cap or with keys of another layer is in no stage. */
ag_status ag_find_stages(ag_program *p, ag_error *err);
/* All operations are in stages. */
bool ag_has_stages(const ag_program *p);

/* One token of one sequence, for a backend that runs a program of stages as a whole. All borrowed.
 */
typedef struct ag_step {
    const ag_program *program;
    const ag_bound_weight *weights; /* [program->n_weights] as ag_prepare_weight left them */
    ag_tensor (*inv_freq)[2];       /* [tables] for short and for long texts, on the host */
    const ag_kv_view *kv;           /* [caches] before the token; the block of its slot is there */
    const float *embedding;         /* [dim] the token's row, on the host */
    uint32_t position;              /* logical */
    bool is_long;                   /* the tables for long texts are used */
    bool hadamard;                  /* queries and keys are rotated once more: core/hadamard.h */
    ag_tensor *logits;              /* [1, n_vocab] F32 */
    float *host_logits;             /* [n_vocab] the same on the host; NULL: not wanted there */
    ag_top_k *top;                  /* what a sampler wants of them; NULL: nothing */
} ag_step;

#endif
