/* SPDX-License-Identifier: Apache-2.0 */
/* Names of tensors in a Llama checkpoint -> tensors of the layers, checked and prepared. */
#ifndef AG_MODELS_LLAMA_WEIGHTS_H
#define AG_MODELS_LLAMA_WEIGHTS_H

#include "formats/weight_files.h"
#include "layers/llama_layer.h"
#include "models/llama_tensors.h"

/* Owns every buffer that its tensors borrow. */
typedef struct ag_llama_weights {
    ag_llama_layer *layers;
    uint32_t n_layers;
    ag_tensor norm, lm_head;
    ag_buffer **owners;
    size_t n_owners, max_owners;
    size_t n_bytes; /* of all owners */
} ag_llama_weights;

/* What the files hold, found without reading any data. */
typedef struct ag_llama_census {
    const ag_st_tensor *embedding;      /* borrowed from the files */
    bool tied;                          /* lm_head is the embedding */
    uint64_t matrix_bytes, other_bytes; /* in memory at the wanted type */
    uint64_t stored_bytes, largest;     /* the same as the backend keeps it; its largest buffer */
    uint64_t source_bytes;              /* of everything that is converted */
    ag_dtype file_type;                 /* of the largest part of the matrices */
    uint32_t n_kept;                    /* matrices that keep the file's type */
} ag_llama_census;

/* Checks that every tensor is there with the right shape: AG_NOT_FOUND, AG_SHAPE, AG_UNSUPPORTED
 * name it. be NULL: not for any backend. */
ag_status ag_llama_weights_survey(const ag_backend *be, const ag_llama_config *c,
                                  const ag_weight_files *files, ag_dtype want, ag_llama_census *out,
                                  ag_error *err);
/* What random weights will take: the fields that files have nothing to do with. */
void ag_llama_weights_survey_random(const ag_backend *be, const ag_llama_config *c, ag_dtype want,
                                    ag_llama_census *out);

/* Converts everything. `params` tells the type and hears of progress. */
ag_status ag_llama_weights_load(ag_llama_weights *w, ag_backend *be, const ag_llama_config *c,
                                const ag_weight_files *files, const ag_model_params *params,
                                ag_error *err);
/* The same from random numbers. */
ag_status ag_llama_weights_random(ag_llama_weights *w, ag_backend *be, const ag_llama_config *c,
                                  const ag_model_params *params, ag_error *err);
void ag_llama_weights_release(ag_llama_weights *w);

/* ---- the steps of the above ---- */

/* The tensor of that name, with the shape it must have. */
ag_status ag_llama_weights_find(const ag_weight_files *files, const ag_weight_spec *spec,
                                const ag_st_tensor **out, ag_error *err);
/* What a matrix becomes: `want`, or the file's type if its rows do not fit want's block. */
ag_dtype ag_weight_type(ag_dtype file, ag_dtype want, size_t cols);

/* An empty *w with room for every tensor of c. */
ag_status ag_llama_weights_begin(ag_llama_weights *w, const ag_llama_config *c, ag_error *err);
/* *out = src [rows, cols], prepared as `want`; consumed as in ag_prepare_weight. */
ag_status ag_llama_weights_put_matrix(ag_llama_weights *w, ag_backend *be, ag_tensor *out,
                                      const ag_weight_spec *spec, const ag_tensor *src,
                                      ag_dtype want, ag_consumed_fn consumed, void *user,
                                      ag_error *err);
/* *out = values [rows], F32. AG_FORMAT if one is not finite. */
ag_status ag_llama_weights_put_vector(ag_llama_weights *w, ag_backend *be, ag_tensor *out,
                                      const ag_weight_spec *spec, const float *values,
                                      ag_error *err);

#endif
