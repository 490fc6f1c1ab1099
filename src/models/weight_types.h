/* SPDX-License-Identifier: Apache-2.0 */
/* Which type each matrix of a model becomes. */
#ifndef AG_MODELS_WEIGHT_TYPES_H
#define AG_MODELS_WEIGHT_TYPES_H

#include "models/tensors.h"

/* The type that is wanted, or one near it whose blocks the rows fill: Q5_0 for Q4_K, Q5_1 for Q5_K,
 * Q8_0 for Q6_K, Q4_0 for the smaller ones; `file` where no block fits. */
ag_dtype ag_weight_type_fitting(ag_dtype want, size_t cols, ag_dtype file);

/* What the last of the list says that fits the name, false if none does. */
bool ag_tensor_type_find(const ag_tensor_type *list, size_t n, const char *gguf_name,
                         ag_dtype *out);

/* What a matrix of that type in the file becomes: what the last of the tensor types that fits its
 * name says, else the file's type if tensors shall stay as they are, else params->weights. */
ag_dtype ag_weight_type(const ag_weight_spec *w, ag_dtype file, const ag_model_params *params);

/* Takes one of the steps of a mix, each of which makes some matrices wider; *mix, AG_WEIGHTS_MIX
 * at first, says which were taken. False past the last step. */
bool ag_weights_mix_add(size_t step, ag_dtype *mix);
static inline bool ag_weights_is_mix(ag_dtype weights) {
    return weights >= AG_WEIGHTS_MIX && weights < AG_WEIGHTS_AUTO;
}

/* AG_INVALID for an empty pattern, AG_UNSUPPORTED for a type that no weight has. */
ag_status ag_tensor_types_check(const ag_model_params *params, ag_error *err);

#endif
