/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of a model: tensors of a source, checked and prepared for a backend. */
#ifndef AG_MODELS_WEIGHTS_H
#define AG_MODELS_WEIGHTS_H

#include "core/layer_tensors.h"
#include "formats/weight_source.h"
#include "models/weight_types.h"

#include <antigravity/operations.h>

/* Tensors of a layer: matrices [rows, cols] in the backend's layout; norms, biases and convolutions
 * [taps, channels] in F32. Absent tensors have no buffer. All borrow the buffers of
 * ag_model_weights. */
typedef struct ag_layer {
    ag_tensor of[AG_LAYER_TENSOR_SLOTS];
} ag_layer;

/* Owns the buffers of all tensors. */
typedef struct ag_model_weights {
    ag_layer *layers;
    ag_tensor **experts; /* owned; [n_layers][AG_EXPERT_TABLES * experts]; NULL: no experts */
    uint32_t n_layers;
    ag_tensor norm, lm_head;
    ag_buffer **owners;
    size_t n_owners, max_owners;
    size_t n_bytes; /* size of all buffers */
} ag_model_weights;

/* Sizes and types of a source's weights, from headers only. */
typedef struct ag_weights_summary {
    const ag_source_tensor *embedding;    /* borrowed from the source */
    const ag_source_tensor *layer_inputs; /* borrowed; NULL: layers have no inputs */
    bool tied;                            /* lm_head is the embedding table */
    uint64_t matrix_bytes, other_bytes;   /* in memory, as plain rows of their types */
    uint64_t idle_bytes;            /* part of matrix_bytes: experts that a token does not use */
    uint64_t stored_bytes, largest; /* in the backend's layout; its largest buffer */
    uint64_t source_bytes;          /* bytes in the files of all weights that are loaded */
    ag_dtype file_type;             /* type of most values of matrices */
    ag_type_share
        types[AG_DTYPE_COUNT]; /* types of matrices in memory; unused types have 0 values */
    uint32_t n_kept;           /* matrices whose rows do not fit the requested type */
} ag_weights_summary;

/* Checks that every tensor exists with the right shape, and finds the naming of s. be NULL: sizes
 * of plain rows. Fails with AG_NOT_FOUND, AG_SHAPE or AG_UNSUPPORTED, naming the tensor. */
ag_status ag_model_weights_inspect(const ag_backend *be, ag_model_spec *s,
                                   const ag_weight_source *source, const ag_model_params *params,
                                   ag_weights_summary *out, ag_error *err);
/* The same for random weights: sets the members that do not depend on files. */
void ag_model_weights_inspect_random(const ag_backend *be, const ag_model_spec *s,
                                     const ag_model_params *params, ag_weights_summary *out);

/* Loads and converts all weights, and reports progress to params->progress. */
ag_status ag_model_weights_load(ag_model_weights *w, ag_backend *be, const ag_model_spec *s,
                                const ag_weight_source *source, const ag_weights_summary *summary,
                                const ag_model_params *params, ag_error *err);
/* Makes random weights. */
ag_status ag_model_weights_random(ag_model_weights *w, ag_backend *be, const ag_model_spec *s,
                                  const ag_model_params *params, ag_error *err);
void ag_model_weights_release(ag_model_weights *w);

/* ---- the steps of the above ---- */

/* Finds a tensor and checks its shape. */
ag_status ag_model_weights_find(const ag_weight_source *source, const ag_weight_spec *spec,
                                const ag_source_tensor **out, ag_error *err);

/* Returns the tensor of a layer's weight. */
ag_tensor *ag_model_weights_slot(const ag_model_weights *w, uint32_t layer,
                                 const ag_weight_spec *spec);

/* Finds the exponents of a weight that is_mxfp4. */
ag_status ag_model_weights_find_exponents(const ag_weight_source *source,
                                          const ag_weight_spec *spec, const ag_source_tensor **out,
                                          ag_error *err);
/* Returns the type of a weight in its file. t: its tensor. */
ag_dtype ag_weight_file_type(const ag_weight_spec *spec, const ag_source_tensor *t);

/* Returns the bytes of a weight in the file. */
uint64_t ag_weight_file_bytes(ag_dtype file, const ag_weight_spec *spec);

/* Makes *w empty, with lists for all tensors of s. */
ag_status ag_model_weights_begin(ag_model_weights *w, const ag_model_spec *s, ag_error *err);
/* Prepares src [rows, cols] as type `want` into *out. consumed: see ag_prepare_weight(). */
ag_status ag_model_weights_put_matrix(ag_model_weights *w, ag_backend *be, ag_tensor *out,
                                      const ag_weight_spec *spec, const ag_tensor *src,
                                      ag_dtype want, ag_consumed_fn consumed, void *user,
                                      ag_error *err);
/* Stores values [rows], or [cols, rows] for a filter, in *out, changed as `spec` says. Changes
 * `values`, too. Fails with AG_FORMAT if one is not finite. */
ag_status ag_model_weights_put_vector(ag_model_weights *w, ag_backend *be, ag_tensor *out,
                                      const ag_weight_spec *spec, float *values, ag_error *err);

#endif
