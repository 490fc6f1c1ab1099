/* SPDX-License-Identifier: Apache-2.0 */
/* Types of the matrices of a model. */
#ifndef AG_MODELS_WEIGHT_TYPES_H
#define AG_MODELS_WEIGHT_TYPES_H

#include "models/tensors.h"

/* Returns `want`, or a similar type with smaller blocks if rows of `cols` are no multiple of its
 * block: Q5_0 for Q4_K, Q5_1 for Q5_K, Q8_0 for Q6_K, else Q4_0. Returns `file` if that does not
 * fit either. */
ag_dtype ag_weight_type_fitting(ag_dtype want, size_t cols, ag_dtype file);

/* Finds the last entry of the list whose pattern matches the name. Returns false if none does. */
bool ag_tensor_type_find(const ag_tensor_type *list, size_t n, const char *gguf_name,
                         ag_dtype *out);

/* Returns the type to store a matrix in: the last matching tensor type, else the file's type if
 * params->as_is, else params->weights. */
ag_dtype ag_weight_type(const ag_weight_spec *w, ag_dtype file, const ag_model_params *params);

/* Adds a step to a mix, which gives some matrices more bits. *mix starts as AG_WEIGHTS_MIX. Returns
 * false after the last step. */
bool ag_weights_mix_add(size_t step, ag_dtype *mix);
static inline bool ag_weights_is_mix(ag_dtype weights) {
    return weights >= AG_WEIGHTS_MIX && weights < AG_WEIGHTS_AUTO;
}

/* Checks params->tensor_types. Fails with AG_INVALID for an empty pattern; with AG_UNSUPPORTED for
 * a type that is not one of weights. */
ag_status ag_tensor_types_check(const ag_model_params *params, ag_error *err);

#endif
