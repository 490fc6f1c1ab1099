/* SPDX-License-Identifier: Apache-2.0 */
/* The list of tensors a Llama checkpoint has: one table that surveying, loading and making up
 * weights walk through. */
#ifndef AG_MODELS_LLAMA_TENSORS_H
#define AG_MODELS_LLAMA_TENSORS_H

#include "models/config.h"

#include <stddef.h>

typedef enum ag_weight_kind {
    AG_WEIGHT_MATRIX, /* [rows, cols], prepared for the backend */
    AG_WEIGHT_VECTOR, /* [rows], norms and biases, F32 */
} ag_weight_kind;

typedef struct ag_weight_spec {
    char name[96]; /* "model.layers.3.mlp.up_proj.weight" */
    ag_weight_kind kind;
    size_t rows, cols; /* cols 1 for a vector */
    size_t member;     /* offset of the tensor in ag_llama_layer */
} ag_weight_spec;

/* Tensors of one layer. */
size_t ag_layer_weight_count(const ag_llama_config *c);
/* The i-th of layer `layer`. */
ag_weight_spec ag_layer_weight(const ag_llama_config *c, uint32_t layer, size_t i);

/* The norm after the last layer, and the two tables [vocab_size, hidden_size] under either name. */
#define AG_EMBEDDING_NAME "model.embed_tokens.weight"
#define AG_LM_HEAD_NAME "lm_head.weight"
ag_weight_spec ag_norm_weight(const ag_llama_config *c);
ag_weight_spec ag_table_weight(const ag_llama_config *c, const char *name);

/* Values of all tensors; a tied table counts once. */
uint64_t ag_llama_parameters(const ag_llama_config *c, bool tied);

#endif
