/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of a model: one table for inspecting, loading and making random weights. */
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
    char name[112];     /* in the source: "model.layers.3.mlp.up_proj.weight" */
    char gguf_name[48]; /* in a GGUF file: "blk.3.ffn_up.weight" */
    ag_weight_kind kind;
    size_t rows, cols;      /* cols 1 for a vector */
    ag_layer_tensor tensor; /* for a tensor of a layer */
    bool add_one;           /* adds 1 to the file's values */
    float factor;           /* factor of a vector, applied last; 0: none */
    bool minus_exp;         /* the weight is -exp(file's values) */
    bool keeps_f32;         /* stored as F32, whatever the types of other matrices */
    ag_row_order order;     /* rows of the file's tensor */
    /* For a matrix of an expert: its number, of n_experts. 0 for other weights. */
    uint32_t expert, n_experts;
    uint32_t n_used;  /* experts of a token */
    uint32_t stacked; /* first dimension of the file's tensor, which has all experts; 0: none */
    bool is_mxfp4;    /* two U8 tensors of the file make blocks of MXFP4: ag_join_mxfp4() */
    bool transposed;  /* the file's tensor is [stacked, cols, rows], else [stacked, rows, cols] */
} ag_weight_spec;

enum { AG_MXFP4_BLOCK = 32 }; /* values of a block */

/* Returns the index in the file's tensor of column `col` of a weight's row. */
static inline size_t ag_weight_value_at(const ag_weight_spec *w, size_t row, size_t col) {
    const size_t at = ag_row_order_at(&w->order, row);
    if (!w->transposed) return at * w->cols + col;
    const size_t each = w->order.file_rows / w->stacked; /* rows of an expert in the file */
    return (at / each * w->cols + col) * each + at % each;
}

/* Returns the shape of the file's tensor. */
ag_shape ag_weight_file_shape(const ag_weight_spec *w);

/* Returns whether the file has value heads of a delta net in another order than the description.
 * ag_weight_spec.order covers most tensors; tensors that also hold queries and keys, and columns of
 * the output, are handled by the converter. */
bool ag_spec_is_regrouped(const ag_model_spec *s, const ag_layer_spec *kind);
/* Returns the order of rows of all value heads in the file. */
ag_row_order ag_delta_value_order(const ag_layer_spec *kind);

/* Returns the number of weights of a layer. Each expert's matrix counts. */
size_t ag_layer_weight_count(const ag_model_spec *s, uint32_t layer);
/* Returns the i-th weight of a layer. */
ag_weight_spec ag_layer_weight(const ag_model_spec *s, uint32_t layer, size_t i);

/* Return the norm after the last layer, and the two tables [vocab_size, hidden_size]. */
ag_weight_spec ag_norm_weight(const ag_model_spec *s);
ag_weight_spec ag_embedding_weight(const ag_model_spec *s);
/* Returns the table of layer inputs, [n_layer_inputs, n_layers * layer_input]. */
ag_weight_spec ag_layer_input_weight(const ag_model_spec *s);
ag_weight_spec ag_lm_head_weight(const ag_model_spec *s);

/* Sets the i-th naming of tensors, the usual one first. Multimodal models have another prefix, and
 * GGUF files have their own names. Returns false after the last. */
bool ag_tensor_naming(size_t i, ag_model_spec *s);
/* Sets the i-th naming of the matrices of experts, of those that the family's files have. Returns
 * false after the last. */
bool ag_expert_naming(size_t i, ag_model_spec *s);
/* Returns whether the names are those of GGUF files. */
bool ag_spec_is_gguf(const ag_model_spec *s);
/* Sets the naming of GGUF files. */
void ag_spec_name_as_gguf(ag_model_spec *s);

/* Returns the number of values of all tensors. A tied table counts once. */
uint64_t ag_spec_parameters(const ag_model_spec *s, bool tied);

#endif
