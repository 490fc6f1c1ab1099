/* SPDX-License-Identifier: Apache-2.0 */
/* The list of tensors that a model has: one table that inspecting, loading and making up weights
 * walk through. */
#ifndef AG_MODELS_TENSORS_H
#define AG_MODELS_TENSORS_H

#include "core/layer_tensors.h"
#include "models/row_order.h"
#include "models/spec.h"

#include <stddef.h>

typedef enum ag_weight_kind {
    AG_WEIGHT_MATRIX, /* [rows, cols], prepared for the backend */
    AG_WEIGHT_VECTOR, /* [rows], norms and biases, F32 */
    AG_WEIGHT_FILTER, /* [rows, 1, cols] or without the 1: F32, stored as [cols, rows] */
} ag_weight_kind;

typedef struct ag_weight_spec {
    char name[112];     /* in the file: "model.layers.3.mlp.up_proj.weight" */
    char gguf_name[48]; /* in a GGUF file: "blk.3.ffn_up.weight" */
    ag_weight_kind kind;
    size_t rows, cols;      /* cols 1 for a vector */
    ag_layer_tensor tensor; /* its number, for a tensor of a layer */
    bool add_one;           /* 1 is added to what the file holds */
    float factor;           /* of a vector, at last; 0: none */
    bool minus_exp;         /* what the file holds is a logarithm: -exp of it is meant */
    ag_row_order order;     /* which rows of the file's tensor it is */
} ag_weight_spec;

/* Whether the file has value heads of a delta net in another order than the description; the order
 * of rows is then that of the weights, but for those that hold queries and keys as well and the
 * columns of the output: these are the converter's business. */
bool ag_spec_is_regrouped(const ag_model_spec *s, const ag_layer_spec *kind);
/* Where the file has each row of all values. */
ag_row_order ag_delta_value_order(const ag_layer_spec *kind);

/* Tensors of that layer. */
size_t ag_layer_weight_count(const ag_model_spec *s, uint32_t layer);
/* The i-th of them. */
ag_weight_spec ag_layer_weight(const ag_model_spec *s, uint32_t layer, size_t i);

/* The norm after the last layer, and the two tables [vocab_size, hidden_size]. */
ag_weight_spec ag_norm_weight(const ag_model_spec *s);
ag_weight_spec ag_embedding_weight(const ag_model_spec *s);
/* The table of what layers have for themselves, [n_layer_inputs, n_layers * layer_input]. */
ag_weight_spec ag_layer_input_weight(const ag_model_spec *s);
ag_weight_spec ag_lm_head_weight(const ag_model_spec *s);

/* How a checkpoint calls its tensors: models that also see or hear put their text part below
 * another, and GGUF files have names of their own. The i-th way, the usual one first; false past
 * the end. */
bool ag_tensor_naming(size_t i, ag_model_spec *s);
/* Whether the names are those of GGUF files. */
bool ag_spec_is_gguf(const ag_model_spec *s);
/* From now on they are. */
void ag_spec_name_as_gguf(ag_model_spec *s);

/* Values of all tensors; a tied table counts once. */
uint64_t ag_spec_parameters(const ag_model_spec *s, bool tied);

#endif
