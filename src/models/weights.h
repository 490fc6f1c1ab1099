/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of a weight source -> tensors of the layers, checked and prepared. */
#ifndef AG_MODELS_WEIGHTS_H
#define AG_MODELS_WEIGHTS_H

#include "core/layer_tensors.h"
#include "formats/weight_source.h"
#include "models/weight_types.h"

#include <antigravity/operations.h>

/* Weights in the backend's layout, [rows, cols] of models/tensors.c; norms, biases and convolutions
 * [taps, channels] F32. What the layer lacks has no buffer. All borrow the model's buffers. */
typedef struct ag_layer {
    ag_tensor of[AG_LAYER_TENSOR_SLOTS];
} ag_layer;

/* Owns every buffer that its tensors borrow. */
typedef struct ag_model_weights {
    ag_layer *layers;
    uint32_t n_layers;
    ag_tensor norm, lm_head;
    ag_buffer **owners;
    size_t n_owners, max_owners;
    size_t n_bytes; /* of all owners */
} ag_model_weights;

/* What a source holds, found without reading any data. */
typedef struct ag_weights_summary {
    const ag_source_tensor *embedding;    /* borrowed from the source */
    const ag_source_tensor *layer_inputs; /* the same; NULL: layers have none */
    bool tied;                            /* lm_head is the embedding */
    uint64_t matrix_bytes, other_bytes;   /* in memory at the wanted type */
    uint64_t stored_bytes, largest;       /* the same as the backend keeps it; its largest buffer */
    uint64_t source_bytes;                /* of everything that is converted */
    ag_dtype file_type;                   /* of the largest part of the matrices */
    ag_type_share types[AG_DTYPE_COUNT];  /* of the matrices in memory; of some there are none */
    uint32_t n_kept;                      /* matrices that keep the file's type against the wish */
} ag_weights_summary;

/* Checks that every tensor is there with the right shape: AG_NOT_FOUND, AG_SHAPE, AG_UNSUPPORTED
 * name it. Finds how the source begins their names. be NULL: not for any backend. */
ag_status ag_model_weights_inspect(const ag_backend *be, ag_model_spec *s,
                                   const ag_weight_source *source, const ag_model_params *params,
                                   ag_weights_summary *out, ag_error *err);
/* What random weights will take: the fields that files have nothing to do with. */
void ag_model_weights_inspect_random(const ag_backend *be, const ag_model_spec *s,
                                     const ag_model_params *params, ag_weights_summary *out);

/* Converts everything that the summary speaks of. `params` tells the type and hears of progress. */
ag_status ag_model_weights_load(ag_model_weights *w, ag_backend *be, const ag_model_spec *s,
                                const ag_weight_source *source, const ag_weights_summary *summary,
                                const ag_model_params *params, ag_error *err);
/* The same from random numbers. */
ag_status ag_model_weights_random(ag_model_weights *w, ag_backend *be, const ag_model_spec *s,
                                  const ag_model_params *params, ag_error *err);
void ag_model_weights_release(ag_model_weights *w);

/* ---- the steps of the above ---- */

/* The tensor of that name, with the shape it must have. */
ag_status ag_model_weights_find(const ag_weight_source *source, const ag_weight_spec *spec,
                                const ag_source_tensor **out, ag_error *err);

/* Bytes that a weight takes in the file. */
uint64_t ag_weight_file_bytes(ag_dtype file, const ag_weight_spec *spec);

/* An empty *w with room for every tensor of s. */
ag_status ag_model_weights_begin(ag_model_weights *w, const ag_model_spec *s, ag_error *err);
/* *out = src [rows, cols], prepared as `want`; consumed as in ag_prepare_weight. */
ag_status ag_model_weights_put_matrix(ag_model_weights *w, ag_backend *be, ag_tensor *out,
                                      const ag_weight_spec *spec, const ag_tensor *src,
                                      ag_dtype want, ag_consumed_fn consumed, void *user,
                                      ag_error *err);
/* *out = values [rows], or [cols, rows] of a filter, F32, changed as the specification says.
 * AG_FORMAT if one is not finite. */
ag_status ag_model_weights_put_vector(ag_model_weights *w, ag_backend *be, ag_tensor *out,
                                      const ag_weight_spec *spec, float *values, ag_error *err);

#endif
