/* SPDX-License-Identifier: Apache-2.0 */
/* A model's inside: everything between token ids and logits. */
#ifndef AG_MODELS_MODEL_IMPL_H
#define AG_MODELS_MODEL_IMPL_H

#include "core/stages.h"
#include "layers/run.h"
#include "models/embedding.h"
#include "models/weights.h"

struct ag_model {
    ag_backend *backend; /* borrowed */
    ag_model_spec spec;
    ag_model_info info;
    ag_weight_source *source; /* owned; NULL for a synthetic model */
    ag_model_weights weights;
    ag_embedding embedding, layer_inputs; /* the latter only where layers have inputs */
    ag_buffer *ones;                      /* NULL: no norm is without weight */
    ag_tensor inv_freq[AG_MAX_ROPES][2];  /* [n_rotated / 2] on the host; for short, long texts */
    ag_buffer *inv_freq_owner[AG_MAX_ROPES][2];
    ag_program *program;    /* owned; of the forward pass */
    ag_bound_weight *bound; /* owned; [program->n_weights] */
    /* Called after operations; NULL: none. Steps that a device takes as a whole call no hook, so a
     * session asks for none while there is one. */
    const ag_op_hook *hook;
    struct {
        ag_op_hook hook;
        double *seconds;    /* borrowed; [program->n_ops] */
        double last;        /* when the last operation ended */
    } times;                /* of ag_model_time_ops() */
    ag_workspace workspace; /* shared by the model's sessions */
    /* Values of the program, [rows of the workspace, hidden_size]: embeddings before a pass, and
     * what comes out of it. The former is free after a pass. */
    ag_tensor stream, hidden;
    ag_sequence *sequences; /* owned; as many as the workspace is for */
    ag_sequence *selected;  /* behind them: as many, of a pass that goes on with some rows */
    ag_kv_growth *growth;   /* owned; as many: what a pass adds to their caches */
    ag_tensor logit_rows;   /* some rows of logits; made when first needed */
    ag_buffer *logit_rows_owner;
    /* Owned; [program->n_attend]: caches of a step. NULL: the backend runs no program of stages, or
     * this is none. */
    ag_kv_view *views;
};

/* Random weights for any description, as ag_model_synthetic has them for those that have a name. */
ag_status ag_model_random(ag_backend *be, const ag_model_spec *spec, const ag_model_params *params,
                          ag_model **out, ag_error *err);

/* Layers with a state, one after another: their number; `out` has space for all layers. */
uint32_t ag_model_states(const ag_model *m, ag_state_layer *out);

/* By what a layer's queries and keys turn; NULL: they do not. *factor: of what turns. */
const ag_tensor *ag_model_rope(const ag_model *m, uint32_t layer, bool is_long, float *factor);

/* Takes every item's tokens through the program and appends them to its cache. Afterwards `hidden`
 * has the final hidden states of the tokens that are wanted, and maybe of others:
 * ag_sequence_result(). Fails as a whole: the caches are then as before.
 * AG_LIMIT if a cache has no room or the rows pass the workspace; AG_INVALID for an unknown id;
 * AG_CANCELLED if an item's `cancel`, asked before every layer, says so. */
ag_status ag_model_forward(ag_model *m, ag_sequence *items, size_t n_items, ag_error *err);

/* logits [n_rows, n_vocab] of rows of hidden states from row0 on. */
ag_status ag_model_logits(ag_model *m, const ag_tensor *hidden, size_t row0, size_t n_rows,
                          ag_tensor *logits, ag_error *err);

/* One token of one sequence down to its logits, if the backend runs the program as a whole, and
 * the model and the cache allow it: *done. Else nothing has happened.
 *   host_logits  [n_vocab] a copy of the logits; NULL: not wanted
 *   top          asked for; top->known says whether it was answered. NULL: not wanted */
ag_status ag_model_device_step(ag_model *m, ag_sequence *item, ag_tensor *logits,
                               float *host_logits, ag_top_k *top, bool *done, ag_error *err);

/* Opens the files of a model and reads everything that is known before its weights are read.
 * params: `given`, which may be NULL, with every choice made. *source is the caller's, also after a
 * failure, and may be NULL then. */
ag_status ag_model_open(const ag_backend *be, const char *path, const ag_model_params *given,
                        ag_model_params *params, ag_weight_source **source, ag_model_spec *spec,
                        ag_weights_summary *summary, ag_model_info *info, ag_error *err);

/* Of a model's weights as a backend keeps them (be NULL: as their type says). */
typedef struct ag_weights_plan {
    uint64_t bytes, largest; /* largest: one buffer */
} ag_weights_plan;

/* What ag_model_load() and ag_model_synthetic() will make, from headers and shapes alone. */
ag_status ag_model_plan(const ag_backend *be, const char *path, const ag_model_params *params,
                        ag_model_info *out, ag_weights_plan *plan, ag_error *err);
ag_status ag_model_plan_synthetic(const ag_backend *be, const char *shape,
                                  const ag_model_params *params, ag_model_info *out,
                                  ag_weights_plan *plan, ag_error *err);

/* A number that tells models apart: of names, sizes and some bytes of every tensor in the files, of
 * the rotation's frequencies and the last norm. The path does not matter. */
ag_status ag_model_sample(ag_model *m, uint64_t *out, ag_error *err);

/* Sizes of a workspace for so many rows of so many sequences. */
ag_workspace_shape ag_model_workspace_shape(const ag_model_info *info, size_t n_rows,
                                            size_t n_seqs);
/* Makes sure that a pass may have so many. */
ag_status ag_model_reserve(ag_model *m, size_t n_rows, size_t n_seqs, ag_error *err);
/* The workspace's list of what rows see first in layers of this kind; NULL: they see everything. */
uint32_t *ag_model_visible_from(const ag_model *m, uint32_t kind);

#endif
