/* SPDX-License-Identifier: Apache-2.0 */
/* Model: the structure and internal functions between token ids and logits. */
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
    ag_embedding embedding, layer_inputs; /* layer_inputs: only for layers with inputs */
    ag_buffer *ones;                      /* NULL: all norms have weights */
    ag_tensor inv_freq[AG_MAX_ROPES][2]; /* [n_rotated / 2] on the host; for short and long texts */
    ag_buffer *inv_freq_owner[AG_MAX_ROPES][2];
    ag_program *program;    /* owned; the forward pass */
    ag_bound_weight *bound; /* owned; [program->n_weights] */
    /* Called after operations; NULL: none. ag_model_device_step() calls no hook, so sessions do not
     * use it while one is set. */
    const ag_op_hook *hook;
    struct {
        ag_op_hook hook;
        double *seconds; /* borrowed; [program->n_ops] */
        double last;     /* end of the last operation, in seconds */
    } times;             /* state of ag_model_time_ops() */
    ag_chosen_fn chosen; /* set by ag_model_observe_experts() */
    void *chosen_user;
    ag_workspace workspace; /* shared by the model's sessions */
    /* Values of the program, [rows of the workspace, hidden_size]: embeddings before a pass, and
     * its results. The stream is free after a pass. */
    ag_tensor stream, hidden;
    ag_sequence *sequences; /* owned; [n_seqs of the workspace] */
    ag_sequence *selected;  /* after `sequences`, same number: those of a pass after its cut */
    ag_kv_growth *growth;   /* owned; same number: growth of their caches */
    ag_tensor logit_rows;   /* rows of logits; NULL buffer until first use */
    ag_buffer *logit_rows_owner;
    /* Owned; [rows of logit_rows]: the last session whose logits were kept in the row. NULL: none.
     */
    struct ag_session **logit_row_users;
    /* Owned; [program->n_attend]: caches of ag_model_device_step(). NULL: the backend cannot run
     * the program as a whole. */
    ag_attention_seq *step_seqs;
};

/* Makes a model with random weights for any description. ag_model_synthetic() does so for named
 * shapes. */
ag_status ag_model_random(ag_backend *be, const ag_model_spec *spec, const ag_model_params *params,
                          ag_model **out, ag_error *err);

/* Writes the states of layers, in the order of layers. Returns their number. `out` must hold an
 * entry for each layer of the model. */
uint32_t ag_model_states(const ag_model *m, ag_state_layer *out);

/* Returns the frequencies that rotate a layer's queries and keys; NULL: no rotation. *factor
 * multiplies the rotated values. */
const ag_tensor *ag_model_rope(const ag_model *m, uint32_t layer, bool is_long, float *factor);

/* Gives a model that a loader of `be` has loaded to `be`. */
void ag_model_set_backend(ag_model *m, ag_backend *be);

/* Runs every item's tokens through the program and appends them to its cache. Afterwards `hidden`
 * has the final hidden states of the output rows, and perhaps of others: ag_sequence_result().
 * After a failure the caches are unchanged. Fails with AG_LIMIT if a cache is full or the rows
 * exceed the workspace; with AG_INVALID for an unknown id; with AG_CANCELLED if an item's `cancel`,
 * checked before every layer, is true. */
ag_status ag_model_forward(ag_model *m, ag_sequence *items, size_t n_items, ag_error *err);

/* Computes logits [n_rows, n_vocab] of rows of hidden states from row0 on. */
ag_status ag_model_logits(ag_model *m, const ag_tensor *hidden, size_t row0, size_t n_rows,
                          ag_tensor *logits, ag_error *err);

/* Runs one token of one sequence to its logits, if the backend runs the program as a whole, and
 * the model and the cache allow it: *done. Otherwise nothing has changed.
 *   host_logits  [n_vocab] a copy of the logits; NULL: none
 *   top          a request for top->k logits; top->known: it was answered. NULL: none */
ag_status ag_model_device_step(ag_model *m, ag_sequence *item, ag_tensor *logits,
                               float *host_logits, ag_top_k *top, bool *done, ag_error *err);

/* Opens the files of a model and reads everything but its weights. given: parameters, may be NULL.
 * params: the same with all choices made. The caller owns *source, also after a failure; it may
 * then be NULL. */
ag_status ag_model_open(const ag_backend *be, const char *path, const ag_model_params *given,
                        ag_model_params *params, ag_weight_source **source, ag_model_spec *spec,
                        ag_weights_summary *summary, ag_model_info *info, ag_error *err);

/* Memory of a model's weights on a backend (be NULL: plain rows of their types). */
typedef struct ag_weights_plan {
    uint64_t bytes, largest; /* largest: the largest buffer */
} ag_weights_plan;

/* Describe the result of ag_model_load() and ag_model_synthetic(), from headers and shapes only. */
ag_status ag_model_plan(const ag_backend *be, const char *path, const ag_model_params *params,
                        ag_model_info *out, ag_weights_plan *plan, ag_error *err);
ag_status ag_model_plan_synthetic(const ag_backend *be, const char *shape,
                                  const ag_model_params *params, ag_model_info *out,
                                  ag_weights_plan *plan, ag_error *err);

/* Computes a number that differs between models, from names, sizes and some bytes of every tensor
 * in the files, the rotary frequencies and the last norm. It does not depend on the path. */
ag_status ag_model_sample(ag_model *m, uint64_t *out, ag_error *err);

/* Returns the sizes of a workspace for n_rows rows of n_seqs sequences. */
ag_workspace_shape ag_model_workspace_shape(const ag_model_info *info, size_t n_rows,
                                            size_t n_seqs);
/* Enlarges the workspace for passes of n_rows rows of n_seqs sequences. */
ag_status ag_model_reserve(ag_model *m, size_t n_rows, size_t n_seqs, ag_error *err);

#endif
