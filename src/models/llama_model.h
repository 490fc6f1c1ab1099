/* SPDX-License-Identifier: Apache-2.0 */
/* The Llama family: everything between token ids and logits. */
#ifndef AG_MODELS_LLAMA_MODEL_H
#define AG_MODELS_LLAMA_MODEL_H

#include "core/decode_step.h"
#include "models/embedding.h"
#include "models/llama_weights.h"

struct ag_model {
    ag_backend *backend; /* borrowed */
    ag_llama_config config;
    ag_model_info info;
    ag_weight_files *files; /* owned; NULL for a synthetic model */
    ag_llama_weights weights;
    ag_embedding embedding;
    ag_tensor inv_freq; /* [head_dim / 2] */
    ag_buffer *inv_freq_owner;
    ag_workspace workspace; /* shared by the model's sessions */
    struct {
        ag_decode_layer *layers; /* owned; NULL: not listed yet */
        ag_kv_view *views;       /* owned; [n_layers] */
    } decode;
};

/* Random weights for any sizes, as ag_model_synthetic has them for those that have a name. */
ag_status ag_model_random(ag_backend *be, const ag_llama_config *config,
                          const ag_model_params *params, ag_model **out, ag_error *err);

/* The next n tokens of one sequence. */
typedef struct ag_forward_item {
    ag_kv_cache *cache;
    const int32_t *ids;
    size_t n;
    uint32_t position;          /* logical, of ids[0] */
    ag_attention_scores scores; /* zeroed: not wanted */
} ag_forward_item;

/* Takes every item's tokens through all layers and appends them to its cache. Afterwards row i of
 * the workspace's `normed` (items one after another) is the final hidden state of token i. Fails as
 * a whole: the caches are then as before.
 * AG_LIMIT if a cache has no room or the rows pass the workspace; AG_INVALID for an unknown id. */
ag_status ag_llama_forward(ag_model *m, const ag_forward_item *items, size_t n_items,
                           ag_error *err);

/* The same for one token whose embedding is in the first row of the workspace's `residual`. */
ag_status ag_llama_forward_row(ag_model *m, const ag_forward_item *item, ag_error *err);

/* logits [n_rows, n_vocab] of the last pass's rows from row0 on. */
ag_status ag_llama_logits(ag_model *m, size_t row0, size_t n_rows, ag_tensor *logits,
                          ag_error *err);

/* One token of one sequence down to its logits, if the backend takes such a step as a whole or
 * repeats an earlier one, and the model and the cache allow it: *done. Else nothing has happened.
 *   host_logits  [n_vocab] a copy of the logits; NULL: not wanted
 *   top          asked for; top->known says whether it was answered. NULL: not wanted */
ag_status ag_llama_decode(ag_model *m, const ag_forward_item *item, ag_tensor *logits,
                          float *host_logits, ag_row_top *top, bool *done, ag_error *err);
void ag_llama_decode_release(ag_model *m);

/* Of a model's weights as a backend keeps them (be NULL: as their type says). */
typedef struct ag_weights_plan {
    uint64_t bytes, largest; /* largest: one buffer */
} ag_weights_plan;

/* What ag_model_load() and ag_model_synthetic() will make, from headers and shapes alone. */
ag_status ag_model_plan(const ag_backend *be, const char *dir, const ag_model_params *params,
                        ag_model_info *out, ag_weights_plan *plan, ag_error *err);
ag_status ag_model_plan_synthetic(const ag_backend *be, const char *shape,
                                  const ag_model_params *params, ag_model_info *out,
                                  ag_weights_plan *plan, ag_error *err);

/* A number that tells models apart: of names, sizes and some bytes of every tensor in the files, of
 * the rotation's frequencies and the last norm. The directory's name does not matter. */
ag_status ag_model_sample(ag_model *m, uint64_t *out, ag_error *err);

/* Sizes of a workspace for so many rows. */
ag_workspace_shape ag_llama_workspace_shape(const ag_model_info *info, size_t n_rows);

#endif
